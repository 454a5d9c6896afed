"""The time by which files expire: wall time, but a step forward does not age files.

File ages are differences of wall times, so a wall clock that is set forward by a year makes every
file look expired. A forward step is therefore left out for as long as files are kept: after that
time every file written before the step has really expired, and those written after it carry the
new time. A step back needs no care, because files then expire later.
"""

import logging

from downrange.runtime.clock import Clock, monotonic_ms

_log = logging.getLogger(__name__)
STEP_MS_MIN = 60_000  # below it: the clock is being slewed, or a round came late


class ExpiryClock:
    """Reads the wall clock, compares it with the monotonic one, and leaves out forward steps."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall_ms = clock.wall_ms()
        self._monotonic_ms = monotonic_ms(clock)
        self._ahead_ms = 0
        self._stepped_at_ms = 0  # monotonic

    def start(self, last_ms: int, kept_ms: int) -> None:
        """The store opens; its last message is from `last_ms`, 0 if none is known.

        Nothing tells a long rest from a clock that was set forward meanwhile. Where all files
        would expire at once, the rest does not age them.
        """
        rest_ms = self._clock.wall_ms() - last_ms
        if last_ms and rest_ms > kept_ms:
            self._leave_out(rest_ms, kept_ms)

    def now_ms(self, kept_ms: int) -> int:
        """The wall time without the forward steps of the last `kept_ms`."""
        wall_ms, now_ms = self._clock.wall_ms(), monotonic_ms(self._clock)
        step_ms = (wall_ms - self._wall_ms) - (now_ms - self._monotonic_ms)
        self._wall_ms, self._monotonic_ms = wall_ms, now_ms
        if now_ms - self._stepped_at_ms >= kept_ms:
            self._ahead_ms = 0
        if step_ms >= STEP_MS_MIN:
            self._leave_out(step_ms, kept_ms)
        elif step_ms <= -STEP_MS_MIN:
            self._ahead_ms = max(self._ahead_ms + step_ms, 0)
        return wall_ms - self._ahead_ms

    def _leave_out(self, step_ms: int, kept_ms: int) -> None:
        self._ahead_ms += step_ms
        self._stepped_at_ms = monotonic_ms(self._clock)
        _log.warning(
            "wall clock: %.1f h ahead of the time that has passed; for %.1f h log files expire "
            "without this difference",
            step_ms / 3_600_000,
            kept_ms / 3_600_000,
        )
