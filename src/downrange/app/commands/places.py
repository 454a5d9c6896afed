"""Places in a queue and times, as they are written on a command line."""

import re
from datetime import datetime
from typing import Final

from downrange.admin.errors import WrongRequestError
from downrange.admin.offset_plan import Target, TargetKind

PLACES: Final = "beginning, end, an offset, -COUNT (that many before the end), or a time"
TIMES: Final = "2026-01-31T12:00 (with +01:00 or Z, else local), 15m ago as 15m, or ms since 1970"
OFFSET_MAX: Final = 100_000_000_000  # larger numbers are milliseconds since 1970: from 1973 on
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])", re.ASCII)
_ENDS: Final = {
    "beginning": TargetKind.EARLIEST,
    "earliest": TargetKind.EARLIEST,
    "first": TargetKind.EARLIEST,
    "end": TargetKind.LATEST,
    "latest": TargetKind.LATEST,
    "last": TargetKind.LATEST,
}


def parse_place(text: str, now_ms: int) -> Target:
    """A place in every queue; `WrongRequestError` says how to write one."""
    text = text.strip()
    if text in _ENDS:
        return Target(_ENDS[text])
    if text.isdecimal() and text.isascii() and int(text) < OFFSET_MAX:
        return Target(TargetKind.OFFSET, int(text))
    if text[:1] == "-" and text[1:].isdecimal() and text.isascii():
        return Target(TargetKind.SHIFT, -int(text[1:]))
    try:
        return Target(TargetKind.TIME, parse_time(text, now_ms))
    except WrongRequestError:
        raise WrongRequestError(f"{text!r} is no place in a queue; write {PLACES}") from None


def parse_time(text: str, now_ms: int) -> int:
    """Milliseconds since 1970; `WrongRequestError` says how to write a time."""
    text = text.strip()
    if text == "now":
        return now_ms
    if text.isdecimal() and text.isascii():
        return int(text)
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now_ms - round(float(ago[1]) * _UNITS_MS[ago[2]])
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise WrongRequestError(f"{text!r} is no time; write {TIMES}") from None
