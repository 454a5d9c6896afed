"""Nothing that a peer chose can drive the terminal of who uses the command line."""

import io
import json
import sys

import pytest
import typer

from downrange.app.commands import frame
from downrange.app.commands.consume import Printer
from downrange.app.commands.output import Form, Record, Table, write
from downrange.client.errors import BrokerRefusal
from downrange.client.message import ReceivedMessage
from downrange.client.settings import ClientSettings

EVIL = "a\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\r"


class Terminal(io.TextIOWrapper):
    """Standard output that is, or is not, a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        self.bytes = io.BytesIO()
        super().__init__(self.bytes, encoding="utf-8")
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    @property
    def written(self) -> str:
        self.flush()
        return self.bytes.getvalue().decode(errors="surrogateescape")


def is_safe(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize("form", list(Form))
def test_results_cannot(form: Form, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(("client_id",), [{"client_id": EVIL, "tags": [EVIL], "more": {EVIL: EVIL}}])
    write(table, form)
    write(Record({"client_id": EVIL, "tags": [EVIL], "more": {EVIL: EVIL}}, {"all": table}), form)
    text = capsys.readouterr().out
    assert is_safe(text)
    assert "owned" in text


def test_json_still_says_what_it_said(capsys: pytest.CaptureFixture[str]) -> None:
    write(Record({"client_id": EVIL}), Form.JSON)
    assert json.loads(capsys.readouterr().out) == {"client_id": EVIL}


def test_errors_and_notes_cannot(capsys: pytest.CaptureFixture[str]) -> None:
    def refused() -> None:
        raise BrokerRefusal(1, EVIL, "127.0.0.1:10911")

    with pytest.raises(typer.Exit):
        frame._end(refused, Form.TABLE)  # what every command goes through
    frame.Call(Form.TABLE, ClientSettings(name_servers=("127.0.0.1:9876",))).note(EVIL)
    text = capsys.readouterr().err
    assert is_safe(text)
    assert text.count("owned") == 2


def test_bodies_cannot_and_a_pipe_gets_them_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    message = ReceivedMessage(
        "orders", EVIL.encode() + b"\xff", 0, 1, 2, 3, 0, 4, bytes(8), 5, bytes(8), 0, 0, 6, 0, b""
    )
    shown = []
    for is_terminal in (True, False):
        terminal = Terminal(is_terminal=is_terminal)
        monkeypatch.setattr(sys, "stdout", terminal)
        Printer(Form.TABLE, "%q\\t%b\\n", None).take([message])
        shown.append(terminal.written)
    assert shown[0].startswith("1\t")
    assert is_safe(shown[0].replace("\t", " "))
    assert shown[1] == f"1\t{EVIL}\udcff\n"
