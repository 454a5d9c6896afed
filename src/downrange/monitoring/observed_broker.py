"""A broker as the pages show it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from downrange.broker.readiness import health_checks, readiness_checks
from downrange.broker.view import BrokerView
from downrange.monitoring.broker_metrics import collect_broker
from downrange.monitoring.consumer_lag import StoreTimes
from downrange.monitoring.exposition import Exposition, Steps
from downrange.monitoring.readiness import Problem, problems_of
from downrange.runtime.clock import Clock
from downrange.runtime.disk import Disk


@dataclass(frozen=True, slots=True)
class ObservedBroker:
    """Looks at a broker at each question; without a view it has not started, or has stopped."""

    name: str
    view: Callable[[], BrokerView | None]
    disk: Disk
    clock: Clock
    _times: StoreTimes = field(default_factory=StoreTimes)

    def health(self) -> Iterable[Problem]:
        """Why it should be restarted."""
        view = self.view()
        return () if view is None else problems_of(self.name, health_checks(view))

    def readiness(self) -> Iterable[Problem]:
        """Why clients are not served."""
        view = self.view()
        if view is None:
            return (Problem(self.name, "serving", "not serving"),)
        return problems_of(self.name, readiness_checks(view))

    def collect(self, page: Exposition) -> Steps:
        """Add what it counts."""
        view = self.view()
        if view is not None:
            yield from collect_broker(page, view, self._times, self.disk, self.clock.wall_ms())
