"""Tables and bars as one HTML page that needs nothing else: the charts are inline SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from downrange.spark.pipelines.text_table import Table, cell_text

WIDTH: Final = 720
LABEL: Final = 220
BAR: Final = 20
GAP: Final = 6
_COLOURS: Final = ("#4c78a8", "#f58518", "#e45756")
_STYLE: Final = (
    "body{font-family:sans-serif;margin:2em}table{border-collapse:collapse}"
    "td,th{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:left}"
    "td.n{text-align:right}"
)


@dataclass(frozen=True, slots=True)
class Bars:
    """A group of bars for each label, one for each series."""

    title: str
    unit: str
    series: Sequence[str]
    labels: Sequence[str]
    values: Sequence[Sequence[float]]


def page(title: str, parts: Sequence[Table | Bars]) -> str:
    """The whole page."""
    inner = "\n".join(svg(part) if isinstance(part, Bars) else _table(part) for part in parts)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        f"</title><style>{_STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n{inner}\n"
        "</body></html>\n"
    )


def svg(bars: Bars) -> str:
    """Bars from left to right, as long as their value."""
    most = max((value for row in bars.values for value in row), default=0.0) or 1.0
    block = BAR * len(bars.series) + GAP
    height = block * len(bars.labels) + 2 * BAR
    parts = [
        f"<h2>{escape(bars.title)}</h2>",
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'role="img" font-size="12">',
    ]
    for at, name in enumerate(bars.series):
        x = LABEL + at * 100
        parts.append(
            f'<rect x="{x}" y="2" width="12" height="12" fill="{_COLOURS[at % len(_COLOURS)]}"/>'
            f'<text x="{x + 16}" y="12">{escape(name)}</text>'
        )
    for row, (label, values) in enumerate(zip(bars.labels, bars.values, strict=True)):
        top = 2 * BAR + row * block
        parts.append(f'<text x="0" y="{top + BAR - 6}">{escape(label)}</text>')
        for at, value in enumerate(values):
            length = max(round((WIDTH - LABEL - 120) * value / most), 1)
            y = top + at * BAR
            parts.append(
                f'<rect x="{LABEL}" y="{y}" width="{length}" height="{BAR - 4}" '
                f'fill="{_COLOURS[at % len(_COLOURS)]}"/>'
                f'<text x="{LABEL + length + 4}" y="{y + BAR - 7}">'
                f"{escape(cell_text(value))} {escape(bars.unit)}</text>"
            )
    parts.append("</svg>")
    return "\n".join(parts)


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    rows = "\n".join(
        "<tr>"
        + "".join(
            f'<td class="n">{escape(cell_text(cell))}</td>'
            if isinstance(cell, int | float)
            else f"<td>{escape(cell_text(cell))}</td>"
            for cell in row
        )
        + "</tr>"
        for row in table.rows
    )
    return f"<h2>{escape(table.title)}</h2>\n<table><tr>{head}</tr>\n{rows}</table>"
