"""Requests of a producer on one connection, written together and timed together.

What is sent in one turn of the event loop goes out with few writes, and one timer watches the
oldest deadline instead of one timer for each request: that is most of what a small message costs.
"""

import asyncio
import math
from struct import Struct
from typing import Final

from downrange.protocol.command import Command
from downrange.remoting.connection import Connection
from downrange.remoting.errors import RequestTimeoutError, TooManyRequestsError

BYTES_IN_FLIGHT_MAX: Final = 256 * 1024 * 1024  # sent and not answered, on one connection

# Beyond so many they are written at once: the broker works on these while the next are made.
_PARTS_TOGETHER_MAX: Final = 2 * 16

_FRAME_START: Final = Struct(">ii")
_WORD_BYTES: Final = 4


class SendChannel:
    """Belongs to the producers of one session; all calls come from its event loop."""

    __slots__ = (
        "_bytes_in_flight",
        "_calls",
        "_loop",
        "_out",
        "_timer",
        "_timer_s",
        "connection",
    )

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self.connection = connection
        self._loop = loop
        self._out: list[bytes | memoryview] = []
        self._calls: dict[int, tuple[float, asyncio.Future[Command], int]] = {}
        self._bytes_in_flight = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = math.inf

    def expect(self, size: int, timeout_s: float) -> tuple[int, asyncio.Future[Command]]:
        """A number for a request of so many bytes, which is written next, and its answer to be.

        Whoever asks must say `answered` or `forget` in the end.
        """
        if self._bytes_in_flight + size > BYTES_IN_FLIGHT_MAX:
            raise TooManyRequestsError(
                f"{self._bytes_in_flight} bytes to {self.connection.address} wait for an answer"
            )
        opaque, future = self.connection.expect()
        deadline_s = self._loop.time() + timeout_s
        self._calls[opaque] = (deadline_s, future, size)
        self._bytes_in_flight += size
        if deadline_s < self._timer_s:
            self._watch(deadline_s)
        return opaque, future

    def number_one_way(self) -> int:
        """A number for a request that nobody answers."""
        if not self.connection.is_writable:
            raise TooManyRequestsError(f"{self.connection.address} does not read what is sent")
        return self.connection.next_opaque()

    def answered(self, opaque: int) -> None:
        """The answer is here."""
        call = self._calls.pop(opaque, None)
        if call is not None:
            self._bytes_in_flight -= call[2]

    def forget(self, opaque: int) -> None:
        """Nobody waits for the answer any more."""
        self.connection.forget(opaque)
        self.answered(opaque)

    def write(self, header: bytes, body: bytes) -> None:
        """Send a JSON header and a body, with others of this turn of the loop."""
        out = self._out
        if not out:
            self._loop.call_soon(self._flush)
        length = len(header)
        out.append(_FRAME_START.pack(_WORD_BYTES + length + len(body), length) + header)
        out.append(body)
        if len(out) >= _PARTS_TOGETHER_MAX:
            self._flush()

    def _flush(self) -> None:
        out, self._out = self._out, []
        self.connection.reply(out)

    def _watch(self, deadline_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = deadline_s
        self._timer = self._loop.call_at(deadline_s, self._expire)

    def _expire(self) -> None:
        now_s = self._timer_s
        self._timer = None
        self._timer_s = math.inf
        next_s = math.inf
        for deadline_s, future, _ in list(self._calls.values()):
            if deadline_s <= now_s:
                if not future.done():
                    text = f"{self.connection.address} did not answer in time"
                    future.set_exception(RequestTimeoutError(text))
            elif deadline_s < next_s:
                next_s = deadline_s
        if next_s < math.inf:
            self._watch(next_s)
