"""Requests of ours on one connection that wait for their response."""

import asyncio
import itertools

from downrange.protocol.command import Command
from downrange.protocol.errors import ProtocolError
from downrange.remoting.errors import (
    ConnectionLostError,
    RequestTimeoutError,
    TooManyRequestsError,
)

CALLS_MAX = 65_535  # RocketMQ's own bound


class PendingCalls:
    """Pairs responses with requests by their opaque number. Owned by the connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._opaques = itertools.count(1)
        self._futures: dict[int, asyncio.Future[Command]] = {}

    def next_opaque(self) -> int:
        """A number for a request without a response."""
        return next(self._opaques) & 0x7FFFFFFF

    def add(self, address: str) -> tuple[int, asyncio.Future[Command]]:
        """A number for a new request, and its response to be; ends with `forget` or `resolve`."""
        if len(self._futures) >= CALLS_MAX:
            raise TooManyRequestsError(
                f"{CALLS_MAX} requests to {address} wait for an answer already"
            )
        opaque = self.next_opaque()
        future = self._futures[opaque] = self._loop.create_future()
        return opaque, future

    def forget(self, opaque: int) -> None:
        """Wait no more."""
        self._futures.pop(opaque, None)

    def resolve(self, answer: Command) -> None:
        """A response has come; one that nobody waits for is dropped."""
        future = self._futures.pop(answer.opaque, None)
        if future is not None and not future.done():
            future.set_result(answer)

    def expire(self, opaque: int, address: str, code: int, timeout_s: float) -> None:
        """No response has come in time."""
        future = self._futures.get(opaque)
        if future is not None and not future.done():
            future.set_exception(
                RequestTimeoutError(f"{address} did not answer code {code} in {timeout_s} s")
            )

    def fail_all(self, address: str, cause: Exception | None = None) -> None:
        """The connection is gone, or ends because of what the peer sent."""
        if isinstance(cause, ProtocolError):
            text = f"closing the connection to {address}, which sent nonsense: {cause}"
        else:
            text = f"{address} closed the connection" + (f": {cause}" if cause else "")
        for future in self._futures.values():
            if not future.done():
                future.set_exception(ConnectionLostError(text))
        self._futures.clear()
