"""No call site fills the log, and what is missing is said."""

import io
import logging

from downrange.runtime.log_limit import (
    LINES_PER_PERIOD,
    PERIOD_S,
    SITES_MAX,
    LimitedHandler,
    LogLimit,
)


class Log:
    """A logger that writes into memory, at a time that the test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._out = io.StringIO()
        self.handler = LimitedHandler(self._out, LogLimit(lambda: self.now_s))
        self.handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        self.logger = logging.Logger("test")  # noqa: LOG001 - known to nobody else
        self.logger.addHandler(self.handler)

    def lines(self) -> list[str]:
        """What was written since the last question."""
        text = self._out.getvalue()
        self._out.seek(0)
        self._out.truncate()
        return text.splitlines()


def test_a_flood_from_one_place_is_cut_and_the_rest_is_counted() -> None:
    log = Log()
    for number in range(1_000):
        log.logger.warning("client %s sends nonsense", number)
    assert len(log.lines()) == LINES_PER_PERIOD
    log.logger.warning("something else")
    assert log.lines() == ["WARNING something else"]
    log.now_s += PERIOD_S
    log.logger.warning("client %s sends nonsense", "again")
    missing = 1_000 - LINES_PER_PERIOD
    assert log.lines() == [
        f"WARNING suppressed {missing} similar lines in 10 s: client %s sends nonsense",
        "WARNING client again sends nonsense",
    ]


def test_errors_are_never_held_back() -> None:
    log = Log()
    for _ in range(1_000):
        log.logger.error("the disk failed")
    assert len(log.lines()) == 1_000


def test_levels_of_one_text_are_counted_apart() -> None:
    log = Log()
    for _ in range(100):
        log.logger.info("it happened")
    log.logger.warning("it happened")
    assert log.lines()[-1] == "WARNING it happened"


def test_the_count_is_told_without_another_line_and_at_the_end() -> None:
    log = Log()
    for _ in range(LINES_PER_PERIOD + 2):
        log.logger.info("hello")
    log.lines()
    log.handler.report_suppressed()
    assert log.lines() == []
    log.now_s += PERIOD_S
    log.handler.report_suppressed()
    assert log.lines() == ["INFO suppressed 2 similar lines in 10 s: hello"]
    for _ in range(LINES_PER_PERIOD + 1):
        log.logger.info("hello")
    log.lines()
    log.handler.close()
    assert log.lines() == ["INFO suppressed 1 similar lines in 10 s: hello"]


def test_lines_that_were_formatted_before_they_were_logged_are_limited_together() -> None:
    log = Log()
    for number in range(SITES_MAX + 10 * LINES_PER_PERIOD):
        log.logger.warning(f"client {number} sends nonsense")  # noqa: G004 - as others do
    assert len(log.lines()) == SITES_MAX + LINES_PER_PERIOD
    log.now_s += PERIOD_S
    log.handler.report_suppressed()
    (line,) = log.lines()
    assert line.startswith(f"INFO suppressed {9 * LINES_PER_PERIOD} similar lines")


def test_slow_lines_are_all_logged() -> None:
    log = Log()
    for _ in range(10 * LINES_PER_PERIOD):
        log.now_s += PERIOD_S / LINES_PER_PERIOD
        log.logger.info("now and then")
    assert len(log.lines()) == 10 * LINES_PER_PERIOD
