"""`downrange dev` as a child process on the loopback address, ended by whoever started it."""

import select
import signal
import subprocess
import sys
from typing import Self

import msgspec

SECONDS_MAX = 60.0
COMMAND = [sys.executable, "-m", "downrange.app.cli", "dev", "--host", "127.0.0.1"]


class Ready(msgspec.Struct, forbid_unknown_fields=True):
    """The line that `--json` prints."""

    name_servers: str
    brokers: dict[str, str]
    data: str
    is_temporary: bool
    process_id: int
    http: str | None


class DevProcess:
    """Started by `with`; `ready` is what it printed."""

    def __init__(self, *arguments: str) -> None:
        self._command = [*COMMAND, "--json", *arguments]
        self.rest = ""

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(self._command, stdout=pipe, stderr=pipe, text=True)
        assert self.process.stdout is not None
        try:
            readable, _, _ = select.select([self.process.stdout], [], [], SECONDS_MAX)
            line = self.process.stdout.readline() if readable else ""
            assert line, f"not ready: {self.process.poll()}"
            self.ready = msgspec.json.decode(line, type=Ready)
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()

    def stop(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str, str]:
        """Send a signal; returns exit code, rest of the output, and errors."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=SECONDS_MAX)
        return self.process.returncode, out, err

    def _kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=SECONDS_MAX)
