"""Keeps one place in the program from filling the log.

A peer can cause the same warning thousands of times per second. Each call site (logger, level and
message template) may log some lines per period; what is beyond is counted, and a summary tells how
many lines are missing. Errors are never held back.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TextIO

LINES_PER_PERIOD: Final = 50
PERIOD_S: Final = 10.0
SITES_MAX: Final = 1_000  # there are about 200 in this program; others may format before they log
_TEMPLATE_CHARS_MAX: Final = 200

_Site = tuple[str, int, str]  # logger, level, message template
_REST: Final[_Site] = ("", logging.INFO, "lines of other call sites")


@dataclass(slots=True)
class _Count:
    """The lines of a call site since the period began."""

    began_s: float
    lines: int = 0


class LogLimit:
    """Decides which records are logged. Not for several threads: a handler has a lock."""

    def __init__(
        self,
        monotonic_s: Callable[[], float],
        *,
        lines_per_period: int = LINES_PER_PERIOD,
        period_s: float = PERIOD_S,
        sites_max: int = SITES_MAX,
    ) -> None:
        self._monotonic_s = monotonic_s
        self._lines_per_period = lines_per_period
        self._period_s = period_s
        self._sites_max = sites_max
        self._counts: dict[_Site, _Count] = {}

    def admits(self, record: logging.LogRecord) -> bool:
        """Whether to log it; ask for `due_summaries` first."""
        if record.levelno > logging.WARNING:
            return True
        site = (record.name, record.levelno, str(record.msg)[:_TEMPLATE_CHARS_MAX])
        if site not in self._counts and len(self._counts) >= self._sites_max:
            site = _REST
        count = self._counts.get(site)
        if count is None:
            count = self._counts[site] = _Count(self._monotonic_s())
        count.lines += 1
        return count.lines <= self._lines_per_period

    def due_summaries(self, *, all_of_them: bool = False) -> Iterator[logging.LogRecord]:
        """A record for each call site whose period is over and that had lines held back."""
        now_s = self._monotonic_s()
        over = []
        for site, count in self._counts.items():
            # They are in the order in which their periods began.
            if now_s - count.began_s < self._period_s and not all_of_them:
                break
            over.append((site, count))
        for site, count in over:
            del self._counts[site]
            suppressed = count.lines - self._lines_per_period
            if suppressed > 0:
                yield self._summary(site, suppressed)

    def _summary(self, site: _Site, suppressed: int) -> logging.LogRecord:
        name, level, template = site
        arguments = (suppressed, self._period_s, template)
        text = "suppressed %d similar lines in %.0f s: %s"
        return logging.LogRecord(name or __name__, level, __file__, 0, text, arguments, None)


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes records to a stream, as many as the limit admits."""

    def __init__(self, stream: TextIO, limit: LogLimit) -> None:
        super().__init__(stream)
        self._limit = limit

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, after the summaries that are due."""
        for summary in self._limit.due_summaries():
            super().emit(summary)
        if self._limit.admits(record):
            super().emit(record)

    def report_suppressed(self) -> None:
        """Write the summaries that are due; for an owner with a timer, when nothing is logged."""
        self._emit_summaries(all_of_them=False)

    def close(self) -> None:
        """Write what is known of suppressed lines, due or not."""
        self._emit_summaries(all_of_them=True)
        super().close()

    def _emit_summaries(self, *, all_of_them: bool) -> None:
        self.acquire()
        try:
            for summary in self._limit.due_summaries(all_of_them=all_of_them):
                super().emit(summary)
        finally:
            self.release()
