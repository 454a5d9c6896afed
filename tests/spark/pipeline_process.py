"""Pipelines as processes, as a user runs them, and killed as a machine would."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = int(os.environ.get("DOWNRANGE_KILL_ROUNDS", "20"))
RUN_S_MAX = 900.0
ROWS = 500 * ROUNDS  # some five batches of a hundred between kills
SPARK = """
[spark]
master = "local[2]"
[spark.conf]
"spark.ui.enabled" = "false"
"spark.driver.bindAddress" = "127.0.0.1"
"spark.driver.host" = "127.0.0.1"
"spark.sql.shuffle.partitions" = "2"
"""


class Driver:
    """A run of a pipeline as a process group: driver, JVM and Python workers."""

    def __init__(self, file: Path, log: Path, *options: str) -> None:
        self._out = log.open("ab")
        self._log = log
        self.process = subprocess.Popen(
            [sys.executable, "-m", "downrange.app.cli", "pipeline", "run", str(file), *options],
            stdout=self._out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait_for_batches(self, seconds_max: float = RUN_S_MAX) -> None:
        """Until it has told of a batch, or has ended."""
        begin = self._log.read_text().count(" batch=")
        deadline_s = time.monotonic() + seconds_max
        while self.process.poll() is None and self._log.read_text().count(" batch=") == begin:
            assert time.monotonic() < deadline_s, self._log.read_text()[-3000:]
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL for all of them."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)
        self._out.close()

    def end(self) -> int:
        """Wait for its own end."""
        try:
            return self.process.wait(RUN_S_MAX)
        finally:
            if self.process.poll() is None:
                self.kill()
            self._out.close()


def run_with_kills(file: Path, folder: Path, seed: int, rounds: int = ROUNDS) -> None:
    """Kill the driver some time after its first batch, many times; then let it end.

    Fails if the pipeline was done too early for half of the kills.
    """
    chance = random.Random(seed)
    log = folder / "driver.log"
    log.touch()
    kills = 0
    for round_ in range(rounds):
        driver = Driver(file, log, "--once")
        driver.wait_for_batches()
        time.sleep(chance.uniform(0.0, 2.0))
        ended = driver.process.poll()
        kills += ended is None
        driver.kill() if ended is None else driver.end()
        assert ended in {None, 0}, log.read_text()[-3000:]
        print(f"seed {seed} round {round_}: {'killed' if ended is None else 'ended'}")  # noqa: T201
    assert Driver(file, log, "--once").end() == 0, log.read_text()[-3000:]
    assert kills >= rounds // 2, f"only {kills} kills: the topic has too few messages for more"
