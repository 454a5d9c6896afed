"""A name server as the pages show it. RocketMQ has no metrics of its own: the names are ours."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from downrange.monitoring.exposition import Family
from downrange.nameserver.view import NameServerView


@dataclass(frozen=True, slots=True)
class ObservedNameServer:
    """Looks at a name server at each question; without a view it does not serve."""

    view: Callable[[], NameServerView | None]

    def health(self) -> Iterable[str]:
        """It answers, so it is well."""
        return ()

    def readiness(self) -> Iterable[str]:
        """It serves."""
        if self.view() is None:
            yield "name server: not serving"

    def families(self) -> Iterable[Family]:
        """What it knows."""
        view = self.view()
        if view is None:
            return
        brokers = Family("downrange_nameserver_brokers", "gauge", "Brokers that are registered")
        for cluster, count in view.brokers_by_cluster.items():
            brokers.add(count, cluster=cluster)
        topics = Family("downrange_nameserver_topics", "gauge", "Topics that have a route")
        topics.add(view.topic_count)
        connections = Family("downrange_nameserver_connections", "gauge", "Open connections")
        connections.add(view.connection_count)
        yield from (brokers, topics, connections)
