"""Our client and the Java client on one downrange broker, in turns; then ours and PyPI's gRPC one.

usage: client.py [--runs 3] [--seconds 5] [--result FILE]

Each piece of work runs in a process of its own: ours is `client_work.py`, theirs are RocketMQ's
benchmark Producer and Consumer and a small program that times publish to listener. The broker is
the same for both and shares the processors with them. The gRPC client, rocketmq-python-client,
needs Apache's proxy before Apache's broker; ours does the same work at the same broker without it.
Needs a JDK, Maven and PyPI, ten minutes at most.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
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
from interop import apache
from interop.releases import PUBLISH_LATENCY
from load import Load, run_load
from machine import facts
from proxy import GRPC_CLIENT, grpc_python, start_proxy

BACKLOG = 1_500_000
IN_FLIGHT = 64
RATE = 200
CONSUMER_LINES = 10
WORK_S_MAX = 120.0
JAVA_WARM = 2_000  # messages, for the compiler
PROFILE_ROWS = 24
GRPC_GOAL = 5.0


@dataclass(slots=True)
class Row:
    """One measure of both clients, a value of each run; the goal is ours alone or a comparison."""

    name: str
    unit: str
    goal: float | None = None
    at_most_theirs: bool = False
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    def text(self) -> str:
        """A line of the table."""
        ours, theirs = statistics.median(self.ours), statistics.median(self.theirs)
        verdict = ""
        if self.goal is not None:
            verdict = f">= {self.goal:,.0f}: {'yes' if ours >= self.goal else 'NO'}"
        elif self.at_most_theirs:
            verdict = f"<= Java's: {'yes' if ours <= theirs else 'NO'}"
        return (
            f"| {self.name} | {ours:,.2f} {self.unit} | {theirs:,.2f} {self.unit} "
            f"| {ours / max(theirs, 1e-9):.2f} | {verdict} |"
        )


class Comparison:
    """Measures both clients on one broker."""

    def __init__(self, broker: Contender, folder: Path, seconds: float) -> None:
        self._broker = broker
        self._folder = folder
        self._seconds = seconds
        self._rows = {
            row.name: row
            for row in (
                Row("producer, 64 in flight, 128 B", "msg/s", 25_000),
                Row("producer: CPU", "us/msg"),
                Row("push consumer on a backlog", "msg/s", 100_000),
                Row("push consumer: CPU", "us/msg"),
                Row("publish to listener at 200/s: p50", "ms"),
                Row("publish to listener at 200/s: p99", "ms", at_most_theirs=True),
                Row("publish to listener at 200/s: CPU", "us/msg"),
            )
        }

    def fill(self) -> None:
        """A backlog for the consumers; batches, so that it takes seconds."""
        left, load = BACKLOG, Load(window=4, batch=32)
        broker = self._broker
        while left > 0:
            done = run_load(broker.address, "Backlog", load, 1.0, pid=broker.pid, warm_s=0.01)
            left -= done.messages

    def produce(self) -> None:
        """Ours, then theirs."""
        ours = self.work("produce", "Produced", "--in-flight", str(IN_FLIGHT))
        cpu_s: list[float] = []
        arguments = ["-t", "Produced", "-w", str(IN_FLIGHT), "-s", "128"]
        rates = self._java_tool("Producer", arguments, TOOL_WARM_LINES + 5, cpu_s)
        rate = statistics.median(rates[TOOL_WARM_LINES:])
        sent = sum(rates[TOOL_WARM_LINES:])
        cpu_us = (cpu_s[-1] - cpu_s[TOOL_WARM_LINES - 1]) / sent * 1e6
        self._add("producer, 64 in flight, 128 B", ours["rate"], rate)
        self._add("producer: CPU", ours["cpu_us"], cpu_us)

    def consume(self, run: int) -> None:
        """Each in a group of its own, from the first message on."""
        ours = self.work(
            "consume", "Backlog", "--group", f"ours-{run}", "--warm", "0.5", "--seconds", "4"
        )
        cpu_s: list[float] = []
        rates = java_consumer_rates(
            self._folder / "tools", self._broker.name_server, f"theirs-{run}", CONSUMER_LINES, cpu_s
        )
        rate = busy_rate(rates)
        self._add("push consumer on a backlog", ours["rate"], rate)
        cpu_us = (cpu_s[-1] - cpu_s[0]) / max(sum(rates[1:]), 1) * 1e6
        self._add("push consumer: CPU", ours["cpu_us"], cpu_us)

    def latency(self, run: int) -> None:
        """Sender and listener in one process."""
        ours = self.work("latency", f"Latency{run}", "--rate", str(RATE), "--group", f"late-{run}")
        lines = apache.run_program(
            "PublishLatency",
            {
                "nameServer": self._broker.name_server,
                "topic": f"LatencyJava{run}",
                "rate": RATE,
                "warm": JAVA_WARM,
                "count": round(self._seconds * RATE),
            },
            self._folder / f"latency-{run}",
            seconds_max=WORK_S_MAX,
            release=PUBLISH_LATENCY,
        )
        theirs = json.loads(lines[-1])
        name = "publish to listener at 200/s"
        self._add(f"{name}: p50", ours["p50_ms"], theirs["p50Us"] / 1e3)
        self._add(f"{name}: p99", ours["p99_ms"], theirs["p99Us"] / 1e3)
        self._add(f"{name}: CPU", ours["cpu_us"], theirs["cpuUs"])

    def work(self, work: str, topic: str, *arguments: str) -> dict[str, float]:
        """A piece of work of our client in a process of its own."""
        return our_work(self._broker, work, topic, "--seconds", str(self._seconds), *arguments)

    def profile(self, work: str, topic: str, *arguments: str) -> str:
        """Where the time of our client goes, by function."""
        file = self._folder / f"{work}.profile"
        figures = self.work(work, topic, *arguments, "--profile", str(file))
        rows = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        start = next(number for number, line in enumerate(rows) if "ncalls" in line)
        table = "\n".join(rows[start : start + PROFILE_ROWS])
        return f"{figures['rate']:,.0f} messages/s while every call is counted\n\n```\n{table}\n```"

    def table(self) -> str:
        """All rows."""
        head = "| measure | downrange | Java client | ratio | to reach |\n|---|---|---|---|---|\n"
        return head + "\n".join(row.text() for row in self._rows.values()) + "\n"

    def _java_tool(
        self, tool: str, arguments: list[str], lines: int, cpu_s: list[float]
    ) -> list[int]:
        folder, broker = self._folder / "tools", self._broker
        return java_tool_rates(folder, broker.name_server, tool, arguments, lines, cpu_s)

    def _add(self, name: str, ours: float, theirs: float) -> None:
        row = self._rows[name]
        row.ours.append(ours)
        row.theirs.append(theirs)
        print(f"  {name}: {ours:,.2f} / {theirs:,.2f} {row.unit}", flush=True)


def our_work(broker: Contender, work: str, topic: str, *arguments: str) -> dict[str, float]:
    """What `client_work.py` prints."""
    program = str(Path(__file__).with_name("client_work.py"))
    return _figures([sys.executable, program, work, broker.name_server, topic, *arguments])


def _figures(command: list[str]) -> dict[str, float]:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=WORK_S_MAX, check=True
    )
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _median(figures: list[dict[str, float]], name: str) -> float:
    return statistics.median(one[name] for one in figures)


def beside_grpc(folder: Path, runs: int, seconds: float) -> str:
    """The producer's work by our client and by PyPI's, both at one Apache broker."""
    python = str(grpc_python())
    program = str(Path(__file__).with_name("grpc_work.py"))
    length = ["--seconds", str(seconds)]
    measured: dict[str, list[dict[str, float]]] = {}
    with (
        apache_rocketmq(folder / "apache") as broker,
        start_proxy(folder / "proxy", broker) as proxy,
    ):
        our_work(broker, "produce", "Produced", "--seconds", "3")  # makes the topic, warms the JVM
        for _ in range(runs):
            ours = our_work(broker, "produce", "Produced", *length)
            measured.setdefault("downrange, awaiting", []).append(ours)
            for way in ("awaiting", "threads"):
                theirs = _figures([python, program, way, proxy.address, "Produced", *length])
                measured.setdefault(f"{GRPC_CLIENT} {theirs['version']}, {way}", []).append(theirs)
    rates = {name: _median(figures, "rate") for name, figures in measured.items()}
    lines = [
        f"| {name} | {rates[name]:,.0f} | {_median(figures, 'cpu_us'):,.1f} |"
        for name, figures in measured.items()
    ]
    best = max(rate for name, rate in rates.items() if name.startswith(GRPC_CLIENT))
    ratio = rates["downrange, awaiting"] / best
    return (
        "| producer, 64 in flight, 128 B, at an Apache broker | msg/s | CPU us/msg |\n"
        "|---|---|---|\n" + "\n".join(lines) + f"\n\nOurs is {ratio:.1f} times as fast as the "
        f"better of theirs; to reach 5: {'yes' if ratio >= GRPC_GOAL else 'NO'}.\n"
    )


def main() -> None:
    """Measure, print, write down."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    results = Path(__file__).resolve().parent / "results"
    parser.add_argument("--result", type=Path, default=results / "client.md")
    options = parser.parse_args()
    begin = facts()
    print(begin)
    with tempfile.TemporaryDirectory() as name, downrange(Path(name) / "broker") as broker:
        comparison = Comparison(broker, Path(name), options.seconds)
        comparison.fill()
        for run in range(options.runs):
            print(f"run {run + 1}", flush=True)
            comparison.produce()
            comparison.consume(run)
            comparison.latency(run)
        consumer = comparison.profile(
            "consume", "Backlog", "--group", "profiled", "--warm", "0.5", "--seconds", "3"
        )
        producer = comparison.profile("produce", "Produced")
    with tempfile.TemporaryDirectory() as name:
        grpc = beside_grpc(Path(name), options.runs, options.seconds)
    text = (
        f"# Client against client\n\nWritten by `make bench`: {options.runs} runs, medians; both "
        f"clients use one downrange broker, in turns, on the same processors; ours under uvloop."
        f"\n\n{begin}\n\n{comparison.table()}\n## Beside the gRPC client\n\n{grpc}\n"
        f"## Where the consumer's time goes\n\n{consumer}\n\n"
        f"## Where the producer's time goes\n\n{producer}\n"
    )
    options.result.parent.mkdir(parents=True, exist_ok=True)
    options.result.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
