"""Lines of the log, whatever peers put into them."""

import json
import logging
import sys

import pytest

from downrange.runtime.log_lines import (
    MESSAGE_CHARS_MAX,
    TRACEBACK_CHARS_MAX,
    JsonFormatter,
    OneLineFormatter,
)

FORGED = "x\r\n2026-01-01T00:00:00.000 ERROR downrange: all is lost\x1b[2J\u2028\x85\ud800"


def record(text: str, *arguments: object, error: BaseException | None = None) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord("a.b", logging.ERROR, "f", 1, text, arguments, info)


def failure(text: str) -> BaseException:
    try:
        raise ValueError(text)  # noqa: TRY301 - it needs a traceback
    except ValueError as error:
        return error


@pytest.mark.parametrize("formatter", [OneLineFormatter(), JsonFormatter()])
def test_a_peer_can_forge_no_line_and_drive_no_terminal(formatter: logging.Formatter) -> None:
    for event in (
        record("client %s is gone", FORGED),
        record(FORGED),
        record("it broke", error=failure(FORGED)),
    ):
        line = formatter.format(event)
        assert len(line.splitlines()) == 1
        assert line.isprintable()
        assert "all is lost" in line


def test_a_message_has_a_bounded_length_and_says_what_is_missing() -> None:
    line = OneLineFormatter().format(record("name %s", "x" * 100_000))
    assert len(line) < MESSAGE_CHARS_MAX + 100
    assert line.endswith(f"... ({100_005 - MESSAGE_CHARS_MAX} more characters)")
    event = json.loads(JsonFormatter().format(record("name %s", "x" * 100_000)))
    assert len(event["message"]) < MESSAGE_CHARS_MAX + 100
    escaped = OneLineFormatter().format(record("\x00" * 100_000))
    assert len(escaped) < 4 * MESSAGE_CHARS_MAX + 100


def test_a_traceback_keeps_its_lines_and_its_end() -> None:
    error = failure("two\nlines")
    line = OneLineFormatter().format(record("it broke", error=error))
    assert "it broke | Traceback (most recent call last): | " in line
    assert line.endswith("| ValueError: two | lines")
    event = json.loads(JsonFormatter().format(record("it broke", error=error)))
    assert event["exception"].endswith("ValueError: two\nlines")
    long = OneLineFormatter().format(record("it broke", error=failure("y" * 50_000 + "end")))
    assert len(long) < TRACEBACK_CHARS_MAX + 500
    assert long.endswith("yend")
    assert "more characters" in long


def test_a_line_begins_with_time_level_and_logger() -> None:
    event = record("hello")
    event.created, event.msecs = 1_700_000_000.25, 250.0
    line = OneLineFormatter().format(event)
    assert line.endswith(".250 ERROR a.b: hello")
    assert line.startswith("2023-11-1")


def test_the_stack_is_shown_where_it_is_asked_for() -> None:
    event = record("here")
    event.stack_info = f"Stack (most recent call last):\n  {sys.version_info.major}"
    assert "here | Stack (most recent call last): |   3" in OneLineFormatter().format(event)
