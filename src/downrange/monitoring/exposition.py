"""Prometheus' text format, version 0.0.4: families of samples with labels."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
Kind = Literal["counter", "gauge", "histogram"]
Labels = Mapping[str, str]


@dataclass(slots=True)
class Family:
    """All samples of one name."""

    name: str
    kind: Kind
    about: str
    samples: list[tuple[str, dict[str, str], float]] = field(default_factory=list)

    def add(self, value: float, **labels: str) -> None:
        """One number."""
        self.samples.append(("", labels, value))

    def add_histogram(
        self, bounds: Sequence[float], counts: Sequence[int], total: float, **labels: str
    ) -> None:
        """How many values fell below each bound; the last count is for all beyond the bounds."""
        assert len(counts) == len(bounds) + 1
        passed = 0
        for bound, count in zip((*bounds, math.inf), counts, strict=True):
            passed += count
            self.samples.append(("_bucket", {**labels, "le": _number(bound)}, passed))
        self.samples.append(("_sum", labels, total))
        self.samples.append(("_count", labels, passed))


def render(families: Iterable[Family], labels: Labels | None = None) -> bytes:
    """The whole page; the given labels are on every sample. A family without samples is left out.

    Families of one name are written as one, as the format demands.
    """
    by_name: dict[str, Family] = {}
    for family in families:
        known = by_name.setdefault(family.name, Family(family.name, family.kind, family.about))
        assert known.kind == family.kind, family.name
        known.samples.extend(family.samples)
    lines: list[str] = []
    for family in by_name.values():
        if family.samples:
            about = family.about.replace("\\", r"\\").replace("\n", r"\n")
            lines.append(f"# HELP {family.name} {about}")
            lines.append(f"# TYPE {family.name} {family.kind}")
            lines.extend(_line(family.name, sample, labels or {}) for sample in family.samples)
    return ("\n".join(lines) + "\n").encode() if lines else b""


def with_labels(families: Iterable[Family], labels: Labels) -> list[Family]:
    """The same samples with more labels; theirs win."""
    return [
        Family(
            family.name,
            family.kind,
            family.about,
            [(suffix, {**labels, **own}, value) for suffix, own, value in family.samples],
        )
        for family in families
    ]


def _line(name: str, sample: tuple[str, dict[str, str], float], common: Labels) -> str:
    suffix, own, value = sample
    labels = {**common, **own}
    if not labels:
        return f"{name}{suffix} {_number(value)}"
    text = ",".join(f'{key}="{_escaped(content)}"' for key, content in labels.items())
    return f"{name}{suffix}{{{text}}} {_number(value)}"


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
