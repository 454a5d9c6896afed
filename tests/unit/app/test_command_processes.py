"""Commands as processes: signals, pipes, input that comes slowly."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO

import pytest
from command_line import CommandLine

from downrange.admin.errors import WrongRequestError
from downrange.app.commands import standard_input
from downrange.app.commands.standard_input import chunks

SECONDS_MAX = 60.0


@contextmanager
def running(cli: CommandLine, *words: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "DOWNRANGE_NAME_SERVERS": cli.name_server}
    with subprocess.Popen(
        [sys.executable, "-m", "downrange.app.cli", *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_member_is_seen_and_leaves_on_ctrl_c(cli: CommandLine) -> None:
    cli.do("topic", "create", "p1", "-q", "1")
    cli.do("produce", "p1", "-q", "0", stdin="1\n2\n")
    with running(cli, "consume", "p1", "-g", "pg1") as process:
        until(lambda: cli.run("group", "connections", "pg1", "-o", "json").out.count("true") == 1)
        seen = cli.json("group", "connections", "pg1")
        until(lambda: cli.rows("offset", "show", "pg1", "p1")[0]["lag"] == 0)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, err) == (130, "")
    assert isinstance(seen, dict)
    assert (seen["online"], seen["message_model"]) == (True, "CLUSTERING")
    assert isinstance(seen["clients"], list)
    assert isinstance(seen["clients"][0], dict)
    assert seen["clients"][0]["language"] == "PYTHON"
    assert isinstance(seen["subscriptions"], list)
    topics = [row["topic"] for row in seen["subscriptions"] if isinstance(row, dict)]
    assert topics == ["%RETRY%pg1", "p1"]
    assert out == "1\n2\n"


def test_a_reader_that_has_had_enough_is_no_failure(cli: CommandLine) -> None:
    cli.do("topic", "create", "p2", "-q", "1")
    cli.do("produce", "p2", "-q", "0", stdin="1\n2\n3\n")
    with running(cli, "tail", "p2") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        ready, _, _ = select.select([process.stdout], [], [], SECONDS_MAX)
        assert ready
        assert process.stdout.readline() == "1\n"
        process.stdout.close()
        cli.do("produce", "p2", "-q", "0", stdin="4\n")
        assert process.wait(SECONDS_MAX) == 0
        assert process.stderr.read() == ""


def test_what_is_typed_is_sent_at_once_and_ctrl_c_ends_it(cli: CommandLine) -> None:
    cli.do("topic", "create", "p3", "-q", "1")
    with running(cli, "produce", "p3") as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("typed\n")
        process.stdin.flush()
        until(lambda: cli.do("consume", "p3", "-e").out == "typed\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS_MAX) == 130
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_input_in_reads_of_any_size(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(standard_input, "READ_BYTES", size)

    def pieces(data: bytes, separator: bytes | None) -> list[bytes]:
        return [piece for some in chunks(BytesIO(data), separator) for piece in some]

    assert pieces(b"a\r\n\nbc\n", b"\n") == [b"a", b"bc"]
    assert pieces(b"a\nb", b"\n") == [b"a", b"b"]
    assert pieces(b"a--b-c----", b"--") == [b"a", b"b-c"]
    assert pieces(b"a\nb\n", None) == [b"a\nb\n"]
    assert pieces(b"", b"\n") == pieces(b"", None) == []


def test_input_without_a_delimiter_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard_input, "PIECE_BYTES_MAX", 10)
    with pytest.raises(WrongRequestError, match="is the delimiter right"):
        list(chunks(BytesIO(b"x" * 11), b"\n"))
