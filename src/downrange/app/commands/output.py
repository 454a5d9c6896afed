"""Prints results: a table for people, JSON for programs.

The table goes through rich when a person looks at it; in a pipe it is plain columns, never cut.
Peers choose much of what is printed, so nothing in it can drive a terminal.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from downrange.runtime.printable import printable, printable_json

Value: TypeAlias = "str | int | float | bool | Sequence[Value] | Mapping[str, Value] | None"
Row: TypeAlias = Mapping[str, Value]
NOTHING: Final = "-"
GAP: Final = "  "


class Form(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of the same kind; `columns` are those that a person wants, JSON has all."""

    columns: Sequence[str]
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Record:
    """One thing: its facts, and tables that belong to it."""

    facts: Row
    tables: Mapping[str, Table] = field(default_factory=dict)


Shown: TypeAlias = Table | Record


def write(shown: Shown, form: Form) -> None:
    """Print a result."""
    if form is Form.TABLE:
        _write_for_people(shown)
        return
    if isinstance(shown, Record):
        tables = {name: list(table.rows) for name, table in shown.tables.items()}
        values: list[Row] = [{**shown.facts, **tables}]
    else:
        values = list(shown.rows)
    if form is Form.JSONL:
        for value in values:
            write_line(value)
    else:
        whole = values[0] if isinstance(shown, Record) else values
        sys.stdout.write(printable_json(json.dumps(whole, indent=2, ensure_ascii=False)) + "\n")


def write_line(value: Row) -> None:
    """Print one JSON object on a line."""
    sys.stdout.write(printable_json(msgspec.json.encode(value).decode()) + "\n")


def cell(name: str, value: Value) -> str:
    """A value as a person wants to read it; names say what a number is."""
    if value is None or value in ("", [], {}):
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith("_ms"):
        return time_text(value)
    if isinstance(value, float):
        return f"{value:.0%}" if name.endswith("_ratio") else f"{value:.1f}"
    if isinstance(value, Mapping):
        return ", ".join(f"{printable(key)}={cell(key, one)}" for key, one in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(cell(name, one) for one in value)
    return printable(str(value))


def time_text(time_ms: int) -> str:
    """A time for people, in their own zone; "-" if there is none."""
    if time_ms <= 0:
        return NOTHING
    try:
        time = datetime.fromtimestamp(time_ms / 1000, tz=UTC).astimezone()
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
    return time.strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ms % 1000:03}"


def _write_for_people(shown: Shown) -> None:
    if isinstance(shown, Table):
        _write_table(shown)
        return
    width = max((len(_title(name)) for name in shown.facts), default=0)
    for name, value in shown.facts.items():
        sys.stdout.write(f"{_title(name):{width}}{GAP}{cell(name, value)}\n")
    for name, table in shown.tables.items():
        sys.stdout.write(f"\n{_title(name)}\n")
        _write_table(table)


def _write_table(table: Table) -> None:
    lines = [[cell(name, row.get(name)) for name in table.columns] for row in table.rows]
    are_numbers = [
        not name.endswith("_ms") and all(_is_number(row.get(name)) for row in table.rows)
        for name in table.columns
    ]
    headings = [_title(name) for name in table.columns]
    if sys.stdout.isatty():
        _write_rich(headings, lines, are_numbers)
    else:
        _write_plain(headings, lines, are_numbers)


def _is_number(value: Value) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _write_plain(
    headings: Sequence[str], lines: Sequence[Sequence[str]], are_numbers: Sequence[bool]
) -> None:
    headings = [heading.upper() for heading in headings]
    widths = [max(map(len, column)) for column in zip(headings, *lines, strict=True)]
    for line in [headings, *lines]:
        cells = [
            text.rjust(width) if is_number else text.ljust(width)
            for text, width, is_number in zip(line, widths, are_numbers, strict=True)
        ]
        sys.stdout.write(GAP.join(cells).rstrip() + "\n")


def _write_rich(
    headings: Sequence[str], lines: Sequence[Sequence[str]], are_numbers: Sequence[bool]
) -> None:
    # Loaded here: a program that reads our output must not wait for it.
    from rich import box  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table as RichTable  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading, is_number in zip(headings, are_numbers, strict=True):
        shown.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for line in lines:
        shown.add_row(*(Text(text) for text in line))
    Console(file=sys.stdout, highlight=False).print(shown)


def _title(name: str) -> str:
    return name.removesuffix("_ms").removesuffix("_ratio").replace("_", " ")
