"""Tables for the terminal, and as CSV."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

Cell = str | int | float | datetime | None


@dataclass(frozen=True, slots=True)
class Table:
    """A title, names of columns, and rows."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def lines(self) -> list[str]:
        """As text: numbers to the right, everything else to the left."""
        texts = [[cell_text(cell) for cell in row] for row in self.rows]
        widths = [
            max([len(name), *(len(row[at]) for row in texts)])
            for at, name in enumerate(self.columns)
        ]
        found = [self.title, _padded(self.columns, widths, self.columns)]
        found += [_padded(text, widths, row) for text, row in zip(texts, self.rows, strict=True)]
        return found

    def csv(self) -> str:
        """As CSV with a line of names."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([cell_text(cell) for cell in row] for row in self.rows)
        return out.getvalue()


def cell_text(cell: Cell) -> str:
    """A cell as people read it."""
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.1f}"
    if isinstance(cell, datetime):
        return cell.isoformat(sep=" ", timespec="seconds")
    return str(cell)


def _padded(texts: Sequence[str], widths: Sequence[int], row: Sequence[Cell]) -> str:
    cells = [
        text.rjust(width) if isinstance(cell, int | float) else text.ljust(width)
        for text, width, cell in zip(texts, widths, row, strict=True)
    ]
    return "  ".join(cells).rstrip()
