"""One byte limit over all connections of a server: incomplete requests and unread responses.

A request of up to 16 MiB is collected in memory until its last byte is there, so every connection
that stops in the middle of one holds what it has sent. Below three quarters of the limit everybody
may send. Above, connections with an incomplete request are paused unless what they still have to
send fits into the rest, those first that lack least: they complete, and free what they hold. At the
limit the connection that holds most is closed.

A sender must make progress as well. Its request has `receive_s_max` seconds plus one second per
16 KiB. While others are paused, senders of less than 64 KiB per second are closed, the largest
first, until half of the free space is free again.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from downrange.protocol.frame import FRAME_BYTES_MAX

_log = logging.getLogger(__name__)

SWEEP_S: Final = 1.0
LOG_INTERVAL_S: Final = 10.0
BYTES_PER_SECOND_MIN: Final = 16 * 1024
BYTES_PER_SECOND_UNDER_PRESSURE: Final = 64 * 1024
_FREE_SHARE: Final = 0.75
_RESERVE_BYTES_MIN: Final = 2 * FRAME_BYTES_MAX  # or not even one request could complete


class Receiver(Protocol):
    """What the budget needs of a connection."""

    address: str

    @property
    def unsent_bytes(self) -> int:
        """Bytes written that the peer has not read."""
        ...

    def pause_receiving(self) -> None:
        """Read no more until `resume_receiving`."""
        ...

    def resume_receiving(self) -> None:
        """Read again."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...


class _Incomplete:
    """A request that has not arrived as a whole."""

    __slots__ = ("held_bytes", "is_paused", "missing_bytes", "paused_s", "since_s", "swept_bytes")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.held_bytes = 0
        self.missing_bytes = 0
        self.swept_bytes = -1  # how many were held at the last sweep; none has seen it yet
        self.is_paused = False
        self.paused_s = 0.0


class ReceiveBudget:
    """Counts what connections hold. Owned by the event loop.

    A connection calls `note` when it holds a part of a request, `release` when that request is
    complete or the connection is gone. `refusals` counts the connections that were closed.
    """

    def __init__(
        self,
        bytes_max: int,
        receive_s_max: float,
        now_s: Callable[[], float],
        refusals: Counter[str],
    ) -> None:
        self._bytes_max = bytes_max
        self._free_bytes = min(int(bytes_max * _FREE_SHARE), bytes_max - _RESERVE_BYTES_MIN)
        self._receive_s_max = receive_s_max
        self._now_s = now_s
        self._refusals = refusals
        self._incomplete: dict[Receiver, _Incomplete] = {}
        self._unsent: dict[Receiver, int] = {}
        self._paused: dict[Receiver, None] = {}  # in the order in which they were paused
        self._missing_bytes = 0  # of those that are not paused
        self.held_bytes = 0
        self.unsent_bytes = 0
        self._logged_s = float("-inf")
        self._unlogged = 0

    @property
    def total_bytes(self) -> int:
        """Bytes held for all connections; those to be sent as of the last sweep."""
        return self.held_bytes + self.unsent_bytes

    @property
    def paused_count(self) -> int:
        """Connections that wait for room."""
        return len(self._paused)

    def note(self, receiver: Receiver, held_bytes: int, missing_bytes: int) -> None:
        """A connection holds so many bytes of a request and waits for the rest."""
        entry = self._incomplete.get(receiver)
        if entry is None:
            entry = self._incomplete[receiver] = _Incomplete(self._now_s())
        self.held_bytes += held_bytes - entry.held_bytes
        entry.held_bytes = held_bytes
        if not entry.is_paused:
            self._missing_bytes += missing_bytes - entry.missing_bytes
        entry.missing_bytes = missing_bytes
        if self.total_bytes > self._free_bytes:
            self._relieve()

    def release(self, receiver: Receiver) -> None:
        """The request is complete, or its connection is gone."""
        if receiver not in self._incomplete:
            return
        if self._forget(receiver).is_paused:
            receiver.resume_receiving()
        if self._paused:
            self._resume_paused()

    def note_unsent(self, receiver: Receiver, unsent_bytes: int) -> None:
        """A peer stops reading with so much to be sent to it; 0: it has caught up."""
        self.unsent_bytes += unsent_bytes - self._unsent.pop(receiver, 0)
        if unsent_bytes:
            self._unsent[receiver] = unsent_bytes

    def forget(self, receiver: Receiver) -> None:
        """The connection is gone."""
        self.note_unsent(receiver, 0)
        self.release(receiver)

    def sweep(self, receivers: Iterable[Receiver]) -> None:
        """Close connections that are too slow; called every `SWEEP_S` with all connections."""
        self._unsent = {one: size for one in receivers if (size := one.unsent_bytes)}
        self.unsent_bytes = sum(self._unsent.values())
        now_s = self._now_s()
        for receiver, entry in list(self._incomplete.items()):
            if not entry.is_paused and now_s > entry.since_s + self._seconds_for(entry):
                seconds = now_s - entry.since_s
                self._close(receiver, "slow", f"its request is incomplete after {seconds:.0f} s")
        self._close_largest_until_allowed()
        if self._paused:
            self._close_slow_under_pressure()
        for entry in self._incomplete.values():
            entry.swept_bytes = entry.held_bytes
        if self._paused:
            self._resume_paused()
        while self._paused and len(self._paused) == len(self._incomplete):
            # Nobody is left to complete a request and make room.
            self._close_largest()
            self._resume_paused()

    def _seconds_for(self, entry: _Incomplete) -> float:
        frame_bytes = entry.held_bytes + entry.missing_bytes
        return self._receive_s_max + frame_bytes / BYTES_PER_SECOND_MIN

    def _relieve(self) -> None:
        self._close_largest_until_allowed()
        if self._missing_bytes > self._bytes_max - self.total_bytes:
            self._pause_excess()

    def _pause_excess(self) -> None:
        """Let only those send whose rest fits, those first that lack least."""
        now_s = self._now_s()
        sending = [pair for pair in self._incomplete.items() if not pair[1].is_paused]
        room = self._bytes_max - self.total_bytes
        for receiver, entry in sorted(sending, key=lambda pair: pair[1].missing_bytes):
            room -= entry.missing_bytes
            if room < 0:
                entry.is_paused = True
                entry.paused_s = now_s
                self._missing_bytes -= entry.missing_bytes
                self._paused[receiver] = None
                receiver.pause_receiving()

    def _resume_paused(self) -> None:
        """Let those go on that have waited longest, as far as there is room."""
        now_s = self._now_s()
        for receiver in list(self._paused):
            entry = self._incomplete[receiver]
            room = self._bytes_max - self.total_bytes - self._missing_bytes
            if self.total_bytes > self._free_bytes and entry.missing_bytes > room:
                return
            del self._paused[receiver]
            self._missing_bytes += entry.missing_bytes
            entry.is_paused = False
            entry.since_s += now_s - entry.paused_s
            entry.swept_bytes = -1
            receiver.resume_receiving()

    def _close_slow_under_pressure(self) -> None:
        slow = [
            (entry.held_bytes, receiver)
            for receiver, entry in self._incomplete.items()
            if not entry.is_paused
            and entry.swept_bytes >= 0
            and entry.held_bytes - entry.swept_bytes < BYTES_PER_SECOND_UNDER_PRESSURE * SWEEP_S
        ]
        for _, receiver in sorted(slow, key=lambda pair: -pair[0]):
            if self.total_bytes <= self._free_bytes // 2:
                return
            self._close(receiver, "pressure", "its request makes no progress and others wait")

    def _close_largest_until_allowed(self) -> None:
        while self.total_bytes > self._bytes_max and (self._unsent or self._incomplete):
            self._close_largest()

    def _close_largest(self) -> None:
        def size(receiver: Receiver) -> int:
            entry = self._incomplete.get(receiver)
            held_bytes = entry.held_bytes if entry is not None else 0
            return held_bytes + self._unsent.get(receiver, 0)

        largest = max([*self._incomplete, *self._unsent], key=size)
        self._close(
            largest, "memory", f"it holds most, and connectionBytesMax is {self._bytes_max}"
        )

    def _close(self, receiver: Receiver, reason: str, why: str) -> None:
        self.note_unsent(receiver, 0)
        held_bytes = self._forget(receiver).held_bytes if receiver in self._incomplete else 0
        self._refusals[reason] += 1
        receiver.abort()
        now_s = self._now_s()
        if now_s - self._logged_s < LOG_INTERVAL_S:
            self._unlogged += 1
            return
        more = f"; {self._unlogged} more since the last report" if self._unlogged else ""
        _log.warning(
            "connection %s: closed with %d bytes of a request: %s%s",
            receiver.address,
            held_bytes,
            why,
            more,
        )
        self._logged_s = now_s
        self._unlogged = 0

    def _forget(self, receiver: Receiver) -> _Incomplete:
        entry = self._incomplete.pop(receiver)
        self.held_bytes -= entry.held_bytes
        if entry.is_paused:
            del self._paused[receiver]
        else:
            self._missing_bytes -= entry.missing_bytes
        return entry
