"""An event loop whose clock jumps: waiting takes no time, and every run is the same.

`run(main)` is `asyncio.run` on such a loop. Timers fire in order at once; real sockets and threads
have no place in it.
"""

import asyncio
import heapq
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")
START_MS = 1_700_000_000_000


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop that moves its own time to the next timer whenever there is nothing else to do."""

    def __init__(self) -> None:
        super().__init__()
        self._virtual_s = 0.0

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._virtual_s

    def stall(self, seconds: float) -> None:
        """Let time go by while nothing is served, as if a callback took that long."""
        self._virtual_s += seconds

    def _run_once(self) -> None:
        # asyncio offers no hook between "nothing is ready" and "wait for the next timer", so this
        # looks at its two queues, which have had these names since the module exists.
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0].cancelled():
            heapq.heappop(scheduled)._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001
        if not self._ready and scheduled:  # type: ignore[attr-defined]
            self._virtual_s = max(self._virtual_s, scheduled[0].when())
        super()._run_once()  # type: ignore[misc]


class VirtualClock:
    """A `Clock` that shows the time of the running virtual loop."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self._start_ms = start_ms

    def wall_ms(self) -> int:
        """Milliseconds since 1970 at which the test believes to be."""
        return self._start_ms + int(self.monotonic_s() * 1000)

    def wall_ns(self) -> int:
        """The same in nanoseconds."""
        return self.wall_ms() * 1_000_000

    def monotonic_s(self) -> float:
        """Seconds since the loop was made."""
        return asyncio.get_running_loop().time()


def run(main: Coroutine[None, None, T]) -> T:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
