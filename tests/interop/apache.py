"""Runs the real Apache RocketMQ: servers and clients as child processes on the loopback address.

Everything they write goes below the directory that the caller names. A process is ended only by
the object that started it, and every wait has a deadline.
"""

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from interop.releases import APACHE_5_5, OracleError, Release
from processes import (
    LOOPBACK,
    POLL_SECONDS,
    START_SECONDS_MAX,
    STOP_SECONDS_MAX,
    Server,
    free_broker_port,
    free_port,
)

__all__ = ["LOOPBACK", "POLL_SECONDS", "Server", "free_broker_port", "free_port"]

LONG_GROUP = "a-group-" + "of-a-very-long-name-" * 7

SERVER_HEAP = ("-Xms512m", "-Xmx1g", "-XX:MaxDirectMemorySize=1g")
CLIENT_HEAP = ("-Xms128m", "-Xmx768m")
SILENT = '<configuration><root level="ERROR"/></configuration>\n'
# RocketMQ reaches into these packages by reflection; a JDK of 16 or newer refuses that otherwise.
OPEN_MODULES = (
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)


def start_name_server(
    folder: Path,
    *,
    port: int | None = None,
    host: str = LOOPBACK,
    java_properties: Mapping[str, str] | None = None,
    release: Release = APACHE_5_5,
) -> Server:
    """Start a name server that answers at the returned address; it writes below `folder` only."""
    port = free_port() if port is None else port
    settings = {
        "listenPort": str(port),
        "bindAddress": host,
        "kvConfigPath": str(folder / "kvConfig.json"),
        "configStorePath": str(folder / "namesrv.properties"),
    }
    main = "org.apache.rocketmq.namesrv.NamesrvStartup"
    address = f"{host}:{port}"
    return _start_server(
        "name server", main, folder, address, settings, java_properties or {}, release
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan:
    """How a broker is to be started: where it writes, whom it registers with, what differs.

    `store` is the storePathRootDir. `bind_host` differs from the advertised host where a recorder
    stands between the broker and its clients.
    """

    folder: Path
    store: Path
    name_server: str
    port: int
    ha_port: int
    name: str = "broker-a"
    host: str = LOOPBACK
    bind_host: str = LOOPBACK
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    java_properties: Mapping[str, str] = field(default_factory=dict[str, str])
    heap: Sequence[str] = SERVER_HEAP
    release: Release = APACHE_5_5

    def properties(self) -> dict[str, str]:
        """Return the content of broker.conf."""
        return {
            "brokerClusterName": "DefaultCluster",
            "brokerName": self.name,
            "brokerId": "0",
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": "ASYNC_FLUSH",
            "listenPort": str(self.port),
            "haListenPort": str(self.ha_port),
            "bindAddress": self.bind_host,
            "brokerIP1": self.host,
            "brokerIP2": self.host,
            "namesrvAddr": self.name_server,
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.store / "commitlog"),
            "autoCreateTopicEnable": "true",
            "autoCreateSubscriptionGroup": "true",
            # A busy two-core machine must not turn into refused sends and so into a flaky test.
            "waitTimeMillsInSendQueue": "30000",
            "osPageCacheBusyTimeOutMills": "30000",
            "diskMaxUsedSpaceRatio": "95",
            **self.settings,
        }


def plan_broker(
    folder: Path, store: Path, name_server: str, settings: Mapping[str, str] | None = None
) -> BrokerPlan:
    """Plan a broker on free ports."""
    port = free_broker_port()
    return BrokerPlan(
        folder=folder,
        store=store,
        name_server=name_server,
        port=port,
        ha_port=free_port(),
        settings=settings or {},
    )


def start_broker(plan: BrokerPlan) -> Server:
    """Start a broker; when this returns it has recovered its store, listens and is registered."""
    main = "org.apache.rocketmq.broker.BrokerStartup"
    address = f"{plan.bind_host}:{plan.port}"
    return _start_server(
        "broker",
        main,
        plan.folder,
        address,
        plan.properties(),
        plan.java_properties,
        plan.release,
        plan.heap,
    )


def allow_long_retry_topic(store: Path) -> str:
    """Prepare a store so that its broker takes a topic of over 127 characters; return the topic.

    Such names make records of version 2. Only retry topics may be that long, and a group whose
    retry topic is that long is not created on demand, but honoured when it is in the table.
    """
    table = store / "config" / "subscriptionGroup.json"
    table.parent.mkdir(parents=True)
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1}
    groups = {LONG_GROUP: {"groupName": LONG_GROUP}}
    content = {"dataVersion": version, "subscriptionGroupTable": groups}
    table.write_text(json.dumps(content), encoding="ascii")
    return f"%RETRY%{LONG_GROUP}"


def run_program(
    program: str,
    arguments: Mapping[str, str | int],
    folder: Path,
    *,
    seconds_max: float,
    release: Release = APACHE_5_5,
    java_properties: Mapping[str, str] | None = None,
    java_options: Sequence[str] = CLIENT_HEAP,
) -> list[str]:
    """Run one of our Java programs to its end and return the lines it printed."""
    output = folder / f"{program}.out"
    with start_program(
        program,
        arguments,
        folder,
        release=release,
        java_properties=java_properties,
        java_options=java_options,
    ) as child:
        try:
            code = child.wait(seconds_max)
        except subprocess.TimeoutExpired:
            raise OracleError(f"{program} did not end in {seconds_max:.0f} s") from None
    if code != 0:
        errors = (folder / f"{program}.err").read_text(encoding="utf-8", errors="replace")
        raise OracleError(f"{program} ended with {code}: {errors[-4000:]}")
    return printed_lines(output)


def printed_lines(output: Path) -> list[str]:
    """Return the complete JSON lines of an output file; the logging library prints there too."""
    text = output.read_text(encoding="utf-8", errors="replace")
    return [line for line in text.splitlines() if line.startswith("{") and line.endswith("}")]


@contextlib.contextmanager
def start_program(
    program: str,
    arguments: Mapping[str, str | int],
    folder: Path,
    *,
    release: Release = APACHE_5_5,
    java_properties: Mapping[str, str] | None = None,
    java_options: Sequence[str] = CLIENT_HEAP,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run one of our Java programs while the block runs; it prints into `<program>.out`.

    It is killed at the end of the block if it still runs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        "java",
        *java_options,
        *OPEN_MODULES,
        f"-Duser.home={folder}",
        f"-Drocketmq.client.logRoot={folder / 'logs'}",
        *_definitions(java_properties or {}),
        "-cp",
        release.classpath(),
        program,
        *[f"{key}={value}" for key, value in arguments.items()],
    ]
    with (
        (folder / f"{program}.out").open("wb") as output,
        (folder / f"{program}.err").open("wb") as errors,
    ):
        child = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=errors
        )
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()
                child.wait(STOP_SECONDS_MAX)


def _start_server(
    name: str,
    main: str,
    folder: Path,
    address: str,
    settings: Mapping[str, str],
    java_properties: Mapping[str, str],
    release: Release,
    heap: Sequence[str] = SERVER_HEAP,
) -> Server:
    (folder / "conf").mkdir(parents=True, exist_ok=True)
    config = folder / "server.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    output = folder / "server.out"
    kind = "broker" if "broker" in main else "namesrv"
    logging_file = f"rmq.{kind}.logback.xml"  # of the jar; 4.9 reads one in its home and needs it
    (folder / "conf" / f"logback_{kind}.xml").write_text(SILENT)
    command = [
        "java",
        *heap,
        *OPEN_MODULES,
        f"-Duser.home={folder}",
        f"-Drocketmq.home.dir={folder}",
        f"-Drmq.logback.configurationFile={logging_file}",
        *_definitions(java_properties),
        "-cp",
        release.classpath(),
        main,
        "-c",
        str(config),
    ]
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
        )
    server = Server(name, address, process, output)
    try:
        _await_boot(server)
    except BaseException:
        server.kill()
        raise
    return server


def _definitions(java_properties: Mapping[str, str]) -> list[str]:
    return [f"-D{key}={value}" for key, value in java_properties.items()]


def _await_boot(server: Server) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        text = server.output.read_text(encoding="utf-8", errors="replace")
        if server.process.poll() is not None:
            raise OracleError(f"{server.name} ended while starting: {text[-4000:]}")
        if "boot success" in text and _listens(server.address):
            return
        time.sleep(POLL_SECONDS)
    raise OracleError(f"{server.name} did not answer in {START_SECONDS_MAX:.0f} s")


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True
