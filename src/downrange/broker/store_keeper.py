"""Does for the store what the passive store does not do itself: dispatch, flush, expire, on time.

Appends of one turn of the event loop are dispatched together at its end. Syncs, and what is fetched
ahead of the writer, run in one thread of their own; while a sync runs, what is appended meanwhile
waits for the next, and senders that come close together share one (`shared_sync`), so that a disk
of any speed is asked as seldom as it can bear.
"""

import asyncio
import logging
from collections.abc import Callable

from downrange.broker.scrubbing import Scrubbing
from downrange.broker.shared_sync import SharedSync
from downrange.runtime.blocking import BlockingRunner
from downrange.runtime.service import Supervisor
from downrange.store.errors import PutStatus
from downrange.store.flush import FlushJob, Release
from downrange.store.message_store import MessageStore
from downrange.store.runway import Runway
from downrange.store.settings import FlushMode

_log = logging.getLogger(__name__)

DISPATCH_COUNT_MAX = 2_000  # then other work gets its turn
WAITERS_SWEEP_S = 0.1
DISPATCH_RETRY_S = 0.5
SYNCS_TOGETHER = 8  # of queue files; then a sync of the log may come in between
STOP_S_MAX = 30.0  # a disk that has not answered by then is not going to


class StoreKeeper:
    """Owns the jobs around one open store, on the event loop that owns the store."""

    def __init__(
        self,
        store: MessageStore,
        supervisor: Supervisor,
        syncs: BlockingRunner,
        note_waiting: Callable[[int], None] = lambda _count: None,
        scrubs: BlockingRunner | None = None,
    ) -> None:
        self._scrubbing = Scrubbing(store, supervisor, scrubs) if scrubs is not None else None
        self._store = store
        self._supervisor = supervisor
        self.is_sync = store.settings.flush.mode is FlushMode.SYNC
        self._is_due = False
        self._is_flushing = False
        self._shared = SharedSync()
        self._is_deriving = False
        self._is_fetching = False
        self._runway = Runway(store.log)
        self._derived_until = -1
        self._syncs = syncs
        self._note_waiting = note_waiting
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_stopping = False
        self._is_idle = asyncio.Event()
        self._flush_began_s = 0.0

    @property
    def sync_wait_s(self) -> float:
        """How long senders have waited for the running sync; 0 if none runs, or in ASYNC mode."""
        if self._loop is None or not self._is_flushing or not self.is_sync:
            return 0.0
        return self._loop.time() - self._flush_began_s

    def start(self) -> None:
        """Begin the periodic jobs."""
        self._loop = asyncio.get_running_loop()
        settings = self._store.settings
        every = self._supervisor.every
        every("flush log", settings.flush.interval_ms / 1000, self._flush_if_due)
        every("flush queues", settings.flush.queue_interval_ms / 1000, self._flush_derived)
        every("expire files", settings.retention.interval_ms / 1000, self._expire)
        every("expire flush waiters", WAITERS_SWEEP_S, self._expire_waiters)
        every("retry dispatch", DISPATCH_RETRY_S, self._retry_dispatch)
        if self._scrubbing is not None:
            self._scrubbing.start()

    def note_append(self) -> None:
        """Something was appended: dispatch it when this turn of the loop is over."""
        if not self._is_due and self._loop is not None:
            self._is_due = True
            self._loop.call_soon(self._settle)

    def show_appended(self) -> None:
        """Dispatch now what was appended, if anything was.

        For who knows that more is read before the end of this turn, and that a sender who was
        answered in it may then ask for its message.
        """
        if self._is_due:
            self._dispatch()

    def wait_durable(self, end_offset: int, release: Release, count: int = 1) -> bool:
        """Have `release` called when `end_offset` is durable; False where nobody waits (ASYNC).

        It answers `count` senders.
        """
        if not self.is_sync:
            return False
        self._store.wait_durable(end_offset, release, count)
        self._note_waiting(self._store.waiting_count)
        return True

    async def drain(self) -> None:
        """Return when nobody waits for the disk any more; those who do are answered in time."""
        while self._store.waiting_count and self.is_sync:
            self._start_flush()
            await self._next_end()

    async def stop(self) -> None:
        """Let running syncs end and begin no more; the store is then the caller's to close.

        To be called while tasks still run: a sync that is cut off would never be noted.
        """
        self._is_stopping = True
        if self._scrubbing is not None:
            self._scrubbing.stop()
        try:
            async with asyncio.timeout(STOP_S_MAX):
                while self._is_flushing or self._is_deriving or self._is_fetching:
                    await self._next_end()
        except TimeoutError:
            _log.error("the disk has not finished a sync for %.0f s", STOP_S_MAX)
        self._syncs.close()

    async def _next_end(self) -> None:
        """Wait until a sync has ended, or somebody was told that it takes too long."""
        self._is_idle.clear()
        await self._is_idle.wait()

    def _settle(self) -> None:
        self._is_due = False
        if self.is_sync and not self._is_flushing:
            self._flush_when_shared()
        if not self._is_fetching:
            self._fetch_ahead()
        self._dispatch()

    def _dispatch(self) -> None:
        # Half of a long line at once, or consumers would fall behind for as long as a flood lasts.
        count_max = max(DISPATCH_COUNT_MAX, self._store.pending_count // 2)
        if self._store.dispatch_some(count_max) >= count_max:
            self.note_append()
        if self._store.dirty_files.needs_sync:
            self._flush_derived()

    def _retry_dispatch(self) -> None:
        if self._store.is_dispatch_behind:
            self._dispatch()

    def _fetch_ahead(self) -> None:
        stretch = self._runway.next_stretch()
        if stretch is not None and not self._is_stopping:
            self._is_fetching = True
            self._supervisor.spawn("fetch log", self._run_fetch(stretch))

    async def _run_fetch(self, stretch: Callable[[], None]) -> None:
        try:
            await self._syncs.run(stretch)
        except OSError as error:
            _log.warning("the log ahead could not be fetched: %s", error)  # the next write will
        self._is_fetching = False
        self._is_idle.set()

    def _flush_when_shared(self) -> None:
        if self._shared.is_time(self._store.waiting_count, self._store.log.max_offset):
            self._start_flush()
        else:
            self.note_append()  # and see who comes in the next turn

    def _start_flush(self) -> None:
        if self._is_flushing or self._is_stopping:
            return
        job = self._store.begin_flush()
        if job is not None:
            self._is_flushing = True
            self._flush_began_s = asyncio.get_running_loop().time()
            self._shared.begun()
            self._supervisor.spawn("sync log", self._run_flush(job))

    async def _run_flush(self, job: FlushJob) -> None:
        failure = await self._run_in_thread(job.run)
        self._is_flushing = False
        self._shared.ended(self._store.waiting_count)
        self._store.finish_flush(job, failure)
        self._dispatch()  # senders were answered, and may ask for their messages
        self._note_waiting(self._store.waiting_count)
        self._is_idle.set()
        # What was appended meanwhile waits for this turn to end.
        self.note_append()

    async def _run_in_thread(self, job: Callable[[], None]) -> OSError | None:
        try:
            await self._syncs.run(job)
        except OSError as error:
            return error
        return None

    def _flush_if_due(self) -> None:
        if self._store.flush_is_due():
            self._start_flush()

    def _flush_derived(self) -> None:
        if self._is_deriving or self._is_stopping:
            return
        store = self._store
        if store.dispatched_offset == self._derived_until and not store.dirty_files:
            return
        self._is_deriving = True
        self._supervisor.spawn("sync queues", self._run_derived_flush())

    async def _run_derived_flush(self) -> None:
        job = self._store.begin_derived_flush()
        failure = None
        for part in job.parts(SYNCS_TOGETHER):
            failure = await self._run_in_thread(part)
            if failure is not None:
                break
        self._is_deriving = False
        if self._store.finish_derived_flush(job, failure):
            self._derived_until = job.end_offset
        self._is_idle.set()
        self._retry_dispatch()  # for messages that waited for a file to be synced

    def _expire(self) -> None:
        try:
            self._store.expire_some()
        except OSError as error:
            # Nothing is lost by files that stay; the next round tries again.
            _log.error("expired files could not be deleted: %s", error)
        self._follow_log()

    def _follow_log(self) -> None:
        """Let queues forget what retention has deleted, some per turn of the loop."""
        try:
            is_more = self._store.is_open and self._store.retention.follow_some()
        except OSError as error:
            _log.error("expired files of queues could not be deleted: %s", error)
            return
        if is_more and self._loop is not None and not self._is_stopping:
            self._loop.call_soon(self._follow_log)

    def _expire_waiters(self) -> None:
        if self._store.expire_waiters():
            self._note_waiting(self._store.waiting_count)
            self._is_idle.set()
            _log.warning(
                "the disk is slow: senders were told %s", PutStatus.FLUSH_DISK_TIMEOUT.name
            )
