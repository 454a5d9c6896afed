"""RocketMQ's `mqadmin` 5.5.0, one command after the other in one JVM."""

import contextlib
import json
import queue
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from interop import apache
from interop.releases import ADMIN_5_5, OracleError

ANSWER_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 30.0
JAVA_OPTIONS = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@dataclass(frozen=True, slots=True)
class Printed:
    """What a command printed on its two streams."""

    output: str
    errors: str


class AdminConsole:
    """The running tool; one thread at a time may call it."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process = process
        self._folder = folder
        self._lines: queue.Queue[str | None] = queue.Queue()
        assert process.stdin is not None
        assert process.stdout is not None
        self._input: IO[bytes] = process.stdin
        self._output: IO[bytes] = process.stdout
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def mqadmin(self, name_server: str, command: str, *arguments: str) -> Printed:
        """Run one command to its end."""
        return self._ask("mqadmin", command, "-n", name_server, *arguments)

    def load(self, label: str, name_server: str) -> None:
        """Give a cluster messages, groups and clients; clients stay as long as the console."""
        printed = self._ask("load", label, name_server)
        assert not printed.errors, printed.errors

    def _ask(self, *words: str) -> Printed:
        assert not any(set(word) & {"\t", "\n"} for word in words), words
        self._input.write("\t".join(words).encode() + b"\n")
        self._input.flush()
        try:
            line = self._lines.get(timeout=ANSWER_SECONDS_MAX)
        except queue.Empty:
            raise OracleError(f"no end of {words} in {ANSWER_SECONDS_MAX:.0f} s") from None
        if line is None:
            errors = (self._folder / "console.err").read_text(encoding="utf-8", errors="replace")
            raise OracleError(f"the console ended in {words}: {errors[-4000:]}")
        answer = json.loads(line)
        return Printed(answer["output"], answer["errors"])

    def close(self) -> None:
        """Let go of the pipes of a process that has ended."""
        self._reader.join(STOP_SECONDS_MAX)
        self._output.close()

    def _read(self) -> None:
        for line in self._output:
            if line.startswith(b'{"kind":"answer"'):
                self._lines.put(line.decode())
        self._lines.put(None)


@contextlib.contextmanager
def running_console(folder: Path) -> Iterator[AdminConsole]:
    """Keep the tool running while the block runs; files that it writes are below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        "java",
        *JAVA_OPTIONS,
        *apache.OPEN_MODULES,
        f"-Duser.home={folder}",
        f"-Drocketmq.home.dir={folder}",
        f"-Drocketmq.client.logRoot={folder / 'logs'}",
        "-Drmq.logback.configurationFile=rmq.tools.logback.xml",
        "-cp",
        ADMIN_5_5.classpath(),
        "AdminConsole",
    ]
    with (folder / "console.err").open("wb") as errors:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        )
    console = AdminConsole(process, folder)
    try:
        yield console
    finally:
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS_MAX)
        console.close()
