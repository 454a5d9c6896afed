"""The pages of a server: `/healthz`, `/readyz`, `/metrics`."""

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol

from downrange.monitoring.exposition import CONTENT_TYPE, Family, render
from downrange.monitoring.http_server import Page
from downrange.monitoring.process_metrics import process_families

HEALTH: Final = "/healthz"
READY: Final = "/readyz"
METRICS: Final = "/metrics"


class Observed(Protocol):
    """A server that is looked at. Problems are one line each, none if all is well."""

    def health(self) -> Iterable[str]:
        """Why it should be started anew."""
        ...

    def readiness(self) -> Iterable[str]:
        """Why it should get no work at the moment."""
        ...

    def families(self) -> Iterable[Family]:
        """What it counts."""
        ...


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages about all servers of a process."""

    observed: tuple[Observed, ...]

    def by_path(self) -> dict[str, Callable[[], Page]]:
        """For an `HttpServer`."""
        return {HEALTH: self._health, READY: self._readiness, METRICS: self._metrics}

    def _health(self) -> Page:
        return _verdict(problem for one in self.observed for problem in one.health())

    def _readiness(self) -> Page:
        # Who is not healthy is not ready either.
        return _verdict(
            problem for one in self.observed for problem in (*one.health(), *one.readiness())
        )

    def _metrics(self) -> Page:
        found = [family for one in self.observed for family in one.families()]
        return Page(render([*found, *process_families(_version())]), content_type=CONTENT_TYPE)


def _verdict(problems: Iterable[str]) -> Page:
    found = list(problems)
    if found:
        text = "".join(f"{line}\n" for line in found)
        return Page(text.encode(), HTTPStatus.SERVICE_UNAVAILABLE)
    return Page(b"ok\n")


def _version() -> str:
    # Loaded at the first question: it takes longer than a name server's whole start.
    metadata = importlib.import_module("importlib.metadata")
    return str(metadata.version("downrange"))
