"""The pages of a server: `/healthz`, `/readyz`, `/metrics`."""

import importlib
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from downrange.monitoring.exposition import CONTENT_TYPE, Exposition, Steps
from downrange.monitoring.http_request import Request
from downrange.monitoring.http_server import Page, PageMaker
from downrange.monitoring.process_metrics import add_process_families
from downrange.monitoring.readiness import Lifecycle, Phase, Problem, verdict
from downrange.monitoring.shared_page import SharedPage

HEALTH: Final = "/healthz"
READY: Final = "/readyz"
METRICS: Final = "/metrics"


class Observed(Protocol):
    """A server that is looked at."""

    def health(self) -> Iterable[Problem]:
        """Why it should be restarted."""
        ...

    def readiness(self) -> Iterable[Problem]:
        """Why clients are not served at the moment."""
        ...

    def collect(self, page: Exposition) -> Steps:
        """Add what it counts, in steps; it may change or stop between two of them."""
        ...


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages about all servers of a process."""

    observed: tuple[Observed, ...]
    lifecycle: Lifecycle

    def by_path(self) -> dict[str, PageMaker]:
        """For an `HttpServer`."""
        return {
            HEALTH: _at_once(self.health),
            READY: _at_once(self.readiness),
            METRICS: SharedPage(self._metrics),
        }

    def health(self) -> list[Problem]:
        """Why the process should be restarted; empty if a restart would not help."""
        return [problem for one in self.observed for problem in one.health()]

    def readiness(self) -> list[Problem]:
        """Why clients are not served at the moment; empty if they are."""
        problems = [*self.health(), *self.lifecycle.problems()]
        if self.lifecycle.phase is Phase.SERVING:
            problems += [problem for one in self.observed for problem in one.readiness()]
        return problems

    def _metrics(self) -> Generator[None, None, Page]:
        page = Exposition()
        for one in self.observed:
            yield from one.collect(page)
        add_process_families(page, _version())
        return Page((yield from page.rendered()), content_type=CONTENT_TYPE)


def _at_once(find: Callable[[], Iterable[Problem]]) -> PageMaker:
    def make(request: Request, deliver: Callable[[Page], None]) -> None:
        deliver(verdict(request, find()))

    return make


def _version() -> str:
    # Loaded at the first question: it takes longer than a name server's whole start.
    metadata = importlib.import_module("importlib.metadata")
    return str(metadata.version("downrange"))
