"""Waiting that somebody may end early."""

import asyncio


class Wakeup:
    """For one waiter: `wake` ends the wait of now, or the next one if nobody waits."""

    def __init__(self) -> None:
        self._is_due = False
        self._waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """End the wait."""
        self._is_due = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, timeout_s: float) -> bool:
        """Wait until woken or until the time is over; whether woken."""
        loop = asyncio.get_running_loop()
        if not self._is_due:
            self._waiter = loop.create_future()
            timer = loop.call_later(timeout_s, _finish, self._waiter)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        woken, self._is_due = self._is_due, False
        return woken


async def pause(seconds: float) -> None:
    """Let time pass; with 0, let others run."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    timer = loop.call_later(seconds, _finish, future)
    try:
        await future
    finally:
        timer.cancel()


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
