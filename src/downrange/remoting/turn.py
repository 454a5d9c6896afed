"""One turn of the event loop: whose bytes have come in it, and when they are served.

A read and a write are calls into the kernel, and what runs right after one runs slowly: its code
and its data have left the processor's caches. So the connections that were read in one turn are
served one after the other at its end, before anything is written, and what they ask alike is done
for all of them together (`Shortcut`). Where only one connection is busy it is served at once,
because nothing could be gathered by waiting.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from downrange.protocol.frame import Frame
from downrange.runtime.loop_watch import LoopWatch

_log = logging.getLogger(__name__)

READ_BYTES_MAX = 1024 * 1024  # and not served; beyond it memory counts for more
# The first of many must not wait for the last.
FRAMES_TOGETHER_MAX = 64


class Asker(Protocol):
    """A connection with bytes that were read.

    `frames` were cut of them, and served up to `position`; `answers` wait for `flush`. `host` is
    the peer's address as records carry it.
    """

    frames: list[Frame]
    position: int
    answers: list[bytes | memoryview]
    host: bytes
    address: str

    def cut(self) -> int:
        """Cut frames, if there are none; returns how many can be served now."""
        ...

    def serve(self) -> None:
        """Answer all that was read."""
        ...

    def flush(self) -> None:
        """Write the answers."""
        ...

    def reply(self, answer: list[bytes | memoryview]) -> None:
        """Write an answer that was not ready at once."""
        ...


# Asked before frames are decoded. Serves those of these connections that are for it, of each from
# its position on and up to the first that is not; moves the position behind them, and adds the
# answers of those that are answered now.
Shortcut = Callable[[Sequence[Asker]], None]


class Turn:
    """Belongs to the connections of one server, on their event loop.

    `on_end` is called when those that waited have been served, before anybody is read again: what
    it does is done before a peer can ask for more than it was answered. `watch` measures each group
    that is served; its `busy_s` is how long the last requests of a turn have waited for the first.
    `requests` are those whose handler waits, `request_bytes` the size of their bodies.
    """

    def __init__(self, watch: LoopWatch | None = None) -> None:
        self.watch = watch or LoopWatch()
        self.requests: set[asyncio.Task[None]] = set()
        self.request_bytes = 0
        self.shortcut: Shortcut | None = None
        self.on_end: Callable[[], None] = _nothing
        self._waiting: dict[Asker, None] = {}  # once each, however often it was read
        self._waiting_bytes = 0
        self._reads = 0
        self._is_alone = True  # whether the last turn had one read at most

    def add_request(self, task: asyncio.Task[None], body_bytes: int) -> None:
        """Keep a request whose handler waits until it is done."""
        self.requests.add(task)
        self.request_bytes += body_bytes

        def done(task: asyncio.Task[None]) -> None:
            self.requests.discard(task)
            self.request_bytes -= body_bytes

        task.add_done_callback(done)

    def add(self, connection: Asker, count: int) -> None:
        """So many bytes were read; the connection is served now or when this turn is over."""
        self._reads += 1
        if self._reads == 1:
            asyncio.get_running_loop().call_soon(self._end)
            if self._is_alone:
                self.watch.begin()
                connection.serve()
                connection.flush()
                if self.watch.lap():
                    self.watch.note(f"requests of {connection.address}, {count} bytes")
                return
        self._waiting[connection] = None
        self._waiting_bytes += count
        if self._waiting_bytes > READ_BYTES_MAX:
            self._serve_waiting()

    def _end(self) -> None:
        self._is_alone = self._reads == 1
        self._reads = 0
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        count_bytes, self._waiting_bytes = self._waiting_bytes, 0
        if not waiting:
            return
        watch = self.watch
        watch.begin()
        group: list[Asker] = []
        frames = 0
        for connection in waiting:
            count = connection.cut()
            if not count:  # it has half a frame, does not read its answers, or was served already
                connection.serve()
                connection.flush()
                continue
            group.append(connection)
            frames += count
            if frames >= FRAMES_TOGETHER_MAX:
                self._serve_group(group)
                group, frames = [], 0
        self._serve_group(group)
        self.on_end()
        if watch.lap():
            watch.note("dispatching what was appended")
        if watch.total_s > watch.limit_s:
            watch.note_total(
                f"one turn with requests of {len(waiting)} connections, {count_bytes} bytes"
            )

    def _serve_group(self, group: list[Asker]) -> None:
        if self.shortcut is not None and group:
            try:
                self.shortcut(group)
            except Exception:  # noqa: BLE001 - the one that is to blame meets it again alone
                _log.exception("%d connections could not be served together", len(group))
        for connection in group:
            connection.serve()
        for connection in group:
            connection.flush()
        if group and self.watch.lap():
            self.watch.note(f"requests of {len(group)} connections, {group[0].address} the first")


def _nothing() -> None:
    """What an end means to most."""
