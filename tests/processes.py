"""Runs downrange's own servers as child processes on the loopback address.

Everything they write goes below the directory that the caller names. A process is ended only by
the object that started it, and every wait has a deadline.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from downrange.embedded.ports import FREE_PORTS, is_free

LOOPBACK = "127.0.0.1"
# A broker syncs files while it starts and stops, which a busy disk can draw out to a minute.
START_SECONDS_MAX = 240.0
STOP_SECONDS_MAX = 240.0
POLL_SECONDS = 0.05
PORT_ATTEMPTS_MAX = 64
NAME_SERVER_READY = "name server ready"
BROKER_READY = " serves "


class ServerError(Exception):
    """A server did not start or stop; the text has the end of its output."""


@dataclass(slots=True)
class Server:
    """A name server or broker process, owned by whoever started it.

    `stop` and `kill` return when the process is gone; both may be called again.
    """

    name: str
    address: str
    process: subprocess.Popen[bytes]
    output: Path

    @property
    def log(self) -> str:
        """What the process has printed so far."""
        return self.output.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """Clean stop (SIGTERM, shutdown hooks run)."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerError(f"{self.name} did not stop in {STOP_SECONDS_MAX:.0f} s") from None

    def kill(self) -> None:
        """Crash (SIGKILL): nothing is flushed, nothing is tidied up."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(STOP_SECONDS_MAX)

    def wait_for(self, text: str, seconds_max: float = START_SECONDS_MAX) -> None:
        """Return when the process has printed this; it is killed if it does not."""
        deadline = time.monotonic() + seconds_max
        while text not in self.log:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise ServerError(f"{self.name} did not say {text!r}: {self.log[-4000:]}")
            time.sleep(POLL_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self.process.poll() is None:
            self.stop()


def start_name_server(
    folder: Path, settings: Mapping[str, str] | None = None, *, port: int = 0
) -> Server:
    """Start our name server on this or a free loopback port; it answers when this returns."""
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    config = folder / "namesrv.conf"
    properties = {"kvConfigPath": str(folder / "kvConfig.json"), **(settings or {})}
    config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    arguments = ["namesrv", "-c", str(config), "--host", LOOPBACK, "--port", str(port)]
    output = folder / "namesrv.log"
    server = launch("our name server", arguments, f"{LOOPBACK}:{port}", output)
    server.wait_for(NAME_SERVER_READY)
    return server


def start_broker(
    folder: Path,
    name_server: str,
    settings: Mapping[str, str],
    *,
    port: int = 0,
    ready: str = BROKER_READY,
    open_files_max: int | None = None,
) -> Server:
    """Start our broker on this or a free loopback port; it is registered when this returns.

    With an empty `ready` nothing is waited for. `open_files_max` limits the process (`ulimit -n`).
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_broker_port()
    config = folder / "broker.conf"
    properties = {"brokerIP1": LOOPBACK, "bindAddress": LOOPBACK, **settings}
    config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    arguments = ["broker", "-c", str(config), "-n", name_server, "--port", str(port)]
    arguments += ["--store", str(folder / "store")]
    output = folder / "broker.log"
    server = launch("our broker", arguments, f"{LOOPBACK}:{port}", output, open_files_max)
    server.wait_for(ready)
    return server


def launch(
    name: str,
    arguments: list[str],
    address: str,
    output: Path,
    open_files_max: int | None = None,
) -> Server:
    """Run the command `downrange` with these arguments; its output goes into a new file."""
    command = [sys.executable, "-m", "downrange.app.cli", *arguments]
    if open_files_max is not None:
        # Soft and hard, so that the process cannot raise it again; exec keeps the process id.
        command = ["sh", "-c", f'ulimit -n {open_files_max} && exec "$0" "$@"', *command]
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
        )
    return Server(name, address, process, output)


def free_port() -> int:
    """Return a loopback port that nobody listens on and that no outgoing connection can be given.

    One of those could take another port between this probe and the start of the server.
    """
    return FREE_PORTS.take(LOOPBACK)


def free_broker_port() -> int:
    """Return a free port whose lower neighbour by two is free too: the broker's fast port."""
    for _attempt in range(PORT_ATTEMPTS_MAX):
        port = free_port()
        if is_free(LOOPBACK, port - 2):
            return port
    raise ServerError("no two free ports for a broker")
