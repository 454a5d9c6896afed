"""The unique id that a client gives to each message before it is sent (property UNIQ_KEY).

Clients that speak the remoting protocol, 16 or 28 bytes in upper-case hexadecimal:

    ip 4 or 16 │ process id 2 │ random 4 │ ms since the first of the month 4 │ counter 2

The month begins at midnight of the first in local time, so the id alone does not say which month it
is from; a reader takes the latest one that is not in the future. In Java the random part is the
hash of the class loader.

Clients that speak gRPC, 17 bytes in upper-case hexadecimal:

    version 1 = 01 │ MAC address 6 │ process id 2 │ seconds since 2021-01-01 UTC 4 │ counter 4
"""

import time
from datetime import UTC, datetime, tzinfo
from random import Random
from typing import NamedTuple

from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.hosts import decode_ip, encode_ip
from downrange.protocol.message_id import decode_hex
from downrange.runtime.clock import Clock

_COUNTER_MASK = 0xFFFF
_PROCESS_ID_MASK = 0xFFFF
_TAIL_BYTES = 2 + 4 + 4 + 2  # process id, random, milliseconds, counter
_ID_BYTES = frozenset((4 + _TAIL_BYTES, 16 + _TAIL_BYTES))
_DECEMBER = 12

GRPC_ID_BYTES = 17
GRPC_ID_VERSION = 1
GRPC_EPOCH_MS = int(datetime(2021, 1, 1, tzinfo=UTC).timestamp()) * 1000


class UniqueId(NamedTuple):
    """What a unique id says about the client that made it, and when."""

    ip: str
    process_id: int
    random: int
    born_ms: int
    counter: int


class GrpcUniqueId(NamedTuple):
    """What the unique id of a gRPC client says."""

    mac: bytes
    process_id: int
    born_ms: int
    counter: int


class UniqueIdGenerator:
    """Makes the unique ids of one client process; owned and called by one thread."""

    def __init__(
        self, *, ip: str, process_id: int, clock: Clock, random: Random, zone: tzinfo | None = None
    ) -> None:
        fixed = encode_ip(ip) + (process_id & _PROCESS_ID_MASK).to_bytes(2, "big")
        self._prefix = (fixed + random.getrandbits(32).to_bytes(4, "big")).hex().upper()
        self._clock = clock
        self._zone = zone
        self._counter = 0
        self._month_start_ms = 0
        self._month_end_ms = 0
        self._last_ms = -1
        self._head = ""  # all but the counter, the same for all ids of a millisecond

    def next_id(self) -> str:
        """A new id, different from each of the 65,535 before it even within a millisecond."""
        now_ms = self._clock.wall_ns() // 1_000_000
        if now_ms != self._last_ms:
            self._enter_millisecond(now_ms)
        counter = self._counter
        self._counter = (counter + 1) & _COUNTER_MASK
        return f"{self._head}{counter:04X}"

    def reserve(self, count: int) -> tuple[str, int]:
        """What so many new ids begin with, and the counter of the first; it wraps at 65,536.

        The counter is the last four hexadecimal digits. For those who write ids by the thousand.
        """
        assert 0 < count <= _COUNTER_MASK + 1
        now_ms = self._clock.wall_ns() // 1_000_000
        if now_ms != self._last_ms:
            self._enter_millisecond(now_ms)
        counter = self._counter
        self._counter = (counter + count) & _COUNTER_MASK
        return self._head, counter

    def _enter_millisecond(self, now_ms: int) -> None:
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._enter_month(now_ms)
        self._last_ms = now_ms
        self._head = f"{self._prefix}{now_ms - self._month_start_ms:08X}"

    def _enter_month(self, now_ms: int) -> None:
        self._month_start_ms = month_start_ms(now_ms, zone=self._zone)
        self._month_end_ms = month_start_ms(now_ms, zone=self._zone, months_later=1)


def decode_unique_id(text: str, *, now_ms: int, zone: tzinfo | None = None) -> UniqueId:
    """The parts of a unique id; the month of birth is the latest that gives no future time."""
    data = decode_hex(text)
    if len(data) not in _ID_BYTES:
        raise RemoteProtocolError(f"unique id {text!r} has {len(text)} characters, not 32 or 56")
    tail = data[-_TAIL_BYTES:]
    since_month_ms = int.from_bytes(tail[6:10], "big")
    born_ms = month_start_ms(now_ms, zone=zone) + since_month_ms
    if born_ms > now_ms:
        born_ms = month_start_ms(now_ms, zone=zone, months_later=-1) + since_month_ms
    return UniqueId(
        ip=decode_ip(data[:-_TAIL_BYTES]),
        process_id=int.from_bytes(tail[0:2], "big"),
        random=int.from_bytes(tail[2:6], "big"),
        born_ms=born_ms,
        counter=int.from_bytes(tail[10:12], "big"),
    )


def decode_grpc_unique_id(text: str) -> GrpcUniqueId:
    """The parts of a gRPC client's unique id."""
    data = decode_hex(text)
    if len(data) != GRPC_ID_BYTES or data[0] != GRPC_ID_VERSION:
        raise RemoteProtocolError(f"{text!r} is no unique id of a gRPC client")
    return GrpcUniqueId(
        mac=data[1:7],
        process_id=int.from_bytes(data[7:9], "big"),
        born_ms=GRPC_EPOCH_MS + 1000 * int.from_bytes(data[9:13], "big"),
        counter=int.from_bytes(data[13:17], "big"),
    )


def month_start_ms(now_ms: int, *, zone: tzinfo | None = None, months_later: int = 0) -> int:
    """Midnight of the first day of a month, -1 to 1 months from now; local time without a zone."""
    if zone is None:
        local = time.localtime(now_ms // 1000)
        year, month = local.tm_year, local.tm_mon + months_later
    else:
        there = datetime.fromtimestamp(now_ms // 1000, tz=zone)
        year, month = there.year, there.month + months_later
    if month > _DECEMBER:
        year, month = year + 1, 1
    elif month < 1:
        year, month = year - 1, _DECEMBER
    if zone is None:
        return int(time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))) * 1000
    return int(datetime(year, month, 1, tzinfo=zone).timestamp()) * 1000
