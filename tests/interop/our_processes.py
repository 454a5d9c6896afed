"""Runs downrange itself as child processes, and RocketMQ's `mqadmin` against them."""

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from interop import apache
from interop.apache import LOOPBACK, POLL_SECONDS, START_SECONDS_MAX, Server
from interop.releases import APACHE_5_5, OracleError

ADMIN_SECONDS_MAX = 120.0


def start_name_server(folder: Path, settings: Mapping[str, str] | None = None) -> Server:
    """Start our name server on a free loopback port; it answers when this returns."""
    folder.mkdir(parents=True, exist_ok=True)
    port = apache.free_port()
    config = folder / "namesrv.conf"
    properties = {"kvConfigPath": str(folder / "kvConfig.json"), **(settings or {})}
    config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    arguments = ["namesrv", "-c", str(config), "--host", LOOPBACK, "--port", str(port)]
    output = folder / "namesrv.log"
    return _start("our name server", arguments, f"{LOOPBACK}:{port}", output, "name server ready")


def start_broker(folder: Path, name_server: str, settings: Mapping[str, str]) -> Server:
    """Start our broker on a free loopback port; it is registered when this returns."""
    folder.mkdir(parents=True, exist_ok=True)
    port = apache.free_broker_port()
    config = folder / "broker.conf"
    properties = {"brokerIP1": LOOPBACK, "bindAddress": LOOPBACK, **settings}
    config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    arguments = ["broker", "-c", str(config), "-n", name_server, "--port", str(port)]
    arguments += ["--store", str(folder / "store")]
    output = folder / "broker.log"
    return _start("our broker", arguments, f"{LOOPBACK}:{port}", output, " serves ")


def _start(name: str, arguments: list[str], address: str, output: Path, ready: str) -> Server:
    command = [sys.executable, "-m", "downrange.app.cli", *arguments]
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
        )
    server = Server(name, address, process, output)
    deadline = time.monotonic() + START_SECONDS_MAX
    while ready not in output.read_text(encoding="utf-8"):
        if process.poll() is not None or time.monotonic() > deadline:
            server.kill()
            raise OracleError(f"{name} did not start: {output.read_text()[-4000:]}")
        time.sleep(POLL_SECONDS)
    return server


def mqadmin(folder: Path, name_server: str, command: str, *arguments: str) -> str:
    """Run a command of RocketMQ's admin tool to its end and return what it printed."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [
            "java",
            *apache.CLIENT_HEAP,
            "-XX:TieredStopAtLevel=1",
            *apache.OPEN_MODULES,
            f"-Duser.home={folder}",
            f"-Drocketmq.home.dir={folder}",
            "-Drmq.logback.configurationFile=rmq.tools.logback.xml",
            "-cp",
            APACHE_5_5.classpath(),
            "org.apache.rocketmq.tools.command.MQAdminStartup",
            command,
            "-n",
            name_server,
            *arguments,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=ADMIN_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0 or "Exception" in done.stdout + done.stderr:
        raise OracleError(f"mqadmin {command} failed: {(done.stdout + done.stderr)[-4000:]}")
    return done.stdout
