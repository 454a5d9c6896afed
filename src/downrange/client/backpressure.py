"""Bounds what a producer has in flight, by count and by bytes; who comes too early waits."""

import asyncio
from collections import deque

from downrange.client.errors import TooMuchInFlightError


class Backpressure:
    """Permits for messages; first come, first served. Lives on one event loop."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_left = count_max
        self._bytes_left = bytes_max
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    async def acquire(self, size: int, timeout_s: float) -> None:
        """Take a permit for a message of some bytes; `TooMuchInFlightError` if none comes free."""
        size = min(size, self._bytes_max)  # one that is larger than all may still go alone
        if not self._waiting and self._fits(size):
            self._take(size)
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        entry = (future, size)
        self._waiting.append(entry)
        timer = loop.call_later(timeout_s, self._expire, future, timeout_s)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.release(size)  # granted in the same moment; nobody would give it back
            raise
        finally:
            timer.cancel()
            if entry in self._waiting:
                self._waiting.remove(entry)
                self._grant()

    def release(self, size: int) -> None:
        """Give a permit back."""
        self._count_left += 1
        self._bytes_left += min(size, self._bytes_max)
        self._grant()

    def _fits(self, size: int) -> bool:
        return self._count_left > 0 and self._bytes_left >= size

    def _take(self, size: int) -> None:
        self._count_left -= 1
        self._bytes_left -= size

    def _grant(self) -> None:
        while self._waiting:
            future, size = self._waiting[0]
            if future.done():
                self._waiting.popleft()
                continue
            if not self._fits(size):
                return
            self._waiting.popleft()
            self._take(size)
            future.set_result(None)

    def _expire(self, future: asyncio.Future[None], timeout_s: float) -> None:
        if not future.done():
            future.set_exception(
                TooMuchInFlightError(
                    f"no room for another message in {timeout_s:g} s: backpressure_count_max or "
                    f"backpressure_bytes_max are in flight"
                )
            )
