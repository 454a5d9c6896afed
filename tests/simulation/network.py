"""A network between simulated hosts, with delays, lost connections and partitions."""

import asyncio
import errno
import random
from dataclasses import dataclass

from simulation.waiting import pass_time

from downrange.remoting.memory import Link, MemoryTransport
from downrange.remoting.network import Network, ProtocolFactory

DELAY_S_MAX = 0.004
CONNECT_S_MAX = 3.0  # a host that cannot be reached does not say so


@dataclass(slots=True)
class Connected:
    """A connection between two hosts."""

    hosts: frozenset[str]
    link: Link
    ends: tuple[MemoryTransport, MemoryTransport]


class SimulatedNetwork:
    """Ports belong to hosts; a fault changes what lies between two of them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.doors: dict[int, tuple[str, ProtocolFactory | None]] = {}
        self.connected: list[Connected] = []
        self.delay_s_max = DELAY_S_MAX
        self._parted: set[frozenset[str]] = set()
        self._down: set[str] = set()
        self._next_port = 50_000

    def at(self, host: str) -> "HostNetwork":
        """The network as one host sees it."""
        return HostNetwork(self, host)

    def part(self, first: str, second: str) -> None:
        """Let nothing through between two hosts; what is sent waits, as TCP has it."""
        pair = frozenset((first, second))
        self._parted.add(pair)
        for one in self.connected:
            if one.hosts == pair:
                one.link.is_stalled = True

    def join(self, first: str, second: str) -> None:
        """Let everything through again."""
        pair = frozenset((first, second))
        self._parted.discard(pair)
        for one in self.connected:
            if one.hosts == pair:
                one.link.is_stalled = False
                for end in one.ends:
                    end.resume()

    def take_down(self, host: str) -> None:
        """The host dies: nothing it still says is heard, its connections break."""
        self._down.add(host)
        for one in self._of(host):
            one.link.is_deaf = True
            one.ends[0].abort()
        self.connected = [one for one in self.connected if host not in one.hosts]
        self.doors = {port: door for port, door in self.doors.items() if door[0] != host}

    def bring_up(self, host: str) -> None:
        """The host is back, with nothing open."""
        self._down.discard(host)

    def lose(self, host: str, share: float) -> int:
        """Some connections of a host die without anybody noticing; returns how many."""
        lost = [one for one in self._of(host) if self.rng.random() < share]
        for one in lost:
            one.link.is_deaf = True
        return len(lost)

    def delay(self, host: str, seconds_max: float) -> None:
        """Give each connection of a host another delay, so that they overtake each other."""
        for one in self._of(host):
            one.link.delay_s = self.rng.uniform(0, seconds_max)

    def is_parted(self, first: str, second: str) -> bool:
        """Whether nothing gets through."""
        return frozenset((first, second)) in self._parted

    def is_down(self, host: str) -> bool:
        """Whether the host is dead."""
        return host in self._down

    def next_port(self) -> int:
        """A port that nobody has."""
        self._next_port += 1
        return self._next_port

    def _of(self, host: str) -> list[Connected]:
        self.connected = [one for one in self.connected if not one.ends[0].is_closing()]
        return [one for one in self.connected if host in one.hosts]


class _Listener:
    """A server socket of a host."""

    def __init__(
        self, network: SimulatedNetwork, host: str, address: tuple[str, int], door: ProtocolFactory
    ) -> None:
        self._network, self._host, self._door = network, host, door
        self.address = address

    async def start(self) -> None:
        """Accept connections."""
        self._network.doors[self.address[1]] = (self._host, self._door)

    def close(self) -> None:
        """Give the port back, unless another start of the host has it already."""
        found = self._network.doors.get(self.address[1])
        if found is not None and found[1] in {None, self._door}:
            del self._network.doors[self.address[1]]


class HostNetwork(Network):
    """What one host binds and connects to."""

    def __init__(self, network: SimulatedNetwork, host: str) -> None:
        self._network = network
        self._host = host

    async def bind(self, host: str, port: int, factory: ProtocolFactory) -> _Listener:
        """Take a port; `OSError` if it is already in use."""
        network = self._network
        if port in network.doors:
            raise OSError(errno.EADDRINUSE, f"port {port} is already in use")
        network.doors[port] = (self._host, None)
        return _Listener(network, self._host, (host, port), factory)

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> None:
        """Connect; a host that is dead or cut off keeps the caller waiting."""
        network = self._network
        target, door = network.doors.get(port, ("", None))
        if network.is_down(self._host):
            await pass_time(CONNECT_S_MAX)
            raise OSError(errno.ENETUNREACH, "this host is down")
        if door is None:
            raise ConnectionRefusedError(f"nobody listens on {host}:{port}")
        if network.is_parted(self._host, target):
            await pass_time(CONNECT_S_MAX)
            raise OSError(errno.ETIMEDOUT, f"{host}:{port} cannot be reached")
        loop = asyncio.get_running_loop()
        link = Link(delay_s=network.rng.uniform(0, network.delay_s_max))
        here = MemoryTransport(loop, link, (host, port))
        there = MemoryTransport(loop, link, ("127.0.0.1", network.next_port()))
        here.other, there.other = there, here
        network.connected.append(Connected(frozenset((self._host, target)), link, (here, there)))
        there.attach(door())
        here.attach(factory())
