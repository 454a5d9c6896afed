"""Prometheus' text format, version 0.0.4: families of samples with labels.

A page is collected in small steps, so that its owner can serve others between them. A sample
becomes its line of text at once; what many lines share (labels of a server, of a group) is escaped
once.
"""

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
Kind = Literal["counter", "gauge", "histogram"]
Labels = Mapping[str, str]
Steps = Iterator[None]  # work that pauses after each item

_LINES_PER_STEP: Final = 20  # joining and encoding a line is cheaper than making it


@dataclass(frozen=True, slots=True)
class _Lines:
    """All samples of one name, whichever server they are of."""

    kind: Kind
    about: str
    lines: list[str] = field(default_factory=list)


class Family:
    """Where samples of one name and one server are added."""

    __slots__ = ("_common", "_lines", "_name")

    def __init__(self, name: str, common: str, lines: list[str]) -> None:
        self._name = name
        self._common = common
        self._lines = lines

    def add(self, value: float, **labels: str) -> None:
        """Add a number."""
        self.add_labelled(label_text(labels), value)

    def add_labelled(self, labels: str, value: float) -> None:
        """Add a number whose labels were escaped before, by `label_text`."""
        common = self._common
        both = f"{common},{labels}" if common and labels else common or labels
        number = value if isinstance(value, int) else _number(value)
        self._lines.append(f"{self._name}{{{both}}} {number}" if both else f"{self._name} {number}")

    def add_histogram(
        self, bounds: Sequence[float], counts: Sequence[int], total: float, **labels: str
    ) -> None:
        """Add how many values fell below each bound; the last count is for all beyond them."""
        assert len(counts) == len(bounds) + 1
        buckets = Family(f"{self._name}_bucket", self._common, self._lines)
        below = 0
        for bound, count in zip((*bounds, math.inf), counts, strict=True):
            below += count
            buckets.add(below, **labels, le=_number(bound))
        Family(f"{self._name}_sum", self._common, self._lines).add(total, **labels)
        Family(f"{self._name}_count", self._common, self._lines).add(below, **labels)


class Exposition:
    """A page that is being collected."""

    def __init__(self) -> None:
        self._families: dict[str, _Lines] = {}

    @property
    def names(self) -> list[str]:
        """The families that were asked for, with and without samples."""
        return list(self._families)

    def section(self, labels: Labels | None = None) -> "Section":
        """The part of one server: these labels are on all of its samples."""
        return Section(self._families, label_text(labels or {}))

    def rendered(self) -> Generator[None, None, bytearray]:
        """The page, made in steps, once. A family without samples is left out."""
        page = bytearray()
        for name, family in self._families.items():
            if not family.lines:
                continue
            about = family.about.replace("\\", r"\\").replace("\n", r"\n")
            page += f"# HELP {name} {about}\n# TYPE {name} {family.kind}\n".encode()
            for start in range(0, len(family.lines), _LINES_PER_STEP):
                lines = family.lines[start : start + _LINES_PER_STEP]
                page += ("\n".join(lines) + "\n").encode()
                yield
            family.lines.clear()
            yield
        return page


class Section:
    """What one server adds to a page."""

    def __init__(self, families: dict[str, _Lines], common: str) -> None:
        self._families = families
        self._common = common

    def family(self, name: str, kind: Kind, about: str) -> Family:
        """The family of this name; those of several servers are written as one."""
        known = self._families.setdefault(name, _Lines(kind, about))
        assert known.kind == kind, name
        return Family(name, self._common, known.lines)

    def gauge(self, name: str, about: str) -> Family:
        """A family of numbers that go up and down."""
        return self.family(name, "gauge", about)

    def counter(self, name: str, about: str) -> Family:
        """A family of numbers that only grow."""
        return self.family(name, "counter", about)


def label_text(labels: Labels) -> str:
    """Labels as they stand between the braces of a line."""
    return ",".join(f'{key}="{_escaped(content)}"' for key, content in labels.items())


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return repr(value)
