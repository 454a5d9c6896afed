"""Revenue by hour and region as stacked bars, in an SVG file that any browser shows."""

from collections.abc import Sequence
from datetime import datetime
from html import escape
from typing import Final

from examples.demo.results import Revenue

WIDTH: Final = 960
HEIGHT: Final = 420
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 60, 50
COLOURS: Final = ("#35618f", "#e07b39", "#5c9e6b", "#8d6a9f", "#b5443c", "#6b6b6b")
LINES: Final = 5
CENTS: Final = 100


def draw(rows: Sequence[Revenue], title: str) -> str:
    """The picture as text."""
    regions = sorted({row.region for row in rows})
    hours = sorted({row.hour for row in rows})
    cents = {(row.hour, row.region): row.cents for row in rows}
    totals = [sum(cents.get((hour, region), 0) for region in regions) for hour in hours]
    top = _round_up(max(totals, default=0) / CENTS)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="18">{escape(title)}</text>',
        *_grid(top),
        *_legend(regions),
    ]
    step = (WIDTH - LEFT - RIGHT) / max(len(hours), 1)
    for number, hour in enumerate(hours):
        x = LEFT + number * step
        parts.extend(_bar(x, step, [cents.get((hour, region), 0) for region in regions], top))
        if number % 2 == 0:
            parts.append(_hour_label(x + step / 2, hour))
    parts.append("</svg>\n")
    return "\n".join(parts)


def _bar(x: float, step: float, values: list[int], top: float) -> list[str]:
    parts, y = [], float(HEIGHT - BOTTOM)
    for index, value in enumerate(values):
        height = value / CENTS / top * (HEIGHT - TOP - BOTTOM)
        y -= height
        parts.append(
            f'<rect x="{x + 2:.1f}" y="{y:.1f}" width="{step - 4:.1f}" height="{height:.1f}" '
            f'fill="{COLOURS[index % len(COLOURS)]}"/>'
        )
    return parts


def _grid(top: float) -> list[str]:
    parts = []
    for line in range(LINES + 1):
        y = HEIGHT - BOTTOM - line * (HEIGHT - TOP - BOTTOM) / LINES
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        )
        value = f"{top * line / LINES:,.0f}"
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value}</text>')
    return parts


def _legend(regions: list[str]) -> list[str]:
    parts = []
    for index, region in enumerate(regions):
        x = LEFT + index * 100
        colour = COLOURS[index % len(COLOURS)]
        parts.append(f'<rect x="{x}" y="36" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18}" y="47">{escape(region)}</text>')
    return parts


def _hour_label(x: float, hour: datetime) -> str:
    return f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{hour:%H:%M}</text>'


def _round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50 and so on, so that the lines have round numbers."""
    power = 1.0
    while power * 10 <= value:
        power *= 10
    return next((power * step for step in (1, 2, 5, 10) if power * step >= value), power * 10)
