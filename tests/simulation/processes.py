"""Seeds in a process of their own, whose hashes do not depend on the caller's."""

import subprocess
import sys

from simulation.runner import ROOT


def simulate(*arguments: str) -> str:
    """What the simulation printed; a failing seed fails the test, with its story."""
    done = subprocess.run(
        [sys.executable, "-m", "simulation", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-3_000:]
    return done.stdout
