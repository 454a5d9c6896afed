"""The Kafka broker and its Spark connector, which our source and sink are compared with.

Fetched with Maven into `.oracle/`, started as one process (KRaft, broker and controller in one) on
the loopback address. The topics have 8 partitions.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from interop.releases import Release
from processes import LOOPBACK, free_port

POMS = Path(__file__).resolve().parent / "kafka"
BROKER_JARS = Release("kafka-4.3.1", str(POMS / "broker.xml"), ())
CONNECTOR_JARS = Release("kafka-connector-4.2.0", str(POMS / "connector.xml"), ())
CONNECTOR = "Kafka connector 4.2.0 (4.3.0 is not published), broker 4.3.1"
START_S_MAX = 90.0
LOAD_S_MAX = 300.0
STOP_S_MAX = 60.0
PARTITIONS = 8
HEAP = ("-Xms1g", "-Xmx1g")


class KafkaError(Exception):
    """Kafka did not start, or its tool failed; the text has the end of the output."""


@dataclass(frozen=True, slots=True)
class Kafka:
    """A running broker."""

    address: str
    folder: Path
    process: subprocess.Popen[bytes]

    def load(self, topic: str, count: int, size: int) -> None:
        """Fill a topic with Kafka's own tool."""
        arguments = [
            "--topic", topic, "--num-records", str(count), "--record-size", str(size),
            "--throughput", "-1", "--producer-props", f"bootstrap.servers={self.address}",
            "batch.size=131072", "linger.ms=5",
        ]  # fmt: skip
        _run(self.folder, "org.apache.kafka.tools.ProducerPerformance", arguments, LOAD_S_MAX)


def connector_jars() -> str:
    """What `spark.jars` needs."""
    return ",".join(str(path) for path in sorted(CONNECTOR_JARS.jars().glob("*.jar")))


@contextmanager
def kafka(folder: Path) -> Iterator[Kafka]:
    """A broker with an empty log below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    port, controller = free_port(), free_port()
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "num.partitions": str(PARTITIONS),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "log.dirs": str(folder / "data"),
        "group.initial.rebalance.delay.ms": "0",
    }
    config = folder / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    tool = "kafka.tools.StorageTool"
    # Any 16 bytes in this form of base64 name a cluster.
    _run(folder, tool, ["format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(config)], START_S_MAX)
    output = folder / "broker.log"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            _command("kafka.Kafka", [str(config)], HEAP),
            cwd=folder, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        _await(port, output, process)
        yield Kafka(f"{LOOPBACK}:{port}", folder, process)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_S_MAX)


def _await(port: int, output: Path, process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + START_S_MAX
    while True:
        with socket.socket() as probe:
            if probe.connect_ex((LOOPBACK, port)) == 0:
                return
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise KafkaError(f"Kafka did not start: {output.read_text()[-3000:]}")
        time.sleep(0.2)


def _command(program: str, arguments: list[str], heap: tuple[str, ...]) -> list[str]:
    return ["java", *heap, "-cp", f"{BROKER_JARS.jars()}/*", program, *arguments]


def _run(folder: Path, program: str, arguments: list[str], seconds_max: float) -> None:
    done = subprocess.run(
        _command(program, arguments, ("-Xmx512m",)),
        cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=seconds_max, check=False,
    )  # fmt: skip
    if done.returncode:
        raise KafkaError(f"{program} failed: {done.stdout.decode(errors='replace')[-3000:]}")
