"""A network in memory: connections that a test can delay, cut or make deaf.

Bytes travel through the event loop, never through the operating system, so with a loop of virtual
time a whole cluster runs in one test, fast and always the same way.
"""

import asyncio
import errno
from collections import deque
from dataclasses import dataclass

from downrange.remoting.network import Network, ProtocolFactory


@dataclass(slots=True)
class Link:
    """The knobs of a connection; a test turns them while it lives."""

    delay_s: float = 0.0
    is_deaf: bool = False  # bytes are lost on the way, both ends think all is well
    is_stalled: bool = False  # bytes are kept until the knob is turned back


class MemoryTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, link: Link, name: tuple[str, int]) -> None:
        super().__init__({"peername": name})
        self._loop = loop
        self._link = link
        self._protocol: asyncio.Protocol | None = None
        self.other: MemoryTransport | None = None
        self._is_closing = False
        self._high_bytes = 64 * 1024
        self._unread: deque[bytes] = deque()
        self._unread_bytes = 0
        self._is_paused = False
        self._is_reading = True

    def attach(self, protocol: asyncio.Protocol) -> None:
        """Give this end to a protocol."""
        self._protocol = protocol
        protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes to the other end."""
        if self._is_closing or self.other is None or self._link.is_deaf:
            return
        self._unread.append(bytes(data))
        self._unread_bytes += len(data)
        if self._unread_bytes > self._high_bytes and not self._is_paused:
            self._is_paused = True
            if self._protocol is not None:
                self._protocol.pause_writing()
        self._loop.call_later(self._link.delay_s, self._deliver)

    def pause_reading(self) -> None:
        """Leave what the other end sends where it is."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Take what has come meanwhile."""
        if not self._is_reading:
            self._is_reading = True
            if self.other is not None:
                self.other.resume()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """How much may be unread before the writer is told to pause."""
        del low
        self._high_bytes = high if high is not None else self._high_bytes

    def get_write_buffer_size(self) -> int:
        """Bytes that the other end has not read."""
        return self._unread_bytes

    def can_write_eof(self) -> bool:
        """An end is open or closed here, never half."""
        return False

    def is_closing(self) -> bool:
        """Whether this end was closed."""
        return self._is_closing

    def close(self) -> None:
        """Close once the other end has read everything."""
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_later(self._link.delay_s, self._finish)

    def abort(self) -> None:
        """Close at once; what was not read is lost."""
        self._unread.clear()
        self._unread_bytes = 0
        self._is_closing = True
        self._loop.call_soon(self._finish)

    def resume(self) -> None:
        """Deliver what a stalled link has kept."""
        self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        if self._link.is_stalled:
            return
        while self._unread:
            twin = self.other
            if twin is None or not twin._is_reading:  # noqa: SLF001 - its twin
                return
            data = self._unread.popleft()
            self._unread_bytes -= len(data)
            receiver = twin._protocol  # noqa: SLF001 - its twin
            if receiver is not None:
                receiver.data_received(data)
        if self._is_paused:
            self._is_paused = False
            if self._protocol is not None:
                self._protocol.resume_writing()

    def _finish(self) -> None:
        self._deliver()
        twin, self.other = self.other, None
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(None)
        if twin is not None:
            twin._is_closing = True  # noqa: SLF001 - its twin
            twin.abort()


class MemoryListener:
    """A server socket in a `MemoryNetwork`."""

    def __init__(
        self, network: "MemoryNetwork", address: tuple[str, int], factory: ProtocolFactory
    ) -> None:
        self._network = network
        self._address = address
        self._factory = factory

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self._address

    async def start(self) -> None:
        """Accept connections."""
        self._network.doors[self._address[1]] = self._factory

    def close(self) -> None:
        """Give the port back."""
        self._network.doors.pop(self._address[1], None)


class MemoryNetwork(Network):
    """Server sockets by port; every host is this one."""

    def __init__(self) -> None:
        self.doors: dict[int, ProtocolFactory | None] = {}  # None: bound, not accepting yet
        self.links: list[tuple[int, Link, MemoryTransport]] = []
        self._next_port = 50_000

    async def bind(self, host: str, port: int, factory: ProtocolFactory) -> MemoryListener:
        """Take a port; `OSError` if it is already in use."""
        if not port:
            self._next_port += 1
            port = self._next_port
        if port in self.doors:
            raise OSError(errno.EADDRINUSE, f"port {port} is already in use")
        self.doors[port] = None
        return MemoryListener(self, (host, port), factory)

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> None:
        """Walk through a door; `OSError` if there is none."""
        door = self.doors.get(port)
        if door is None:
            raise ConnectionRefusedError(f"nobody listens on {host}:{port}")
        loop = asyncio.get_running_loop()
        link = Link()
        self._next_port += 1
        here = MemoryTransport(loop, link, (host, port))
        there = MemoryTransport(loop, link, ("127.0.0.1", self._next_port))
        here.other, there.other = there, here
        self.links.append((port, link, here))
        there.attach(door())
        here.attach(factory())

    def cut(self, port: int) -> int:
        """Break every connection to a port, as if a cable was pulled; returns how many."""
        broken = [end for at, _, end in self.links if at == port]
        self.links = [entry for entry in self.links if entry[0] != port]
        for end in broken:
            end.abort()
        return len(broken)

    def links_to(self, port: int) -> list[Link]:
        """The knobs of the connections to a port."""
        return [link for at, link, _ in self.links if at == port]
