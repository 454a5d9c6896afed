"""An environment as a user has it: the built wheel beside what it is used with; and servers."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import start_broker, start_name_server

ROOT = Path(__file__).resolve().parents[2]
INSTALL_SECONDS_MAX = 900.0
# What programs are written in and run by. Newest on purpose: a user gets those.
BESIDE = ("mypy", "pyright[nodejs]", "uvicorn", "gunicorn", "ipykernel")


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has never seen these sources."""
    folder = tmp_path_factory.mktemp("outside")
    _run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT)
    (wheel,) = folder.glob("downrange-*.whl")
    _run(sys.executable, "-m", "venv", folder / "venv")
    interpreter = folder / "venv" / "bin" / "python"
    _run(interpreter, "-m", "pip", "install", "-q", wheel, *BESIDE)
    return interpreter


@pytest.fixture(scope="session")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("servers")
    with start_name_server(folder / "ns") as server:
        settings = {"mappedFileSizeCommitLog": str(4 << 20)}
        with start_broker(folder / "broker", server.address, settings):
            yield server.address


def _run(*command: str | Path) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
