"""The Go client against our name server and broker; with DOWNRANGE_ORACLE=1 against Apache's."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.client_cluster import ClientCluster, running_cluster

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed"),
]

SOURCES = Path(__file__).resolve().parent / "go"
BUILD_SECONDS_MAX = 480.0
PROGRAM_SECONDS_MAX = 240.0


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
    built = tmp_path_factory.mktemp("go") / "scenarios"
    done = subprocess.run(
        ["go", "build", "-o", str(built), "."],
        cwd=SOURCES,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return built


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientCluster]:
    with running_cluster(tmp_path_factory.mktemp("clients")) as running:
        yield running


@pytest.mark.parametrize("scenario", EXPECTED)
def test_a_go_client_observes_what_it_should(
    program: Path, cluster: ClientCluster, tmp_path: Path, scenario: str
) -> None:
    done = subprocess.run(
        [str(program), scenario, cluster.name_server, f"go-{scenario}"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},  # offsets of broadcasting are kept there
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == EXPECTED[scenario]
