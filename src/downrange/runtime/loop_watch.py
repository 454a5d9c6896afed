"""Which callbacks hold up an event loop, for how long, and what they served.

Callers measure in laps: `begin` starts the stopwatch, `lap` reads it and restarts it. A lap costs
one look at the clock, so the caller takes one per group of requests, per job, or per step of a
task, and describes its work only when `lap` says that it was long:

    watch.begin()
    serve(group)
    if watch.lap():
        watch.note(f"{len(group)} connections")

`tick` is called every `TICK_S`. It finds what nobody measured: a loop that is later than the laps
since the last tick explain.

Time in which the loop's thread was ready but another process had the processor is not the
callback's fault: it counts neither as a long callback nor as a line in the log.
"""

import logging
import time
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Final, TypeVar

_log = logging.getLogger(__name__)

LIMIT_MS: Final = 50
TICK_S: Final = 0.05
WINDOW_S: Final = 60.0
LOG_INTERVAL_S: Final = 10.0
NOTABLE_S_MIN: Final = 0.001  # shorter laps are not worth a description
SUBJECT_CHARACTERS_MAX: Final = 200

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Lap:
    """How long one callback held the loop, and what it served."""

    seconds: float = 0.0
    subject: str = ""


class LoopWatch:
    """The stopwatch of one event loop. Owned by that loop and used on it only.

    `total_s` is the time of all laps since `begin`. `busy_s` is the same, but a single lap counts
    for at most `lap_s_counted`: one long lap is a pause (of the machine, the disk, or one request),
    several are a backlog.
    """

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        waited_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.now_s = now_s
        self._waited_s = waited_s  # for a processor, so far
        self._waited_at_tick_s = 0.0
        self.limit_s = LIMIT_MS / 1000
        self.lap_s_counted = float("inf")
        self.busy_s = 0.0
        self.total_s = 0.0
        self.late_s = 0.0
        self.beyond_count = 0
        self._begin_s = 0.0
        self._lap_s = 0.0
        self._notable_s = NOTABLE_S_MIN
        self._current = Lap()
        self._last = Lap()
        self._window_end_s: float | None = None
        self._due_s: float | None = None
        self._measured_s = 0.0  # all laps since the last tick
        self._logged_s = float("-inf")
        self._unlogged = 0

    @property
    def longest(self) -> Lap:
        """The longest callback of the current and the last minute."""
        return max(self._current, self._last, key=lambda lap: lap.seconds)

    def begin(self) -> None:
        """A callback begins."""
        self._measured_s += self.total_s
        self.busy_s = self.total_s = 0.0
        self._begin_s = self.now_s()

    def lap(self) -> bool:
        """A step of the callback ends; True if it was long enough to `note` what it served."""
        now_s = self.now_s()
        self._lap_s = lap_s = now_s - self._begin_s
        self._begin_s = now_s
        self.total_s += lap_s
        # `min` would be a call more on the path of every send.
        self.busy_s += lap_s if lap_s < self.lap_s_counted else self.lap_s_counted  # noqa: FURB136
        return lap_s > self._notable_s

    def note(self, subject: str) -> None:
        """Say what the last lap served."""
        self._record(Lap(self._lap_s, subject[:SUBJECT_CHARACTERS_MAX]))

    def note_total(self, subject: str) -> None:
        """Say what all laps since `begin` served; for a callback of many short laps."""
        if self.total_s > self.limit_s and self.total_s > self._current.seconds:
            self._record(Lap(self.total_s, subject[:SUBJECT_CHARACTERS_MAX]))

    def tick(self) -> None:
        """Compare the clock with when this call was due; called every `TICK_S`."""
        now_s = self.now_s()
        if self._window_end_s is None or now_s >= self._window_end_s:
            if self._window_end_s is not None:
                self._last, self._current = self._current, Lap()
                self._notable_s = min(NOTABLE_S_MIN, self.limit_s)
            self._window_end_s = now_s + WINDOW_S
        if self._due_s is not None:
            self.late_s = max(now_s - self._due_s, 0.0)
            unknown_s = self.late_s - self._measured_s - self.total_s
            if unknown_s > self.limit_s:
                self._record(Lap(unknown_s, "a callback that is not watched"))
        self._measured_s = self.total_s = 0.0
        self._waited_at_tick_s = self._waited_s()
        self._due_s = now_s + TICK_S

    def watched(self, name: str, coroutine: Coroutine[None, None, T]) -> "Coroutine[None, None, T]":
        """The same coroutine, each of its steps measured."""
        return _WatchedCoroutine(self, name, coroutine)

    def _record(self, lap: Lap) -> None:
        if lap.seconds > self.limit_s:
            # Since the last tick is a little too long: in doubt the machine is to blame.
            waited_s = self._waited_s() - self._waited_at_tick_s
            lap = Lap(max(lap.seconds - waited_s, 0.0), lap.subject)
        if lap.seconds > self._current.seconds:
            self._current = lap
            self._notable_s = min(lap.seconds, self.limit_s)
        if lap.seconds <= self.limit_s:
            return
        self.beyond_count += 1
        now_s = self.now_s()
        if now_s - self._logged_s < LOG_INTERVAL_S:
            self._unlogged += 1
            return
        _log.warning(
            "event loop: blocked for %.0f ms by %s; the limit is %.0f ms%s",
            lap.seconds * 1000,
            lap.subject,
            self.limit_s * 1000,
            f"; {self._unlogged} more since the last report" if self._unlogged else "",
        )
        self._logged_s = now_s
        self._unlogged = 0


class _WatchedCoroutine(Coroutine[None, None, T]):
    """Passes everything on; measures from being resumed to waiting again."""

    def __init__(self, watch: LoopWatch, name: str, coroutine: Coroutine[None, None, T]) -> None:
        self._watch = watch
        self._name = name
        self._coroutine = coroutine

    def send(self, value: None) -> None:
        """Run the next step."""
        self._watch.begin()
        try:
            return self._coroutine.send(value)
        finally:
            self._lap()

    def throw(self, *error: object) -> None:
        """Run the next step with an exception."""
        self._watch.begin()
        try:
            return self._coroutine.throw(*error)  # type: ignore[call-overload,no-any-return]
        finally:
            self._lap()

    def close(self) -> None:
        """End the coroutine."""
        self._coroutine.close()

    def __await__(self) -> Generator[None, None, T]:
        return self._coroutine.__await__()

    def _lap(self) -> None:
        if self._watch.lap():
            self._watch.note(self._name)
