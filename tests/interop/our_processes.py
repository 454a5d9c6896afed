"""Runs downrange itself as child processes, and RocketMQ's `mqadmin` against them."""

import subprocess
from pathlib import Path

from interop import apache
from interop.releases import APACHE_5_5, OracleError
from processes import start_broker, start_name_server

__all__ = ["mqadmin", "start_broker", "start_name_server"]

ADMIN_SECONDS_MAX = 120.0


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
