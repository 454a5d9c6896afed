"""downrange's broker and the real Apache RocketMQ, one after the other under the same load.

usage: broker.py [--runs 3] [--seconds 5] [--warm 40] [--result FILE]

Both brokers stay up; each measure is taken of one and then of the other, in turns, so that a noisy
machine is noisy for both. Ratios are ours to theirs, taken within a run; the median of the runs
counts. Needs a JDK and Maven, and half an hour at most.
"""

import argparse
import io
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from contenders import (
    TOOL_WARM_LINES,
    Contender,
    apache_rocketmq,
    busy_rate,
    downrange,
    java_consumer_rates,
    java_tool_rates,
)
from load import Load, Measured, publish_to_consume, run_load
from machine import facts

LOADS = {
    "4 x 16 in flight, 128 B": Load(),
    "4 x 16 in flight, 128 B, binary headers": Load(binary=True),
    "4 x 16 in flight, 1 KiB": Load(body=1024),
    "64 x 1 in flight, 128 B": Load(connections=64, window=1),
    "1 x 1 in flight, 128 B": Load(connections=1, window=1),
    "4 x 4 batches of 16, 128 B": Load(window=4, batch=16),
}
BACKLOG = 3_000_000  # more than is read while the tool's code is compiled and its mean fills
PUBLISH_RATE = 200.0
JAVA_THREADS = "64"
CONSUMER_LINES = 20


@dataclass(frozen=True, slots=True)
class Goal:
    """A ratio of ours to theirs that is to be reached."""

    ratio: float
    at_most: bool = False

    def verdict(self, ratio: float) -> str:
        """Whether it is reached, in words."""
        reached = ratio <= self.ratio if self.at_most else ratio >= self.ratio
        sign = "<=" if self.at_most else ">="
        return f"{sign} {self.ratio:g}: {'yes' if reached else 'NO'}"


@dataclass(slots=True)
class Row:
    """One measure: pairs of ours and theirs, one of each run."""

    name: str
    unit: str
    goal: Goal | None = None
    pairs: list[tuple[float, float]] = field(default_factory=list)

    def text(self) -> str:
        """A line of the table."""
        ours = statistics.median(pair[0] for pair in self.pairs)
        theirs = statistics.median(pair[1] for pair in self.pairs)
        ratio = statistics.median(one / max(other, 1e-9) for one, other in self.pairs)
        goal = "" if self.goal is None else self.goal.verdict(ratio)
        return (
            f"| {self.name} | {ours:,.2f} {self.unit} | {theirs:,.2f} {self.unit} "
            f"| {ratio:.2f} | {goal} |"
        )


class Comparison:
    """Collects what is measured of two contenders."""

    def __init__(self, ours: Contender, theirs: Contender, folder: Path) -> None:
        self._pair = (ours, theirs)
        self._folder = folder
        self._rows: dict[str, Row] = {}

    def take(
        self,
        name: str,
        unit: str,
        measure: Callable[[Contender], float],
        goal: Goal | None = None,
    ) -> None:
        """One number of each."""
        self.add(name, unit, [measure(contender) for contender in self._pair], goal)

    def add(self, name: str, unit: str, values: list[float], goal: Goal | None = None) -> None:
        """Numbers that are known already."""
        row = self._rows.setdefault(name, Row(name, unit, goal))
        row.pairs.append((values[0], values[1]))
        print(f"  {name}: {values[0]:,.2f} / {values[1]:,.2f} {unit}", flush=True)

    def loads(self, seconds: float) -> None:
        """All loads of the load program, of each contender in turn."""
        for name, load in LOADS.items():
            measured: list[Measured] = []
            for contender in self._pair:
                topic = f"Load{load.body}x{load.batch}"
                measured.append(
                    run_load(contender.address, topic, load, seconds, pid=contender.pid)
                )
            self.add(name, "msg/s", [one.rate for one in measured], _RATE_GOALS.get(name))
            cpu = [one.broker_cpu_us for one in measured]
            self.add(f"{name}: broker CPU", "us/msg", cpu, _CPU_GOALS.get(name))
            self.add(f"{name}: p50", "ms", [one.p50_ms for one in measured], _P50_GOALS.get(name))
            self.add(f"{name}: p99", "ms", [one.p99_ms for one in measured])

    def latency(self, seconds: float) -> None:
        """From a send to a waiting consumer."""
        times = [
            publish_to_consume(one.address, "Latency", rate=PUBLISH_RATE, seconds=seconds)
            for one in self._pair
        ]
        self.add("publish to consume at 200/s: p50", "ms", [time_[0] for time_ in times])
        goal = Goal(1.0, at_most=True)
        self.add("publish to consume at 200/s: p99", "ms", [time_[1] for time_ in times], goal)

    def java_producer(self, label: str, goal: Goal, seconds: float) -> None:
        """RocketMQ's benchmark Producer: 64 threads, each waits for its answer."""

        def rate(contender: Contender) -> float:
            arguments = ["-t", "JavaBenchmark", "-w", JAVA_THREADS, "-s", "128"]
            rates = java_tool_rates(
                self._folder,
                contender.name_server,
                "Producer",
                arguments,
                TOOL_WARM_LINES + round(seconds),
            )
            return statistics.median(rates[TOOL_WARM_LINES:])

        self.take(label, "msg/s", rate, goal)

    def java_consumer(self, run: int, lines: int) -> None:
        """RocketMQ's benchmark Consumer on a backlog."""

        def rate(contender: Contender) -> float:
            group = f"consumers-{run}"
            return busy_rate(java_consumer_rates(self._folder, contender.name_server, group, lines))

        self.take("Java consumer on a backlog", "msg/s", rate, Goal(1.0))

    def fill(self) -> None:
        """A backlog of the same size for both."""
        load = Load(window=4, batch=32)
        for contender in self._pair:
            left = BACKLOG
            while left > 0:
                left -= run_load(
                    contender.address, "Backlog", load, 1.0, pid=contender.pid, warm_s=0.01
                ).messages

    def table(self) -> str:
        """All rows."""
        head = (
            "| measure | downrange | Apache RocketMQ | ratio | to reach |\n|---|---|---|---|---|\n"
        )
        return head + "\n".join(row.text() for row in self._rows.values()) + "\n"


_RATE_GOALS = {
    "4 x 16 in flight, 128 B": Goal(1.3),
    "4 x 16 in flight, 1 KiB": Goal(1.3),
    "64 x 1 in flight, 128 B": Goal(1.5),
    "4 x 4 batches of 16, 128 B": Goal(0.8),
}
_CPU_GOALS = {"4 x 16 in flight, 128 B": Goal(0.6, at_most=True)}
_P50_GOALS = {"1 x 1 in flight, 128 B": Goal(0.8, at_most=True)}


def profile_table(folder: Path, seconds: float) -> str:
    """Where the time of our broker goes under the first load, by function."""
    statistics_file = folder / "profile"
    with downrange(folder / "profiled") as contender:
        name_server = contender.name_server
        port = contender.address.rpartition(":")[2]
        contender.broker.stop()
        process = subprocess.Popen(
            [
                sys.executable, "-m", "cProfile", "-o", str(statistics_file),
                "-m", "downrange.app.cli", "broker", "-n", name_server, "--port", port,
                "-c", str(folder / "profiled" / "broker" / "broker.conf"),
                "--store", str(folder / "profiled" / "store"),
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            _await_answer(contender.address)
            measured = run_load(contender.address, "Load", Load(), seconds, pid=process.pid)
        finally:
            process.terminate()
            process.wait(60)
    text = io.StringIO()
    report = pstats.Stats(str(statistics_file), stream=text)
    report.strip_dirs().sort_stats("tottime").print_stats(30)
    rows = [line for line in text.getvalue().splitlines() if line.strip()]
    start = next(number for number, line in enumerate(rows) if "ncalls" in line)
    note = f"{measured.messages / measured.seconds:,.0f} messages/s while every call is counted"
    return f"{note}\n\n" + "\n".join(rows[start:])


def _await_answer(address: str) -> None:
    deadline_s = time.monotonic() + 20
    while True:
        try:
            run_load(address, "Load", Load(connections=1, window=1), 0.05, pid=1, warm_s=0)
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)
        else:
            return


def compare(runs: int, seconds: float, warm_s: float, folder: Path) -> str:
    """All measures; returns the table."""
    with ExitStack() as stack:
        theirs = stack.enter_context(apache_rocketmq(folder / "theirs"))
        ours = stack.enter_context(downrange(folder / "ours"))
        comparison = Comparison(ours, theirs, folder / "tools")
        pair = (ours, theirs)
        starts = [one.name_server_start_s for one in pair]
        comparison.add("start of the name server", "s", starts)
        comparison.add("start of the broker", "s", [one.broker_start_s for one in pair])
        memory = [one.memory_mib() for one in pair]
        comparison.add("memory after the start", "MiB", memory)
        print(f"warming up for {warm_s:.0f} s", flush=True)
        for contender in reversed(pair):
            run_load(contender.address, "Warm", Load(), warm_s, pid=contender.pid)
        comparison.fill()
        for run in range(runs):
            print(f"run {run + 1}", flush=True)
            comparison.loads(seconds)
            comparison.latency(seconds)
            comparison.java_producer("Java producer, 64 threads", Goal(2.0), seconds)
            comparison.java_consumer(run, CONSUMER_LINES)
        table = comparison.table()
    return table + "\n" + compare_synced(runs, seconds, folder)


def compare_synced(runs: int, seconds: float, folder: Path) -> str:
    """SYNC_FLUSH: every answer waits for the disk."""
    with ExitStack() as stack:
        theirs = stack.enter_context(apache_rocketmq(folder / "theirs-sync", "SYNC_FLUSH"))
        ours = stack.enter_context(downrange(folder / "ours-sync", "SYNC_FLUSH"))
        comparison = Comparison(ours, theirs, folder / "tools")
        for run in range(runs):
            print(f"SYNC_FLUSH, run {run + 1}", flush=True)
            label = "SYNC_FLUSH: Java producer, 64 threads"
            comparison.java_producer(label, Goal(1.0), seconds)
        return comparison.table()


def main() -> None:
    """Measure, print, write down."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--warm", type=float, default=40)
    results = Path(__file__).resolve().parent / "results"
    parser.add_argument("--result", type=Path, default=results / "broker.md")
    options = parser.parse_args()
    begin = facts()
    print(begin)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = compare(options.runs, options.seconds, options.warm, folder)
        profile = profile_table(folder, options.seconds)
    text = (
        f"# Broker against broker\n\nWritten by `make bench`: {options.runs} runs, medians; ratios "
        f"are ours to theirs within a run.\n\n{begin}\n\n{table}\n## Where our time goes\n\n"
        f"`4 x 16 in flight, 128 B`, {profile}\n"
    )
    options.result.parent.mkdir(parents=True, exist_ok=True)
    options.result.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
