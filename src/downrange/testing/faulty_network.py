"""A real network whose servers can be made slow, deaf and forgetful."""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

from downrange.remoting.network import Listener, Network, ProtocolFactory, TcpNetwork


@dataclass(slots=True)
class Door:
    """A port that somebody listens on, with its knobs; they work on connections that exist too."""

    delay_s: float = 0.0  # before what the server writes goes out
    loses_answers: bool = False  # what the server writes is lost, and nobody hears of it
    is_shut: bool = False  # who comes is sent away at once
    open: "set[FaultyTransport]" = field(default_factory=set)

    def heal(self) -> None:
        """Turn all knobs back."""
        self.delay_s, self.loses_answers, self.is_shut = 0.0, False, False

    def cut(self) -> int:
        """Break all connections; returns how many."""
        cut = list(self.open)
        for transport in cut:
            transport.abort()
        return len(cut)


class FaultyTransport(asyncio.Transport):
    """A transport that writes late, or not at all, as its door says."""

    def __init__(self, inner: asyncio.Transport, door: Door) -> None:
        super().__init__()
        self._inner = inner
        self._door = door
        self._loop = asyncio.get_running_loop()
        self._late: deque[bytes] = deque()
        self._is_closing = False
        self.get_extra_info = inner.get_extra_info  # type: ignore[method-assign]
        self.pause_reading = inner.pause_reading  # type: ignore[method-assign]
        self.resume_reading = inner.resume_reading  # type: ignore[method-assign]
        self.set_write_buffer_limits = inner.set_write_buffer_limits  # type: ignore[method-assign]
        self.get_write_buffer_size = inner.get_write_buffer_size  # type: ignore[method-assign]

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes as the door lets them."""
        door = self._door
        if door.loses_answers:
            return
        if door.delay_s > 0 or self._late:
            self._late.append(bytes(data))
            self._loop.call_later(door.delay_s, self._write_late)
        else:
            self._inner.write(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send several pieces."""
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        """Whether the connection ends."""
        return self._is_closing or self._inner.is_closing()

    def close(self) -> None:
        """Write what is there and close."""
        self._is_closing = True
        while self._late:
            self._write_late()
        self._inner.close()

    def abort(self) -> None:
        """Close at once."""
        self._late.clear()
        self._inner.abort()

    def _write_late(self) -> None:
        if self._late and not self._inner.is_closing():
            self._inner.write(self._late.popleft())


class _FaultyProtocol(asyncio.Protocol):
    """Gives the server's protocol a faulty transport."""

    def __init__(self, inner: asyncio.Protocol, door: Door) -> None:
        self._door = door
        self._inner = inner
        self._transport: FaultyTransport | None = None
        self.data_received = inner.data_received  # type: ignore[method-assign]
        self.eof_received = inner.eof_received  # type: ignore[method-assign]
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        real = cast("asyncio.Transport", transport)
        self._transport = FaultyTransport(real, self._door)
        self._door.open.add(self._transport)
        self._inner.connection_made(self._transport)
        if self._door.is_shut:
            real.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._door.open.discard(self._transport)
        self._inner.connection_lost(exc)


class FaultyNetwork(Network):
    """Doors by port. Their knobs may be turned from any thread; `cut` belongs to the loop."""

    def __init__(self, inner: Network | None = None) -> None:
        self._inner = inner or TcpNetwork()
        self._doors: dict[int, Door] = {}

    def door(self, port: int) -> Door:
        """The knobs of a port, whether or not somebody listens there now."""
        return self._doors.setdefault(port, Door())

    @property
    def doors(self) -> list[Door]:
        """All of them."""
        return list(self._doors.values())

    async def bind(self, host: str, port: int, factory: ProtocolFactory) -> Listener:
        """Bind and accept."""
        door = self.door(port)
        return await self._inner.bind(host, port, lambda: _FaultyProtocol(factory(), door))

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> None:
        """Connect as ever."""
        await self._inner.connect(host, port, factory)
