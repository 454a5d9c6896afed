"""What keeps a server from its work: small checks, each with a reason or nothing.

Ready means: a client that is sent here now is served. Healthy means: a restart would not help. So
everything that passes by itself, or that an operator has to repair first, is a matter of readiness
only.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from http import HTTPStatus

import msgspec

from downrange.broker.readiness import Check
from downrange.monitoring.http_request import Request
from downrange.monitoring.http_server import Page


class Problem(msgspec.Struct, frozen=True):
    """A check that failed."""

    server: str
    check: str
    reason: str


class _Verdict(msgspec.Struct, frozen=True):
    """What a probe gets that asks for JSON."""

    status: str
    problems: list[Problem]


class Phase(Enum):
    """Where a process stands between its start and its end."""

    STARTING = "starting: a broker reads its store first, which can take minutes after a crash"
    SERVING = "serving"
    STOPPING = "shutting down"


class Lifecycle:
    """The phase of a process, set by its owner."""

    def __init__(self, phase: Phase = Phase.STARTING) -> None:
        self.phase = phase

    def problems(self) -> Iterator[Problem]:
        """Why nobody should be sent here yet, or any more."""
        if self.phase is not Phase.SERVING:
            yield Problem("process", "phase", self.phase.value)


def problems_of(server: str, checks: Iterable[Check]) -> Iterator[Problem]:
    """The checks of a server that fail."""
    for check in checks:
        reason = check.reason()
        if reason is not None:
            yield Problem(server, check.name, reason)


def verdict(request: Request, problems: Iterable[Problem]) -> Page:
    """The answer to a probe: 200, or 503 with one reason per line; JSON for those who accept it."""
    failed = list(problems)
    status = HTTPStatus.SERVICE_UNAVAILABLE if failed else HTTPStatus.OK
    if request.accepts_json:
        body = msgspec.json.encode(_Verdict("failed" if failed else "ok", failed)) + b"\n"
        return Page(body, status, "application/json")
    lines = [f"{one.server}: {one.reason}" for one in failed] or ["ok"]
    return Page("".join(f"{line}\n" for line in lines).encode(), status)
