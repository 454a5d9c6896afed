"""Who of a consumer group gets which queues of a topic; every member works it out for itself.

All members must come to the same result, so clients and queues are sorted before they are shared
out, and each strategy gives what the Java class of its name gives: groups may be mixed.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from downrange.model.topics import MessageQueue

VIRTUAL_NODES: Final = 10


class AllocationStrategy(Protocol):
    """Shares out queues. `name` is what brokers and tools know the strategy by."""

    @property
    def name(self) -> str:
        """RocketMQ's name of the strategy."""
        ...

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The queues of one client; none for a client that is not in the list."""
        ...


def share_out(
    strategy: AllocationStrategy,
    client_id: str,
    queues: Iterable[MessageQueue],
    client_ids: Iterable[str],
) -> list[MessageQueue]:
    """One client's queues of those of a topic, in the order that all members agree on."""
    # Java compares text by UTF-16 units; ids that could tell the difference do not exist in ASCII.
    members = sorted(client_ids, key=lambda text: text.encode("utf-16-be", "surrogatepass"))
    return strategy.allocate(client_id, sorted(queues), members)


@dataclass(frozen=True, slots=True)
class Averagely:
    """Queues side by side; the first clients get one more if it does not come out even."""

    name: str = "AVG"

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """A run of neighbours."""
        if client_id not in client_ids:
            return []
        index, (size, rest) = client_ids.index(client_id), divmod(len(queues), len(client_ids))
        start = index * size + min(index, rest)
        return list(queues[start : start + size + (index < rest)])


@dataclass(frozen=True, slots=True)
class ByCircle:
    """Queues dealt out one by one, like cards."""

    name: str = "AVG_BY_CIRCLE"

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Every n-th queue."""
        if client_id not in client_ids:
            return []
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


@dataclass(frozen=True, slots=True)
class ByConfig:
    """The queues that somebody has written down for this client, whoever else there is."""

    queues: tuple[MessageQueue, ...]
    name: str = "CONFIG"

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """What was configured."""
        del client_id, queues, client_ids
        return list(self.queues)


@dataclass(frozen=True, slots=True)
class ByMachineRoom:
    """Only queues of brokers in certain machine rooms; a broker there is named `room@broker`."""

    rooms: frozenset[str]
    name: str = "MACHINE_ROOM"

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """A run of neighbours; what is left over goes one by one to the first clients."""
        if client_id not in client_ids:
            return []
        near = [queue for queue in queues if self._is_near(queue.broker_name)]
        index, (size, rest) = client_ids.index(client_id), divmod(len(near), len(client_ids))
        share = near[index * size : (index + 1) * size]
        if index < rest:
            share.append(near[size * len(client_ids) + index])
        return share

    def _is_near(self, broker_name: str) -> bool:
        room, at, broker = broker_name.partition("@")
        return bool(at and broker) and "@" not in broker and room in self.rooms


@dataclass(frozen=True, slots=True)
class MachineRoomNearby:
    """Queues stay in the machine room of their broker while a client there is alive.

    The queues of a room without clients are shared by all. `inner` shares out within a room.
    """

    inner: AllocationStrategy
    room_of_broker: Callable[[MessageQueue], str]
    room_of_client: Callable[[str], str]

    @property
    def name(self) -> str:
        """Java's name, which names the inner strategy too."""
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Own room first, then the deserted rooms by name."""
        if client_id not in client_ids:
            return []
        queues_by_room: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_by_room.setdefault(_room(self.room_of_broker(queue), queue), []).append(queue)
        clients_by_room: dict[str, list[str]] = {}
        for one in client_ids:
            clients_by_room.setdefault(_room(self.room_of_client(one), one), []).append(one)
        here = self.room_of_client(client_id)
        near = queues_by_room.pop(here, [])
        share = self.inner.allocate(client_id, near, clients_by_room[here]) if near else []
        for room in sorted(queues_by_room):
            if room not in clients_by_room:
                share += self.inner.allocate(client_id, queues_by_room[room], client_ids)
        return share


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """Clients stand on a ring at several places; a queue goes to the next client on the ring."""

    virtual_nodes: int = VIRTUAL_NODES
    name: str = "CONSISTENT_HASH"

    def __post_init__(self) -> None:
        """Refuse what cannot be a number of places."""
        if self.virtual_nodes < 0:
            raise ValueError(f"virtual_nodes is {self.virtual_nodes}; it must not be negative")

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The queues that come before this client's places."""
        if client_id not in client_ids:
            return []
        ring: dict[int, str] = {}
        for one in client_ids:
            for place in range(self.virtual_nodes):
                ring[_ring_hash(f"{one}-{place}")] = one
        if not ring:
            return []
        places = sorted(ring)
        share = []
        for queue in queues:
            index = bisect_left(places, _ring_hash(_java_text(queue)))
            if ring[places[index % len(places)]] == client_id:
                share.append(queue)
        return share


@dataclass(frozen=True, slots=True)
class BrokerAware:
    """Shares out each broker's queues by themselves; Java has no such strategy.

    Every client has queues of every broker if there are enough, and a broker that comes or goes
    moves no queue of the others, which all strategies above may do. The price: queues that do not
    come out even are evened out within a broker only, from a client on that the broker's name says.
    """

    name: str = "BROKER_AWARE"

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Dealt out broker by broker."""
        if client_id not in client_ids:
            return []
        index, members = client_ids.index(client_id), len(client_ids)
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        share = []
        for broker_name, of_broker in by_broker.items():
            first = _ring_hash(broker_name) % members
            share += of_broker[(index - first) % members :: members]
        return share


STRATEGIES: Final[dict[str, AllocationStrategy]] = {
    strategy.name: strategy
    for strategy in (Averagely(), ByCircle(), ConsistentHash(), BrokerAware())
}


def strategy_named(name: str) -> AllocationStrategy:
    """A strategy that needs no settings of its own."""
    if name not in STRATEGIES:
        raise ValueError(
            f"no allocation strategy {name!r}; there are {', '.join(sorted(STRATEGIES))}, and "
            f"those with settings, which are built by their classes"
        )
    return STRATEGIES[name]


def _room(room: str, whose: object) -> str:
    if not room:
        raise ValueError(f"the machine room of {whose} is empty; the resolver must name one")
    return room


def _java_text(queue: MessageQueue) -> str:
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )


def _ring_hash(text: str) -> int:
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")
