"""Drives the scrubber: so many bytes per second, in a thread of its own, while there is time."""

import logging

from downrange.runtime.blocking import BlockingRunner
from downrange.runtime.service import Supervisor
from downrange.store.message_store import MessageStore
from downrange.store.scrub_slice import ScrubSlice

_log = logging.getLogger(__name__)

FIRST_SLICE_S = 60.0  # after the start, when clients have found the broker
PAUSE_S = 3_600.0  # between two passes: a small log is not read all day
BUSY_S = 1.0  # until the next try, while others need disk or interpreter more
PENDING_COUNT_MAX = 1_000  # messages that wait for dispatch
SLICES_BETWEEN_SAVES = 1_000


class Scrubbing:
    """Runs slice after slice, one at a time, on the event loop that owns the store."""

    def __init__(self, store: MessageStore, supervisor: Supervisor, runner: BlockingRunner) -> None:
        self._store = store
        self._supervisor = supervisor
        self._runner = runner
        self._bytes_per_s = store.settings.scrub_bytes_per_s
        self._slice_count = 0
        self._is_stopping = False

    def start(self) -> None:
        """Begin after a while, where the last process stopped."""
        if self._bytes_per_s:
            self._store.scrubber.load()
            self._supervisor.later(FIRST_SLICE_S, self._next)

    def stop(self) -> None:
        """Wait for the slice that runs, begin no more."""
        self._is_stopping = True
        self._runner.close()

    def _next(self) -> None:
        store = self._store
        if self._is_stopping or not store.is_open:
            return
        if store.waiting_count or store.pending_count > PENDING_COUNT_MAX:
            self._supervisor.later(BUSY_S, self._next)
            return
        part = store.scrubber.begin(min(store.dispatched_offset, store.durable_offset))
        if part is None:
            _log.info(
                "scrubber: pass %d ended after %.0f s, %d damages are known",
                store.scrubber.pass_count,
                store.scrubber.pass_s,
                len(store.scrubber.damages),
            )
            self._save()
            self._supervisor.later(PAUSE_S, self._next)
        else:
            self._supervisor.spawn("scrub log", self._run(part))

    async def _run(self, part: ScrubSlice) -> None:
        if self._is_stopping:
            return  # the thread has ended
        await self._runner.run(part.run)
        self._store.scrubber.finish(part)
        self._slice_count += 1
        if self._slice_count % SLICES_BETWEEN_SAVES == 0:
            self._save()
        self._supervisor.later((part.end - part.start) / self._bytes_per_s, self._next)

    def _save(self) -> None:
        try:
            self._store.scrubber.save()
        except OSError as error:
            _log.warning("scrubber: the progress could not be saved: %s", error)
