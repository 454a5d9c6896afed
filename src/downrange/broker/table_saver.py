"""Saves one table off the event loop, one save at a time.

Changes that are made while a save is in flight share the next one, so a burst of any size costs one
or two saves. Requests that promise durability wait for the save that covers their change
(`durable`) and are refused with the reason if it fails. A failed save is logged when it begins to
fail and when it succeeds again; the owner calls `request` now and then to try again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Protocol

from downrange.broker.saved_table import SaveJob
from downrange.protocol.errors import ProtocolError
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.errors import Refused
from downrange.runtime.blocking import BlockingRunner

_log = logging.getLogger(__name__)

WAIT_S_MAX = 5.0  # as long as a send waits for a synchronous flush, syncFlushTimeout
WAITING_MAX = 10_000  # requests that wait for one table
STOP_S_MAX = 30.0  # a disk that has not answered by then is not going to

Durable = Callable[[], Awaitable[None]]  # returns when all changes so far are on disk
Spawn = Callable[[str, Coroutine[None, None, None]], None]


class Saveable(Protocol):
    """What a saver needs of its table."""

    generation: int

    @property
    def is_dirty(self) -> bool:
        """Whether something has changed since the last successful save."""
        ...

    def begin_save(self) -> SaveJob:
        """The work that makes every change so far durable."""
        ...


class TableSaver:
    """Owned by the event loop of the broker; `name` is what log and refusals call the table.

    `on_saved` listeners hear of each successful save before the requests that waited for it go on.
    """

    def __init__(self, name: str, table: Saveable, runner: BlockingRunner, spawn: Spawn) -> None:
        self._name = name
        self._table = table
        self._runner = runner
        self._spawn = spawn
        self._is_wanted = False
        self._is_running = False
        self._is_stopped = False
        self._has_ended = asyncio.Event()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._error: Exception | None = None
        self.on_saved: list[Callable[[], None]] = []

    @property
    def failure(self) -> str | None:
        """Why the table is not on disk; None if the last save succeeded."""
        if self._error is None:
            return None
        return f"the table of {self._name} cannot be saved: {self._error}"

    def request(self) -> None:
        """Save the table soon, after the save in flight if there is one."""
        self._is_wanted = True
        if not self._is_running and not self._is_stopped:
            self._is_running = True
            self._spawn(f"save {self._name}", self._run())

    def request_if_dirty(self) -> None:
        """Save the table soon if it has changed since the last successful save."""
        if self._table.is_dirty:
            self.request()

    async def durable(self) -> None:
        """Return when every change so far is on disk.

        `Refused` if the save that covers them fails, or does not end within `WAIT_S_MAX`. The
        changes stay in memory, and later saves include them.
        """
        if not self._table.is_dirty:
            return
        if len(self._waiting) >= WAITING_MAX:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]{WAITING_MAX} requests already wait for the table of {self._name}",
            )
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._table.generation, future))
        self.request()
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                await future
        except TimeoutError:
            raise _refused(
                f"the table of {self._name} was not saved within {WAIT_S_MAX:.0f} s"
            ) from None

    async def settle(self) -> None:
        """Return when no save is in flight or wanted."""
        while self._is_running:
            self._has_ended.clear()
            await self._has_ended.wait()

    async def stop(self) -> None:
        """Let the save in flight end and begin no more."""
        self._is_stopped = True
        try:
            async with asyncio.timeout(STOP_S_MAX):
                await self.settle()
        except TimeoutError:
            _log.error("table of %s: a save has not ended for %.0f s", self._name, STOP_S_MAX)

    async def close(self) -> None:
        """Stop, and make durable what is not."""
        await self.stop()
        if self._table.is_dirty and not self._is_running:
            await self._save()

    async def _run(self) -> None:
        try:
            while self._is_wanted and not self._is_stopped:
                self._is_wanted = False
                await self._save()
        finally:
            self._is_running = False
            self._has_ended.set()

    async def _save(self) -> None:
        job = self._table.begin_save()
        try:
            await self._runner.run(job.run)
        except (OSError, ProtocolError) as error:
            if self._error is None:
                _log.error("table of %s: cannot be saved, will be retried: %s", self._name, error)
            self._error = error
            self._release(job.generation, self.failure)
            return
        if self._error is not None:
            _log.warning("table of %s: saved again", self._name)
            self._error = None
        job.finish()
        for listener in self.on_saved:
            listener()
        self._release(job.generation, None)

    def _release(self, generation: int, failure: str | None) -> None:
        """End the waits for changes up to `generation`, which come first."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= generation:
            _, future = waiting.popleft()
            if future.done():  # gave up, or its connection is gone
                continue
            if failure is None:
                future.set_result(None)
            else:
                future.set_exception(_refused(failure))


def _refused(reason: str) -> Refused:
    return Refused(
        ResponseCode.SYSTEM_ERROR,
        f"{reason}; the change is not durable yet. Free space on the disk or repair it: "
        "the broker keeps trying to save",
    )
