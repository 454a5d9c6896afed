"""Every program in examples/, run against our own servers as processes."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import launch, start_broker, start_name_server

from downrange import sync

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("servers")
    with start_name_server(folder / "ns") as server:
        settings = {"mappedFileSizeCommitLog": str(1 << 20)}
        with start_broker(folder / "broker", server.address, settings):
            yield server.address


def output_of(example: str, name_server: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example), name_server],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


def test_send_and_consume(name_server: str) -> None:
    lines = output_of("send_and_consume.py", name_server)
    assert [line.split()[0] for line in lines[:5]] == ["sent"] * 5
    assert sorted(lines[5:]) == [f"got order {n} ['{n}']" for n in range(5)]


def test_retry_and_dead_letter(name_server: str) -> None:
    lines = output_of("retry_and_dead_letter.py", name_server)
    assert sorted(lines[:2]) == ["got hopeless try 1", "got try me twice try 1"]
    assert lines[2:] == ["got try me twice try 2", "dead hopeless"]


def test_in_order(name_server: str) -> None:
    lines = output_of("in_order.py", name_server)
    for order in "abc":
        steps = [line for line in lines if line.startswith(order)]
        assert steps == [f"{order} created", f"{order} paid", f"{order} shipped"]


def test_blocking(name_server: str) -> None:
    lines = output_of("blocking.py", name_server)
    assert sorted(lines) == [f"got parcel {n}" for n in range(3)]


def test_shop_app(name_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    with sync.connect(name_server) as mq:
        mq.send("shop-orders", b'{"number": 7, "price": 10}', tag="new")
    arguments = ["run", "shop_app:app", "-n", name_server]
    with launch("the app", arguments, "", tmp_path / "app.log") as server:
        server.wait_for("app runs, groups: billing (shop-orders), printing (shop-bills)")
        server.wait_for("order 7 with tag new")
        server.wait_for("bill 7 over 12.0")
        server.stop()
    assert server.process.returncode == 0, server.log


def test_every_example_has_a_test() -> None:
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in EXAMPLES.glob("*.py")} <= tests


def test_an_app_that_cannot_start_is_one_clear_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "downrange.app.cli", "run", "nothing:app"],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "cannot start: there is no module 'nothing'" in line
