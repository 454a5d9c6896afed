"""Time of a loop with real sockets that a test can stop and move.

While it runs it is the machine's. Frozen, it stands still: sockets are served, timers wait. Moved,
it goes from timer to timer as fast as the loop can serve what they cause, and no timer sees more
time than it waited for.
"""

import asyncio
import heapq
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from downrange.runtime.clock import Clock, SystemClock

STEPS_MAX: Final = 1_000  # for a long way steps are wider than from timer to timer
STEP_S_MAX: Final = 10.0  # wider ones would make parts believe that others are gone
BUSY_TURNS_MAX: Final = 1_000  # a client that never rests does not hold up time


class DrivenTime:
    """A `Clock` for all parts of a cluster; `freeze` and `thaw` may be called from any thread."""

    def __init__(self, system: Clock | None = None) -> None:
        self._system = system or SystemClock()
        self._wall_ns = self._system.wall_ns()
        self._start_s = self._system.monotonic_s()
        self._ahead_s = 0.0
        self._frozen_s: float | None = None

    @property
    def is_frozen(self) -> bool:
        """Whether time stands still."""
        return self._frozen_s is not None

    def monotonic_s(self) -> float:
        """Seconds on the clock of the loop."""
        frozen_s = self._frozen_s
        return self._system.monotonic_s() + self._ahead_s if frozen_s is None else frozen_s

    def wall_ns(self) -> int:
        """Nanoseconds since 1970, as far as the cluster knows."""
        return self._wall_ns + int((self.monotonic_s() - self._start_s) * 1_000_000_000)

    def wall_ms(self) -> int:
        """The same in milliseconds."""
        return self.wall_ns() // 1_000_000

    def freeze(self) -> None:
        """Stand still from now on."""
        if self._frozen_s is None:
            self._frozen_s = self.monotonic_s()

    def thaw(self) -> None:
        """Go on from here."""
        frozen_s = self._frozen_s
        if frozen_s is not None:
            self._ahead_s = frozen_s - self._system.monotonic_s()
            self._frozen_s = None

    def jump_to(self, monotonic_s: float) -> None:
        """Frozen time is this now; for the loop alone."""
        assert self._frozen_s is not None
        assert monotonic_s >= self._frozen_s
        self._frozen_s = monotonic_s


@dataclass(slots=True)
class _Move:
    """A way that time has to go."""

    end_s: float
    step_s: float
    thaws: bool
    done: "Future[None]"
    busy_turns: int = 0


class DrivenLoop(asyncio.SelectorEventLoop):
    """A loop on a `DrivenTime`."""

    def __init__(self, driven: DrivenTime) -> None:
        self._driven = driven
        self._move: _Move | None = None
        super().__init__()

    def time(self) -> float:
        """Seconds on the driven clock."""
        return self._driven.monotonic_s()

    def begin_move(self, seconds: float, done: "Future[None]") -> None:
        """Let so much time pass; `done` is told. On the loop, one move at a time."""
        assert self._move is None
        driven = self._driven
        thaws = not driven.is_frozen
        driven.freeze()
        step_s = min(seconds / STEPS_MAX, STEP_S_MAX)
        self._move = _Move(driven.monotonic_s() + seconds, step_s, thaws, done)

    def _run_once(self) -> None:
        # asyncio offers no hook between "nothing is ready" and "wait for the next timer", so this
        # looks at its two queues, which have had these names since the module exists.
        if self._move is not None and not self._ready:  # type: ignore[attr-defined]
            self._step(self._move)
        super()._run_once()  # type: ignore[misc]

    def _step(self, move: _Move) -> None:
        """Jump to the next timer, unless there is something to read or a timer is due."""
        if self._selector.select(0) and move.busy_turns < BUSY_TURNS_MAX:  # type: ignore[attr-defined]
            move.busy_turns += 1
            return
        move.busy_turns = 0
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0].cancelled():
            heapq.heappop(scheduled)._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001
        now_s = self.time()
        due_s = scheduled[0].when() if scheduled else move.end_s
        if due_s <= now_s and scheduled:
            return
        if now_s >= move.end_s:
            self._move = None
            if move.thaws:
                self._driven.thaw()
            move.done.set_result(None)
            return
        self._driven.jump_to(min(max(due_s, now_s + move.step_s), move.end_s))
        self.call_soon(_nothing)  # or the loop would wait for the next timer in real time


def _nothing() -> None:
    """Keeps a loop from waiting."""


class TimeDriver:
    """Moves the time of a loop that runs in another thread."""

    def __init__(self, driven: DrivenTime) -> None:
        self._driven = driven
        self._loop: DrivenLoop | None = None
        self._one_move = threading.Lock()

    def new_loop(self) -> DrivenLoop:
        """The loop to drive."""
        self._loop = DrivenLoop(self._driven)
        return self._loop

    def freeze(self) -> None:
        """Stand still from now on."""
        self._driven.freeze()

    def thaw(self) -> None:
        """Go on, with the machine's speed."""
        self._driven.thaw()
        self._wake(lambda: None)  # it may be waiting for a timer by the old time

    def advance(self, seconds: float, timeout_s: float) -> None:
        """Let time pass; returns when everything that was due has been done."""
        loop = self._loop
        assert loop is not None, "the loop is made first"
        done: Future[None] = Future()
        with self._one_move:
            self._wake(lambda: loop.begin_move(seconds, done))
            done.result(timeout_s)

    def _wake(self, callback: Callable[[], None]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)
