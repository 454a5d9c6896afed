"""Programs inside of others: under uvicorn, under gunicorn and its forks, in a notebook."""

import contextlib
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from processes import Server, free_port

pytestmark = pytest.mark.interop
PROGRAMS = Path(__file__).resolve().parent / "programs"
SECONDS_MAX = 120.0
REQUEST_SECONDS_MAX = 30.0
T = TypeVar("T")


@contextlib.contextmanager
def _hosted(python: Path, folder: Path, *command: str, **environment: str) -> Iterator[Server]:
    output = folder / "host.log"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            [python, "-m", *command],
            cwd=PROGRAMS,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    with Server(command[0], "", process, output) as server:
        yield server


def _ask(port: int, body: bytes | None = None) -> object:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", data=body)
    with urllib.request.urlopen(request, timeout=REQUEST_SECONDS_MAX) as answer:
        return json.loads(answer.read())


def _soon(attempt: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + SECONDS_MAX
    while (found := attempt()) is None:
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.1)
    return found


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_an_application_under_uvicorn(
    python: Path, name_server: str, tmp_path: Path, loop: str
) -> None:
    port = free_port()
    bodies = [f"{loop} {number}" for number in range(20)]
    command = ["uvicorn", "asgi_app:app", "--port", str(port), "--loop", loop, "--lifespan", "on"]
    with _hosted(python, tmp_path, *command, NAME_SERVER=name_server) as server:
        server.wait_for("Uvicorn running on")
        for body in bodies:
            assert _ask(port, body.encode())

        def all_here() -> bool | None:
            got = _ask(port)
            assert isinstance(got, list)
            return set(bodies) <= set(got) or None

        assert _soon(all_here)
        server.stop()
    assert "Application shutdown complete" in server.log
    assert "Traceback" not in server.log


@pytest.mark.parametrize("preload", [True, False], ids=["preload", "each loads"])
@pytest.mark.parametrize("worker", ["sync", "gthread"])
def test_an_application_under_gunicorn(
    python: Path, name_server: str, tmp_path: Path, worker: str, preload: bool
) -> None:
    port = free_port()
    topic = f"wsgi-{worker}-{preload}"
    command = ["gunicorn", "wsgi_app:app", "-b", f"127.0.0.1:{port}", "-w", "2", "-k", worker]
    command += ["--preload"] if preload else []
    sent: dict[int, int] = {}
    with _hosted(python, tmp_path, *command, NAME_SERVER=name_server, TOPIC=topic) as server:
        server.wait_for("Booting worker")

        def both_have_sent() -> bool | None:
            answer = _ask(port, b"send")
            assert isinstance(answer, dict)
            assert answer["sent"] == "SEND_OK"
            assert (answer["pid"] != answer["loaded_by"]) == preload
            if preload:
                assert "which has forked; make and start a new one" in answer["producer"], answer
            else:
                assert answer["producer"] == "SEND_OK"
            sent[answer["pid"]] = sent.get(answer["pid"], 0) + 1
            return len(sent) == 2 or None

        _soon(both_have_sent)
        expected = {f"sent by {pid}" for pid in sent} | {"loaded"}
        got: dict[int, set[str]] = {}

        def everything_came() -> bool | None:
            answer = _ask(port)
            assert isinstance(answer, dict)
            got[answer["pid"]] = set(answer["got"])
            return expected <= set().union(*got.values()) or None

        _soon(everything_came)
        server.stop()
    assert "Traceback" not in server.log


def test_cells_of_a_notebook(python: Path, name_server: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [python, PROGRAMS / "notebook.py", name_server],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        cwd=tmp_path,
    )
    both = "['from await', 'from sync']"
    expected = ["kernel", "True", "SEND_OK", "SEND_OK", both, both, "closed"]
    assert done.stdout.splitlines() == expected, done.stdout + done.stderr
