"""Work that blocks, kept off the event loop: in a thread of its own, or in line in tests."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol


class BlockingRunner(Protocol):
    """Runs one piece of blocking work after the other."""

    async def run(self, work: Callable[[], None]) -> None:
        """Run the work; its errors are raised here."""
        ...

    def close(self) -> None:
        """Wait for what runs, take nothing more."""
        ...


class BlockingThread:
    """One thread with a name."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def run(self, work: Callable[[], None]) -> None:
        """Run the work in the thread."""
        await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Wait for what runs."""
        self._thread.shutdown(wait=True)


class InLine:
    """Runs the work where it is asked for: for loops whose time is not real."""

    async def run(self, work: Callable[[], None]) -> None:
        """Run the work at once."""
        work()

    def close(self) -> None:
        """Nothing to wait for."""
