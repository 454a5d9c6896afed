"""The Go client against our name server and broker; with DOWNRANGE_ORACLE=1 against Apache's."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.client_cluster import ClientCluster, running_cluster
from interop.client_programs import build_go_program, observe_go

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed"),
]


def _row(prefix: str) -> str:
    return " ".join(f"{prefix}{number}" for number in range(10))


EXPECTED: dict[str, dict[str, str]] = {
    "produce": {"sync": "0", "async": "true", "batch": "0", "consumed": "81", "keysKept": "true"},
    "push": {
        "round 1": f"{_row('round-1-')} {_row('round-1-later-')}",
        "round 2": f"{_row('round-2-')} {_row('round-2-later-')}",
    },
    "orderly": {
        f"key {key}": " ".join(str(number) for number in range(10 + key, 50, 4)) for key in range(4)
    },
    "transaction": {
        "status rollback": "0",
        "status commit": "0",
        "status unknown-rollback": "0",
        "status unknown-commit": "0",
        "consumed": "commit unknown-commit",
        "checked": "unknown-commit unknown-rollback",
    },
    "retry": {"times": "0 1 2"},
    "broadcast": {"member 0": "20", "member 1": "20"},
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our Go program; the first build fetches the client by its module name."""
    return build_go_program(tmp_path_factory.mktemp("go"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientCluster]:
    with running_cluster(tmp_path_factory.mktemp("clients")) as running:
        yield running


@pytest.mark.parametrize("scenario", EXPECTED)
def test_a_go_client_observes_what_it_should(
    program: Path, cluster: ClientCluster, tmp_path: Path, scenario: str
) -> None:
    seen = observe_go(program, cluster.name_server, scenario, f"go-{scenario}", tmp_path)
    assert seen == EXPECTED[scenario]
