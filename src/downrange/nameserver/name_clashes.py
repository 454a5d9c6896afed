"""Two brokers that claim the same name and id: who keeps it, and what is remembered of it.

Apache's name server lets the later registration replace the earlier one, so that two brokers of one
name take the route from each other every 30 seconds and clients see the messages of one or the
other. Here the broker that was there first keeps its place for as long as it is alive.
"""

from dataclasses import dataclass
from typing import Final

from downrange.nameserver.broker_names import BrokerFacts
from downrange.nameserver.live_brokers import LiveBroker, Peer

SILENCE_MS_MAX: Final = 75_000
"""A silent holder loses its place after RocketMQ's longest registration period (60 s) and some.

A machine that lost its power leaves a connection that looks open, and its broker may already run
elsewhere, so the two minutes until it expires would be too long.
"""
REMEMBERED_MS: Final = 2 * SILENCE_MS_MAX
REMEMBERED_MAX: Final = 1_000  # peers choose the names and addresses


@dataclass(frozen=True, slots=True)
class Clash:
    """A registration that was refused because another broker holds the name and id."""

    cluster: str
    name: str
    broker_id: int
    holder: str
    refused: str

    def __str__(self) -> str:
        return (
            f"broker name {self.name} with brokerId {self.broker_id} is already registered by the"
            f" live broker at {self.holder}, so {self.refused} is refused; give each broker its own"
            " brokerName (or brokerId for a slave), or stop one of the two"
        )


def may_replace(
    holder: LiveBroker, newcomer_state: int, peer: Peer, now_ms: int, *, is_member: bool
) -> bool:
    """Whether a registration from another address may take the name and id of `holder`.

    Yes if it is the same process with a new address (same connection), a later election
    (`newcomer_state`), a member of the same name that changes its role, or if the holder has been
    silent for too long. A holder whose connection was closed is not asked about at all.
    """
    is_silent = now_ms - holder.heard_ms > min(holder.timeout_ms, SILENCE_MS_MAX)
    is_elected = newcomer_state > holder.data_version.state_version
    return is_silent or is_elected or is_member or holder.peer is peer


class NameClashes:
    """The clashes of the last minutes; owned by the route table."""

    def __init__(self) -> None:
        self._seen_ms: dict[Clash, int] = {}

    def note(self, facts: BrokerFacts, holder: str, now_ms: int) -> tuple[Clash, bool]:
        """Remember a refusal; also returns whether it is the first one of this pair."""
        clash = Clash(facts.cluster, facts.name, facts.broker_id, holder, facts.address)
        is_new = clash not in self._seen_ms
        if is_new and len(self._seen_ms) >= REMEMBERED_MAX:
            del self._seen_ms[next(iter(self._seen_ms))]
        self._seen_ms[clash] = now_ms
        return clash, is_new

    def settled(self, address: str) -> None:
        """Forget the clashes of a broker that has left, or that was registered after all."""
        self._seen_ms = {
            clash: seen_ms
            for clash, seen_ms in self._seen_ms.items()
            if address not in {clash.holder, clash.refused}
        }

    def expire(self, now_ms: int) -> None:
        """Forget the refused brokers that have given up."""
        self._seen_ms = {
            clash: seen_ms
            for clash, seen_ms in self._seen_ms.items()
            if now_ms - seen_ms <= REMEMBERED_MS
        }

    def current(self) -> tuple[Clash, ...]:
        """The clashes that still go on."""
        return tuple(self._seen_ms)
