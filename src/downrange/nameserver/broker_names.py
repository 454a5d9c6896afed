"""Brokers as they register, and what the table keeps of those that share a name."""

from dataclasses import dataclass, field

from downrange.model.topics import MASTER_ID
from downrange.nameserver.live_brokers import BrokerAddress
from downrange.protocol.bodies.route import BrokerData


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """A broker as the header of its registration describes it.

    `acting_master` is None for brokers before 5.0, which know nothing of acting masters.
    """

    cluster: str
    name: str
    broker_id: int
    address: str
    ha_address: str
    zone: str | None = None
    acting_master: bool | None = None
    timeout_ms: int | None = None

    @property
    def where(self) -> BrokerAddress:
        """The process."""
        return BrokerAddress(self.cluster, self.address)


@dataclass(frozen=True, slots=True, kw_only=True)
class MinBrokerIdNotice:
    """The lowest id of a broker name has changed, and who should hear of it."""

    min_broker_id: int
    min_address: str
    offline_address: str | None
    ha_address: str | None
    recipients: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """What a broker learns from its registration: its master, if it is a slave of a live one."""

    master_address: str | None = None
    ha_address: str | None = None
    notice: MinBrokerIdNotice | None = None


@dataclass(slots=True)
class BrokerName:
    """The brokers that share a name: a master, its slaves, or both."""

    cluster: str
    addresses: dict[int, str] = field(default_factory=dict)
    zone: str | None = None
    has_acting_master: bool = False

    @property
    def min_id(self) -> int:
        """The lowest id, which is the master's if there is one."""
        return min(self.addresses, default=MASTER_ID)

    def data(self, name: str) -> BrokerData:
        """The form in which clients see it."""
        return BrokerData(
            cluster=self.cluster,
            broker_name=name,
            broker_addrs=dict(sorted(self.addresses.items())),
            zone_name=self.zone,
            enable_acting_master=self.has_acting_master,
        )

    def notice(
        self, *, offline_address: str | None = None, ha_address: str | None = None
    ) -> MinBrokerIdNotice:
        """What to tell whom now that the lowest id has changed."""
        min_id = self.min_id
        # Who has just come as the new lowest knows it already, unless it is alone.
        is_min_told = offline_address is not None or len(self.addresses) == 1
        return MinBrokerIdNotice(
            min_broker_id=min_id,
            min_address=self.addresses[min_id],
            offline_address=offline_address,
            ha_address=ha_address,
            recipients=tuple(
                address
                for broker_id, address in sorted(self.addresses.items())
                if is_min_told or broker_id != min_id
            ),
        )
