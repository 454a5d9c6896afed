"""What a session must know of the producers and consumers that share it."""

from collections.abc import Iterable
from typing import Protocol

from downrange.protocol.bodies.heartbeat import ConsumerGroup, ProducerGroup


class Participant(Protocol):
    """A producer or a consumer. All calls come from the event loop of the session."""

    @property
    def group(self) -> str:
        """The group as brokers know it, namespace and all; one of each kind in a session."""
        ...

    def heartbeat(self) -> ProducerGroup | ConsumerGroup:
        """What the heartbeat says about it; the kind of the answer is the kind of participant."""
        ...

    def topics(self) -> Iterable[str]:
        """The topics whose routes it needs to be kept fresh."""
        ...

    def on_routes_changed(self, topic: str) -> None:
        """A topic has other queues or brokers now, whether it is one of its own or not."""
        ...

    async def persist_offsets(self) -> None:
        """Save how far it has come; called every few seconds. A producer does nothing."""
        ...

    def rebalance_soon(self) -> None:
        """Share out the queues anew as soon as possible. A producer does nothing."""
        ...
