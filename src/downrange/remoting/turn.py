"""One turn of the event loop: whose bytes have come in it, and when they are served.

A read and a write are calls into the kernel, and what runs right after one runs slowly: its code
and its data have left the processor's caches. So the connections that were read in one turn are
served one after the other at its end, before anything is written. Where only one connection is busy
it is served at once, because nothing could be gathered by waiting.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

READ_BYTES_MAX = 1024 * 1024  # and not served; beyond it memory counts for more
# The first of many must not wait for the last.
ANSWERS_TOGETHER_MAX = 64


class Served(Protocol):
    """A connection with bytes that were read."""

    def serve(self) -> int:
        """Answer them; returns how many parts of answers wait for `flush`."""
        ...

    def flush(self) -> None:
        """Write the answers."""
        ...


class Turn:
    """Belongs to the connections of one server, on their event loop.

    `on_end` is called when those that waited have been served, before anybody is read again: what
    it does is done before a peer can ask for more than it was answered.
    """

    def __init__(self) -> None:
        self.on_end: Callable[[], None] = _nothing
        self._waiting: list[Served] = []
        self._waiting_bytes = 0
        self._reads = 0
        self._is_alone = True  # whether the last turn had one read at most

    def add(self, connection: Served, count: int) -> None:
        """So many bytes were read; the connection is served now or when this turn is over."""
        self._reads += 1
        if self._reads == 1:
            asyncio.get_running_loop().call_soon(self._end)
            if self._is_alone:
                connection.serve()
                connection.flush()
                return
        self._waiting.append(connection)
        self._waiting_bytes += count
        if self._waiting_bytes > READ_BYTES_MAX:
            self._serve_waiting()

    def _end(self) -> None:
        self._is_alone = self._reads == 1
        self._reads = 0
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._waiting_bytes = 0
        served: list[Served] = []
        answers = 0
        for connection in waiting:
            answers += connection.serve()
            served.append(connection)
            if answers >= ANSWERS_TOGETHER_MAX:
                _flush(served)
                answers = 0
        _flush(served)
        if waiting:
            self.on_end()


def _nothing() -> None:
    """What an end means to most."""


def _flush(served: list[Served]) -> None:
    for connection in served:
        connection.flush()
    served.clear()
