"""Tasks and periodic jobs with an owner and a name; one that fails stops the process, seen.

Time is the event loop's, so a loop with virtual time drives everything that is started here.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine

from downrange.runtime.loop_watch import LoopWatch

_log = logging.getLogger(__name__)

OnFailure = Callable[[str, BaseException], None]


class Supervisor:
    """Owns the tasks and jobs of one process or part, from creation to `stop`.

    With a `watch` the time that each of them holds the event loop is measured.
    """

    def __init__(self, on_failure: OnFailure, watch: LoopWatch | None = None) -> None:
        self._on_failure = on_failure
        self._watch = watch
        self._tasks: set[asyncio.Task[None]] = set()
        self._jobs: dict[str, asyncio.TimerHandle] = {}
        self._is_stopped = False

    def spawn(self, name: str, coroutine: Coroutine[None, None, None]) -> None:
        """Run a coroutine as a task; an error in it is the owner's failure."""
        _ = self._own(name, coroutine)

    def spawn_until(
        self, name: str, coroutine: Coroutine[None, None, None]
    ) -> Callable[[], object]:
        """The same; what is returned cancels the task."""
        return self._own(name, coroutine).cancel

    def every(self, name: str, interval_s: float, job: Callable[[], None]) -> None:
        """Call `job` again and again, the first time after one interval."""
        assert name not in self._jobs, name
        loop = asyncio.get_running_loop()

        def run() -> None:
            try:
                self._run(name, job)
            except Exception as error:  # noqa: BLE001 - a supervisor sees every failure
                self._fail(name, error)
                return
            if not self._is_stopped:
                self._jobs[name] = loop.call_later(interval_s, run)

        self._jobs[name] = loop.call_later(interval_s, run)

    def later(self, delay_s: float, job: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `job` once; an error in it is the owner's failure."""

        def run() -> None:
            if self._is_stopped:
                return
            name: str = getattr(job, "__qualname__", "timer")
            try:
                self._run(name, job)
            except Exception as error:  # noqa: BLE001 - a supervisor sees every failure
                self._fail(name, error)

        return asyncio.get_running_loop().call_later(delay_s, run)

    @property
    def names(self) -> list[str]:
        """What runs at the moment."""
        return sorted([*self._jobs, *(task.get_name() for task in self._tasks)])

    async def stop(self, timeout_s: float = 5.0) -> None:
        """Cancel everything and wait for it to end."""
        self._is_stopped = True
        for handle in self._jobs.values():
            handle.cancel()
        self._jobs.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)

    def _run(self, name: str, job: Callable[[], None]) -> None:
        watch = self._watch
        if watch is None:
            job()
            return
        watch.begin()
        try:
            job()
        finally:
            if watch.lap():
                watch.note(f"the job {name!r}")

    def _own(self, name: str, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        if self._watch is not None:
            coroutine = self._watch.watched(f"the task {name!r}", coroutine)
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            assert error is not None
            self._fail(task.get_name(), error)

    def _fail(self, name: str, error: BaseException) -> None:
        _log.critical("%s failed: %s", name, error, exc_info=error)
        self._on_failure(name, error)
