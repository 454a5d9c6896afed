"""The two brokers that are compared, each with its name server, started and watched alike."""

import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from interop import apache, our_processes
from interop.apache import Server
from interop.releases import APACHE_TOOLS
from load import LoadError, process_cpu_s

# What RocketMQ's own runbroker.sh gives a broker, with a heap that fits a small machine.
BROKER_JVM = (
    "-server", "-Xms4g", "-Xmx4g", "-XX:MaxDirectMemorySize=2g", "-XX:+UseG1GC",
    "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:-OmitStackTraceInFastThrow", "-XX:-UseLargePages",
)  # fmt: skip
TOOL_JVM = ("-Xms512m", "-Xmx1g")
TOOL_STOP_S = 20.0
TOOL_S_MAX = 120.0
TOOL_WARM_LINES = 18  # its code is being compiled, and a report is the mean of ten seconds
CONSUMER_STARTS_MAX = 3
_RATE = re.compile(r"(?:Send|Consume) TPS: (\d+)")


@dataclass(frozen=True, slots=True)
class Contender:
    """A broker under its name server, and what its start cost."""

    name: str
    name_server: str
    broker: Server
    name_server_start_s: float
    broker_start_s: float

    @property
    def address(self) -> str:
        """Where the broker answers."""
        return self.broker.address

    @property
    def pid(self) -> int:
        """The broker's process."""
        return self.broker.process.pid

    def memory_mib(self) -> float:
        """Resident memory of the broker without pages of mapped files, which are the kernel's."""
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) / 1024
        return 0.0


@contextmanager
def downrange(folder: Path, flush: str = "ASYNC_FLUSH") -> Iterator[Contender]:
    """Ours."""
    with ExitStack() as stack:
        begun_s = time.perf_counter()
        name_server = stack.enter_context(our_processes.start_name_server(folder / "namesrv"))
        between_s = time.perf_counter()
        settings = {"flushDiskType": flush, "brokerName": "broker-a"}
        broker = stack.enter_context(
            our_processes.start_broker(folder / "broker", name_server.address, settings)
        )
        yield Contender(
            "downrange",
            name_server.address,
            broker,
            between_s - begun_s,
            time.perf_counter() - between_s,
        )


@contextmanager
def apache_rocketmq(folder: Path, flush: str = "ASYNC_FLUSH") -> Iterator[Contender]:
    """Theirs."""
    with ExitStack() as stack:
        begun_s = time.perf_counter()
        name_server = stack.enter_context(apache.start_name_server(folder / "namesrv"))
        between_s = time.perf_counter()
        plan = apache.BrokerPlan(
            folder=folder / "broker",
            store=folder / "store",
            name_server=name_server.address,
            port=apache.free_broker_port(),
            ha_port=apache.free_port(),
            settings={"flushDiskType": flush},
            heap=BROKER_JVM,
        )
        broker = stack.enter_context(apache.start_broker(plan))
        yield Contender(
            "Apache RocketMQ 5.5.0",
            name_server.address,
            broker,
            between_s - begun_s,
            time.perf_counter() - between_s,
        )


def java_tool_rates(
    folder: Path,
    name_server: str,
    tool: str,
    arguments: list[str],
    lines: int,
    cpu_s: list[float] | None = None,
) -> list[int]:
    """What RocketMQ's benchmark Producer or Consumer reports each second, so many times.

    `cpu_s` gets the tool's processor time so far at each report.
    """
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / f"{tool}.out"
    command = [
        "java",
        *TOOL_JVM,
        *apache.OPEN_MODULES,
        f"-Duser.home={folder}",
        "-cp",
        f"{APACHE_TOOLS.jars()}/*",
        f"org.apache.rocketmq.example.benchmark.{tool}",
        "-n",
        name_server,
        "-ri",
        "1000",
        *arguments,
    ]
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
        )
    deadline_s = time.monotonic() + TOOL_S_MAX
    try:
        while True:
            rates = [int(rate) for rate in _RATE.findall(output.read_text(encoding="utf-8"))]
            if cpu_s is not None:
                cpu_s.extend([process_cpu_s(process.pid)] * (len(rates) - len(cpu_s)))
            if len(rates) >= lines:
                return rates
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise LoadError(f"{tool} did not report: {output.read_text()[-2000:]}")
            time.sleep(0.2)
    finally:
        process.kill()
        process.wait(TOOL_STOP_S)


def java_consumer_rates(
    folder: Path, name_server: str, group: str, lines: int, cpu_s: list[float] | None = None
) -> list[int]:
    """What RocketMQ's benchmark Consumer reports of the topic Backlog.

    A Java consumer whose first rebalance meets its own heartbeat is refused pulls (code 25, by any
    broker) until the next heartbeat, half a minute later; such a start is taken again.
    """
    rates: list[int] = []
    for attempt in range(CONSUMER_STARTS_MAX):
        if cpu_s is not None:
            cpu_s.clear()
        arguments = ["-t", "Backlog", "-g", f"{group}-{attempt}"]
        rates = java_tool_rates(folder, name_server, "Consumer", arguments, lines, cpu_s)
        if any(rates):
            break
    return rates


def busy_rate(rates: list[int]) -> float:
    """The median of the better half of the busy seconds; in the first ones code is compiled."""
    busy = sorted(rate for rate in rates if rate)
    return statistics.median(busy[len(busy) // 2 :]) if busy else 0.0
