"""Which clusters and brokers there are, and at which addresses they say they answer."""

from collections.abc import Iterator
from dataclasses import dataclass

from downrange.admin.errors import NothingThereError
from downrange.admin.requests import Requests, read_body
from downrange.model.names import reply_topic
from downrange.model.topics import MASTER_ID
from downrange.protocol.bodies.route import ClusterInfo
from downrange.protocol.request_codes import RequestCode


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """One broker as the name servers know it; the master of a name has the id 0."""

    cluster: str
    name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        """Whether it takes messages."""
        return self.broker_id == MASTER_ID


@dataclass(frozen=True, slots=True)
class Layout:
    """All brokers, in the order of cluster, name and id."""

    brokers: tuple[BrokerAddress, ...]

    @property
    def clusters(self) -> tuple[str, ...]:
        """The names of the clusters."""
        return tuple(dict.fromkeys(broker.cluster for broker in self.brokers))

    @property
    def own_topics(self) -> frozenset[str]:
        """Topics that brokers have by themselves, named after their cluster and them."""
        names = {broker.name for broker in self.brokers}
        return frozenset(names.union(self.clusters, map(reply_topic, self.clusters)))

    def masters(self, cluster: str | None = None) -> tuple[BrokerAddress, ...]:
        """The masters of a cluster, or of all."""
        return tuple(broker for broker in self._of(cluster) if broker.is_master)

    def chosen(self, cluster: str | None, name: str | None) -> tuple[BrokerAddress, ...]:
        """The masters that a user means: of one name, of one cluster, or all.

        `NothingThereError` says what there is instead.
        """
        found = self.masters(cluster)
        if name is not None:
            found = tuple(broker for broker in found if broker.name == name)
        if not found:
            raise NothingThereError(self._missing(cluster, name))
        return found

    def master(self, name: str) -> BrokerAddress:
        """The master of a name."""
        return self.chosen(None, name)[0]

    def _of(self, cluster: str | None) -> Iterator[BrokerAddress]:
        return (broker for broker in self.brokers if cluster in {None, broker.cluster})

    def _missing(self, cluster: str | None, name: str | None) -> str:
        if not self.brokers:
            return (
                "no broker is registered with the name servers; start one with "
                "`downrange broker -n NAME_SERVER`"
            )
        if cluster is not None and cluster not in self.clusters:
            return f"there is no cluster {cluster!r}, only {', '.join(self.clusters)}"
        names = ", ".join(dict.fromkeys(broker.name for broker in self._of(cluster)))
        if name is not None:
            return f"there is no master of broker {name!r}; known are {names}"
        return f"none of the brokers {names} has a living master"


async def read_layout(requests: Requests) -> Layout:
    """Ask a name server."""
    answer = await requests.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
    info = read_body(ClusterInfo, answer)
    cluster_of = {
        name: cluster for cluster, names in info.cluster_addr_table.items() for name in names
    }
    found = [
        BrokerAddress(cluster_of.get(name, data.cluster or ""), name, broker_id, address)
        for name, data in info.broker_addr_table.items()
        for broker_id, address in data.broker_addrs.items()
    ]
    return Layout(tuple(sorted(found, key=lambda one: (one.cluster, one.name, one.broker_id))))
