"""Captures tests/golden/data from the real Apache RocketMQ; needs Linux, a JDK and Maven.

Usage: .venv/bin/python scripts/capture_golden.py [--keep FOLDER]

Three brokers of release 5.5.0 live one after the other, each with small files:

    clean   JSON headers, stopped cleanly; clients 5.5.0 and 4.9.8 in both header encodings, admin
    killed  servers with binary headers, killed with SIGKILL
    ipv6    a broker that calls itself ::1, stopped cleanly

Servers listen on 127.0.0.2 and call themselves 127.0.0.1, where taps record the frames between
them and their peers; so stored hosts are those of an ordinary machine. What is written below
tests/golden/data is described in tests/golden/README.md.
"""

import argparse
import contextlib
import gzip
import hashlib
import json
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from interop import apache, frame_tap  # noqa: E402 - the path above makes it importable
from interop.releases import APACHE_4_9_CLIENT, APACHE_5_5, Release  # noqa: E402

DATA = ROOT / "tests" / "golden" / "data"
SERVER_HOST = "127.0.0.2"
NAME_SERVER_PORT = 9876
NAME_SERVER_PORT_FOR_BROKERS = 9877
BROKER_PORT = 10911
SESSION_SECONDS_MAX = 180.0
TOPICS = ("orders", "payments")
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
SMALL_FILES = {
    "mappedFileSizeCommitLog": str(64 * 1024),
    "mappedFileSizeConsumeQueue": str(50 * 20),
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "enablePropertyFilter": "true",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "2000",
}
BINARY_HEADERS = {"rocketmq.serialize.type": "ROCKETMQ"}
LONG_SEND_HEADERS = {"org.apache.rocketmq.client.sendSmartMsg": "false"}
# The timer wheel is 37 MiB of zeros here; what RocksDB keeps is not RocketMQ's own format.
STORE_PARTS = ("abort", "abort.bak", "checkpoint", "lock", "commitlog", "consumequeue", "index")
CONFIG_PARTS = ("*.json", "*.json.bak", "timercheck", "timermetrics", "transactionMetrics")
WORD_CHARACTERS_MIN = 5


class Stage:
    """One broker with its name server and taps; sessions of clients run against it."""

    def __init__(self, folder: Path, recorder: frame_tap.Recorder) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.recorder = recorder
        self.long_topic = apache.allow_long_retry_topic(self.store)
        self.name_server = f"{apache.LOOPBACK}:{NAME_SERVER_PORT}"
        self.broker = f"{apache.LOOPBACK}:{BROKER_PORT}"

    @contextlib.contextmanager
    def open(self, java_properties: Mapping[str, str]) -> Iterator[apache.Server]:
        """Start servers and taps; gives the broker, which the caller stops or kills."""
        self.recorder.session = "servers"
        name_server = apache.start_name_server(
            self.folder / "ns",
            port=NAME_SERVER_PORT,
            host=SERVER_HOST,
            java_properties=java_properties,
        )
        plan = apache.BrokerPlan(
            folder=self.folder / "broker",
            store=self.store,
            name_server=f"{apache.LOOPBACK}:{NAME_SERVER_PORT_FOR_BROKERS}",
            port=BROKER_PORT,
            ha_port=apache.free_port(),
            bind_host=SERVER_HOST,
            settings=SMALL_FILES,
            java_properties=java_properties,
        )
        with (
            name_server,
            self._tap("client-nameserver", NAME_SERVER_PORT, NAME_SERVER_PORT),
            self._tap("broker-nameserver", NAME_SERVER_PORT_FOR_BROKERS, NAME_SERVER_PORT),
            self._tap("client-broker", BROKER_PORT, BROKER_PORT),
            apache.start_broker(plan) as broker,
        ):
            yield broker

    def client(
        self,
        name: str,
        release: Release,
        java_properties: Mapping[str, str],
        *,
        full: bool,
        singles: int = 24,
    ) -> None:
        """Run one client session and record it under its name."""
        self.run(
            name,
            "ClientSession",
            {
                "name": name.replace(".", "-"),
                "topic": TOPICS[0],
                "requestTopic": TOPICS[1],
                "singles": singles,
                "full": str(full).lower(),
            },
            release,
            java_properties,
        )

    def admin(self, name: str, step: str) -> None:
        """Run one admin session and record it under its name."""
        arguments: dict[str, str | int] = {
            "brokerAddress": self.broker,
            "topics": ",".join(TOPICS),
            "longTopic": self.long_topic,
            "step": step,
        }
        self.run(name, "AdminSession", arguments, APACHE_5_5, {})

    def dump(self) -> list[str]:
        """Return what the broker itself says about every message of the topics that users see."""
        topics = [*TOPICS, self.long_topic, "SCHEDULE_TOPIC_XXXX"]
        if (self.store / "consumequeue" / HALF_TOPIC).exists():
            topics.append(HALF_TOPIC)
        arguments: dict[str, str | int] = {"topics": ",".join(topics), "samples": 3}
        return self.run("dump", "Dump", arguments, APACHE_5_5, {})

    def run(
        self,
        session: str,
        program: str,
        arguments: Mapping[str, str | int],
        release: Release,
        java_properties: Mapping[str, str],
    ) -> list[str]:
        """Run a program while the recorder files its connections under `session`."""
        self.recorder.session = session
        print(f"{self.folder.name}: {session}")
        return apache.run_program(
            program,
            {"nameServer": self.name_server, **arguments},
            self.folder / session,
            seconds_max=SESSION_SECONDS_MAX,
            release=release,
            java_properties=java_properties,
        )

    def _tap(self, link: str, port: int, target_port: int) -> frame_tap.Tap:
        listen = (apache.LOOPBACK, port)
        return frame_tap.Tap(self.recorder, link, listen, (SERVER_HOST, target_port))


def capture_clean(folder: Path) -> None:
    """Broker with JSON headers, every kind of client, a clean stop."""
    recorder = frame_tap.Recorder()
    stage = Stage(folder, recorder)
    with stage.open({}):
        stage.admin("admin-create", "create")
        stage.client("client-5.5.0-json", APACHE_5_5, {}, full=True)
        stage.client("client-5.5.0-binary", APACHE_5_5, BINARY_HEADERS, full=True)
        stage.client("client-5.5.0-long-headers", APACHE_5_5, LONG_SEND_HEADERS, full=False)
        stage.client("client-4.9.8-json", APACHE_4_9_CLIENT, {}, full=True)
        stage.client("client-4.9.8-binary", APACHE_4_9_CLIENT, BINARY_HEADERS, full=True)
        stage.admin("admin-examine", "examine")
        lines = stage.dump()
    save("clean", stage, lines)


def capture_killed(folder: Path) -> None:
    """Servers with binary headers; the broker is killed while its abort file exists."""
    recorder = frame_tap.Recorder()
    stage = Stage(folder, recorder)
    with stage.open(BINARY_HEADERS) as broker:
        stage.admin("admin-create", "create")
        stage.client("client-5.5.0-json", APACHE_5_5, {}, full=True, singles=12)
        lines = stage.dump()
        broker.kill()
    save("killed", stage, lines)


def capture_ipv6(folder: Path) -> None:
    """Records whose hosts have 16-byte addresses; frames are as in the other captures."""
    stage = Stage(folder, frame_tap.Recorder())
    with apache.start_name_server(folder / "ns") as name_server:
        plan = apache.BrokerPlan(
            folder=folder / "broker",
            store=stage.store,
            name_server=name_server.address,
            port=BROKER_PORT,
            ha_port=apache.free_port(),
            host="::1",
            bind_host="::1",
            settings=SMALL_FILES,
        )
        stage.name_server = name_server.address
        stage.broker = f"::1:{BROKER_PORT}"
        with apache.start_broker(plan):
            stage.admin("admin-create", "create")
            stage.client("client-5.5.0-json", APACHE_5_5, {}, full=False, singles=8)
            lines = stage.dump()
    save("ipv6", stage, lines)


def save(name: str, stage: Stage, lines: list[str]) -> None:
    """Write the capture below tests/golden/data, without the zeros at the end of files."""
    target = DATA / name
    shutil.rmtree(target, ignore_errors=True)
    manifest: dict[str, dict[str, str | int]] = {}
    for path in _store_files(stage.store):
        content = path.read_bytes()
        relative = path.relative_to(stage.store)
        (target / "store" / relative).parent.mkdir(parents=True, exist_ok=True)
        (target / "store" / relative).write_bytes(content.rstrip(b"\0"))
        digest = hashlib.sha256(content).hexdigest()
        manifest[relative.as_posix()] = {"size": len(content), "sha256": digest}
    _write(target / "store.json", json.dumps(manifest, indent=1).encode() + b"\n")
    _write(target / "messages.jsonl.gz", _gzipped(lines))
    sessions: dict[str, list[str]] = {}
    for frame in stage.recorder.frames:
        if frame.session != "dump":
            sessions.setdefault(frame.session, []).append(frame.json_line())
    for session, frames in sessions.items():
        _write(target / "frames" / f"{session}.jsonl.gz", _gzipped(frames))
    refuse_machine_words(target, [frame.frame for frame in stage.recorder.frames])


def refuse_machine_words(folder: Path, frames: list[bytes]) -> None:
    """Fail if something captured names this machine, its addresses, a user or a folder."""
    home = Path.home()
    words = {socket.gethostname(), home.name, str(ROOT), str(home), tempfile.gettempdir()}
    for info in socket.getaddrinfo(socket.gethostname(), None):
        address = str(info[4][0])
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        if not address.startswith(("127.", "::1")):
            words |= {address, socket.inet_pton(family, address.partition("%")[0]).hex().upper()}
    pattern = "|".join(re.escape(word) for word in words if len(word) >= WORD_CHARACTERS_MIN)
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    for content in [*files, *frames]:
        if found := re.search(pattern.encode(), content):
            raise SystemExit(f"{folder.name} names this machine: {found.group()!r}")


def _store_files(store: Path) -> Iterator[Path]:
    for part in STORE_PARTS:
        path = store / part
        if path.is_dir():
            yield from sorted(inner for inner in path.rglob("*") if inner.is_file())
        elif path.exists():
            yield path
    for pattern in CONFIG_PARTS:
        yield from sorted((store / "config").glob(pattern))


def _gzipped(lines: list[str]) -> bytes:
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def main() -> None:
    """Capture all; takes about three minutes."""
    parser = argparse.ArgumentParser(description="capture golden files from Apache RocketMQ")
    parser.add_argument("--keep", type=Path, help="work in this folder and leave it behind")
    parser.add_argument("--only", choices=("clean", "killed", "ipv6"), help="capture one stage")
    options = parser.parse_args()
    captures = {"clean": capture_clean, "killed": capture_killed, "ipv6": capture_ipv6}
    with contextlib.ExitStack() as stack:
        kept: Path | None = options.keep
        folder = kept or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, capture in captures.items():
            if options.only in (None, name):
                capture(folder / name)


if __name__ == "__main__":
    main()
