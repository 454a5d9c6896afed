"""Runs seeds of an engine one after the other, and says how to repeat those that fail.

    python -m simulation power --seeds 0..50
    python -m simulation cluster --seeds 17 --faults 0,2 --story

With --resume the seeds that passed are kept below `build/simulation`, by engine and commit, and a
run that was interrupted goes on where it stopped.
"""

import argparse
import asyncio
import gc
import json
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from simulation.cluster_run import ClusterRun
from simulation.hostile_peer import HostilePeer
from simulation.power_cuts import Rounds
from simulation.trace import Trace

from downrange.testing import virtual_time

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "build" / "simulation"
HASH_SEED = "0"  # the order of sets must not differ from run to run


class Run(Protocol):
    """One seed of an engine."""

    counts: Counter[str]
    trace: Trace

    async def run(self) -> None:
        """Raises if something is wrong."""
        ...


ENGINES: dict[str, Callable[[int], Run]] = {
    "power": Rounds,
    "cluster": ClusterRun,
    "hostile": HostilePeer,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a seed."""

    seed: int
    error: str
    story: str
    digest: str
    counts: Counter[str]
    cpu_s: float


def run_seed(engine: str, seed: int, kept: Sequence[int] | None = None) -> Outcome:
    """One seed, from the start to its end or its failure; `kept` names the faults that strike."""
    begin_s = time.process_time()
    run = ENGINES[engine](seed) if kept is None else ClusterRun(seed, kept)
    error = ""
    try:
        with asyncio.Runner(loop_factory=virtual_time.VirtualTimeLoop) as runner:
            runner.run(run.run())
    except Exception as caught:  # noqa: BLE001 - whatever it is, the seed has failed
        error = f"{type(caught).__name__}: {caught}"
    cpu_s = time.process_time() - begin_s
    return Outcome(seed, error, run.trace.story(), run.trace.digest, run.counts, cpu_s)


def shrink(seed: int, error: str) -> tuple[list[int], Outcome | None]:
    """The faults of a seed that it needs to fail in the same way, and that failure.

    Takes one fault away at a time; two that only fail together are both kept.
    """
    kept = ClusterRun(seed).kept
    smallest = None
    for index in list(kept):
        fewer = [other for other in kept if other != index]
        outcome = run_seed("cluster", seed, fewer)
        if outcome.error and kind_of(outcome.error) == kind_of(error):
            kept, smallest = fewer, outcome
    return kept, smallest


def kind_of(error: str) -> str:
    """What failed, without what it failed on."""
    return error.partition("\n")[0].rpartition(": ")[0].partition(":")[2]


def replay_command(engine: str, seed: int, kept: Sequence[int] | None = None) -> str:
    """What to type to see the same failure again."""
    faults = "" if kept is None else f" --faults {','.join(map(str, kept)) or 'none'}"
    return (
        f"git checkout {commit()} && PYTHONPATH=tests .venv/bin/python -m simulation "
        f"{engine} --seeds {seed}{faults} --story"
    )


def commit() -> str:
    """The commit that is checked out; + if there are changes on top of it."""
    git = ["git", "-C", str(ROOT)]
    name = subprocess.run(
        [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    changes = subprocess.run(
        [*git, "status", "--porcelain", "--untracked-files=no"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return (name or "unknown") + ("+" if changes else "")


def seeds_of(text: str) -> range:
    """`7`, or `0..50`, which does not contain 50."""
    first, _, end = text.partition("..")
    return range(int(first), int(end) if end else int(first) + 1)


class Results:
    """Seeds that passed and what they counted; in a file, if there is one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.passed: set[int] = set()
        self.counts: Counter[str] = Counter()
        if self._path is not None and self._path.exists():
            kept = json.loads(self._path.read_text(encoding="utf-8"))
            self.passed, self.counts = set(kept["passed"]), Counter(kept["counts"])

    def add(self, outcome: Outcome) -> None:
        """Take note of a seed that passed."""
        self.passed.add(outcome.seed)
        self.counts += outcome.counts

    def save(self) -> None:
        """Keep what was run so far."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        content = {"passed": sorted(self.passed), "counts": dict(sorted(self.counts.items()))}
        self._path.write_text(json.dumps(content), encoding="utf-8")


def run_all(
    engine: str, seeds: range, results: Results, kept: Sequence[int] | None = None
) -> Iterator[Outcome]:
    """Run the seeds that have not passed yet."""
    for number, seed in enumerate(seeds):
        if seed in results.passed:
            continue
        outcome = run_seed(engine, seed, kept)
        if not outcome.error:
            results.add(outcome)
        if number % 50 == 49:
            results.save()
            gc.collect()
        yield outcome
    results.save()


def report(engine: str, outcome: Outcome, kept: Sequence[int] | None) -> None:
    """Print a failure: its story with as few faults as it needs, and how to repeat it."""
    if engine == "cluster" and kept is None:
        kept, smallest = shrink(outcome.seed, outcome.error)
        outcome = smallest or outcome
    print(outcome.story)
    print(f"{engine} seed {outcome.seed} FAILED: {outcome.error}")
    print(f"repeat it with: {replay_command(engine, outcome.seed, kept)}", flush=True)


def faults_of(text: str) -> list[int]:
    """`0,2`, or `none`."""
    return [] if text == "none" else [int(part) for part in text.split(",")]


def main() -> int:
    """The command line; 1 if a seed failed. What the servers log is left out meanwhile."""
    logger = logging.getLogger("downrange")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        return _main()
    finally:
        logger.setLevel(level)


def _main() -> int:
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        environment = {**os.environ, "PYTHONHASHSEED": HASH_SEED}
        os.execve(sys.executable, [sys.executable, "-m", "simulation", *sys.argv[1:]], environment)
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("engine", choices=sorted(ENGINES))
    parser.add_argument("--seeds", type=seeds_of, required=True, help="7, or 0..50")
    parser.add_argument("--faults", type=faults_of, help="strike with these faults only: 0,2")
    parser.add_argument("--resume", action="store_true", help="leave out what passed before")
    parser.add_argument("--story", action="store_true", help="print the trace of every seed")
    parser.add_argument("--digests", action="store_true", help="print a digest of every trace")
    options = parser.parse_args()
    name = commit()
    # Seeds that passed with changes that are not committed say nothing about the next ones.
    may_resume = options.resume and not name.endswith("+")
    results = Results(RESULTS / f"{options.engine}-{name}.json" if may_resume else None)
    failed = 0
    begin_s = time.process_time()
    for outcome in run_all(options.engine, options.seeds, results, options.faults):
        if options.digests:
            print(f"seed {outcome.seed}: {outcome.digest}")
        if options.story:
            print(outcome.story)
        if outcome.error:
            failed += 1
            report(options.engine, outcome, options.faults)
    counts = ", ".join(f"{value} {key}" for key, value in sorted(results.counts.items()))
    print(
        f"{options.engine}: {len(results.passed)} seeds passed, {failed} failed at {name} on "
        f"{datetime.now(UTC):%Y-%m-%d}, {time.process_time() - begin_s:.1f} s CPU; {counts}"
    )
    return 1 if failed else 0
