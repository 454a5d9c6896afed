"""A name server as the pages show it. RocketMQ has no metrics of its own: the names are ours."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from downrange.monitoring.connection_metrics import add_connection_families
from downrange.monitoring.exposition import Exposition, Steps
from downrange.monitoring.readiness import Problem
from downrange.nameserver.view import NameServerView

_NAME = "name server"


@dataclass(frozen=True, slots=True)
class ObservedNameServer:
    """Looks at a name server at each question; without a view it does not serve."""

    view: Callable[[], NameServerView | None]

    def health(self) -> Iterable[Problem]:
        """All of its state is rebuilt by the brokers: an event loop that answers is enough."""
        return ()

    def readiness(self) -> Iterable[Problem]:
        """Whether it serves; one that no broker has found yet is ready, or none would come."""
        if self.view() is None:
            yield Problem(_NAME, "serving", "not serving")

    def collect(self, page: Exposition) -> Steps:
        """Add what it knows."""
        view = self.view()
        if view is None:
            return
        section = page.section()
        brokers = section.gauge("downrange_nameserver_brokers", "Brokers that are registered")
        for cluster, count in view.brokers_by_cluster.items():
            brokers.add(count, cluster=cluster)
            yield
        topics = section.gauge("downrange_nameserver_topics", "Topics that have a route")
        topics.add(view.topic_count)
        connections = section.gauge("downrange_nameserver_connections", "Open connections")
        connections.add(view.connection_count)
        add_connection_families(page.section({"node_type": "nameserver"}), view.watch, view.intake)
        yield
