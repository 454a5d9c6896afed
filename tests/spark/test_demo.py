"""The demonstration as `make demo` runs it, with fewer events."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 540.0


def run_demo(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "examples.demo", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


@pytest.mark.slow
def test_the_demonstration_ends_well_and_leaves_its_results(tmp_path: Path) -> None:
    done = run_demo(["--events", "4000", "--out", str(tmp_path)])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "2 broken ones in the topic broken-orders" in done.stdout
    assert (tmp_path / "revenue.svg").read_text(encoding="utf-8").startswith("<svg ")
    assert list((tmp_path / "revenue.parquet").glob("*.parquet"))


def test_without_java_the_demonstration_says_what_to_install(tmp_path: Path) -> None:
    done = run_demo(["--out", str(tmp_path)], JAVA_HOME=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith("demo: ")
    assert "Install" in done.stderr
    assert "Traceback" not in done.stderr


def test_too_few_events_are_refused() -> None:
    done = run_demo(["--events", "1"])
    assert done.returncode == 2
    assert "--events is 1, but must be at least 100" in done.stderr
