"""Which brokers have been heard of lately, and through which connection."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from downrange.model.topics import DataVersion

EXPIRE_MS: Final = 120_000
"""How long a broker may be silent that did not say so itself."""


class Peer(Protocol):
    """The connection of a broker, as far as this package needs it."""

    def close(self) -> None:
        """End the connection."""
        ...


class BrokerAddress(NamedTuple):
    """A broker process: the same address may serve in two clusters."""

    cluster: str
    address: str


@dataclass(slots=True)
class LiveBroker:
    """What the last registration said, and when the broker was last heard."""

    peer: Peer
    data_version: DataVersion
    ha_address: str
    timeout_ms: int
    heard_ms: int


class LiveBrokers:
    """Brokers by address; times are those of one monotonic clock, so it may jump elsewhere."""

    def __init__(self) -> None:
        self._brokers: dict[BrokerAddress, LiveBroker] = {}

    def __len__(self) -> int:
        return len(self._brokers)

    def __iter__(self) -> Iterator[BrokerAddress]:
        return iter(self._brokers)

    def get(self, where: BrokerAddress) -> LiveBroker | None:
        """What is known of a broker."""
        return self._brokers.get(where)

    def put(self, where: BrokerAddress, broker: LiveBroker) -> None:
        """Remember a registration; it takes the place of the one before."""
        self._brokers[where] = broker

    def discard(self, where: BrokerAddress) -> None:
        """Forget a broker; one that is not known is no error."""
        self._brokers.pop(where, None)

    def heard(self, where: BrokerAddress, now_ms: int) -> None:
        """Note a sign of life of a broker; one that never registered stays unknown."""
        broker = self._brokers.get(where)
        if broker is not None:
            broker.heard_ms = now_ms

    def has_changed(self, where: BrokerAddress, version: DataVersion | None) -> bool:
        """Whether a table of this version differs from what the broker registered last."""
        broker = self._brokers.get(where)
        return broker is None or broker.data_version != version

    def of_peer(self, peer: Peer) -> list[BrokerAddress]:
        """The brokers whose last registration came through this connection.

        Those of a broker container share one; Apache's name server finds only one of them at once
        and the others two minutes later.
        """
        return [where for where, broker in self._brokers.items() if broker.peer is peer]

    def expired(self, now_ms: int) -> list[tuple[BrokerAddress, LiveBroker]]:
        """The brokers that were silent for longer than they may be."""
        return [
            (where, broker)
            for where, broker in self._brokers.items()
            if broker.heard_ms + broker.timeout_ms < now_ms
        ]
