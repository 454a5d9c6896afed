"""How an event becomes a line of the log: one line each, of bounded length, safe to show.

Peers choose parts of many lines (client ids, addresses, error texts), so nothing in a message can
begin another line, drive a terminal or fill the disk. Programs that embed a server can give these
formatters to handlers of their own.
"""

import logging
import time
from typing import Final

import msgspec

from downrange.runtime.printable import printable, shortened, shortened_left

MESSAGE_CHARS_MAX: Final = 4_000  # an error text with a path or two is far below it
TRACEBACK_CHARS_MAX: Final = 16_000  # some hundred lines; what matters is at its end


class OneLineFormatter(logging.Formatter):
    """One line per event, so that a log can be searched; a traceback is folded into its line."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(levelname)s %(name)s: ")
        self.datefmt = "%Y-%m-%dT%H:%M:%S"

    def format(self, record: logging.LogRecord) -> str:
        """The whole event on one line."""
        record.asctime = self.formatTime(record, self.datefmt)
        line = self.formatMessage(record) + _message(record)
        traceback = _traceback(self, record)
        return f"{line} | {' | '.join(traceback)}" if traceback else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line, for programs that read logs."""

    def format(self, record: logging.LogRecord) -> str:
        """The whole event as an object."""
        seconds, rest_ms = divmod(round(record.created * 1000), 1000)
        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        event = {
            "time": f"{second}.{rest_ms:03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
        }
        traceback = _traceback(self, record)
        if traceback:
            event["exception"] = "\n".join(traceback)
        return msgspec.json.encode(event).decode()


def _message(record: logging.LogRecord) -> str:
    # Cut first: escaping a text of many megabytes would take long.
    return printable(shortened(record.getMessage(), MESSAGE_CHARS_MAX))


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    parts = []
    if record.exc_info and record.exc_info[0] is not None:
        parts.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    text = shortened_left("\n".join(parts), TRACEBACK_CHARS_MAX)
    return [printable(line) for line in text.split("\n")] if text else []
