"""What all fault tests share: a place for many small files, and the verdicts in the summary."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.stores import the_seed

MEMORY_DISK = Path("/dev/shm")


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory in memory where the system has such a place, else where temporary files go."""
    parent = MEMORY_DISK if MEMORY_DISK.is_dir() else None
    path = Path(tempfile.mkdtemp(prefix="downrange-faults-", dir=parent))
    yield path
    shutil.rmtree(path)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line with seed and verdict for each fault test, and what it has counted."""
    for outcome in ("passed", "failed", "xfailed"):
        for report in terminalreporter.stats.get(outcome, ()):
            if isinstance(report, pytest.TestReport) and report.nodeid.startswith("tests/faults/"):
                terminalreporter.write_line(f"{report.nodeid}: seed={the_seed()} {outcome}")
                for name, value in report.user_properties:
                    terminalreporter.write_line(f"    {name}: {value}")
