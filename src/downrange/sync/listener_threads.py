"""Threads for listeners that block; they end with the interpreter and never hold it up.

Those of `concurrent.futures` are ended before anything else at exit, and messages that arrive after
that would fail for the lack of a thread.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class DaemonThreads:
    """As many threads as calls may run at the same time, made when needed."""

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max = threads_max
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy = 0  # touched by the event loop only

    async def run(self, work: Callable[[], T]) -> T:
        """Run the work in a thread; its result and its errors come here."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
                _tell(loop, future, None, error)
            else:
                _tell(loop, future, lambda: future.set_result(result), None)

        self._busy += 1
        try:
            if self._busy > len(self._threads) < self._threads_max:
                name = f"{self._name}_{len(self._threads)}"
                thread = threading.Thread(target=self._serve, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
            self._work.put(job)
            return await future
        finally:
            self._busy -= 1

    def close(self) -> None:
        """Let go of idle threads at once, of others when their work ends."""
        for _ in self._threads:
            self._work.put(None)

    def _serve(self) -> None:
        while (job := self._work.get()) is not None:
            job()


def _tell(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[T],
    finish: Callable[[], None] | None,
    error: BaseException | None,
) -> None:
    def tell() -> None:
        if future.done():
            return
        if finish is not None:
            finish()
        elif isinstance(error, Exception):
            future.set_exception(error)
        else:  # SystemExit and the like are no answer
            future.set_exception(RuntimeError(f"{type(error).__name__} in a listener: {error}"))

    with contextlib.suppress(RuntimeError):  # the loop is closed, nobody waits
        loop.call_soon_threadsafe(tell)
