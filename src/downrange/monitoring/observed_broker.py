"""A broker as the pages show it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from downrange.broker.view import BrokerView
from downrange.monitoring.broker_metrics import broker_families
from downrange.monitoring.exposition import Family
from downrange.runtime.clock import Clock
from downrange.runtime.disk import Disk


@dataclass(frozen=True, slots=True)
class ObservedBroker:
    """Looks at a broker at each question; without a view it has not started, or has stopped."""

    name: str
    view: Callable[[], BrokerView | None]
    disk: Disk
    clock: Clock

    def health(self) -> Iterable[str]:
        """A log that could not be synced stays so until the process is started anew."""
        view = self.view()
        if view is not None and view.store.flush_failure is not None:
            yield f"{self.name}: the log could not be synced: {view.store.flush_failure}"

    def readiness(self) -> Iterable[str]:
        """It serves, takes messages and can be found."""
        view = self.view()
        if view is None:
            yield f"{self.name}: not serving"
            return
        if view.store.refusal is not None:
            yield f"{self.name}: takes no messages: {view.store.refusal.remark}"
        if not view.is_known:
            yield f"{self.name}: no name server knows it"

    def families(self) -> Iterable[Family]:
        """What it counts."""
        view = self.view()
        return () if view is None else broker_families(view, self.disk, self.clock.wall_ms())
