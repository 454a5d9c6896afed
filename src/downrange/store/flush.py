"""When appended bytes become durable, and who is told.

The store is passive: `begin` names the work, the work runs wherever the caller wants (an fdatasync
may take long and releases the interpreter), `finish` takes note of how it went. One sync covers
every record appended before it began, so all that wait for them are freed together.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from downrange.store.checkpoint import Checkpoint
from downrange.store.commit_log import CommitLog
from downrange.store.errors import PutStatus
from downrange.store.settings import FlushSettings

PAGE_BYTES = 4096

Release = Callable[[PutStatus], None]


@dataclass(frozen=True, slots=True)
class FlushJob:
    """Files to sync, and what is durable afterwards: records up to an offset, or their entries."""

    syncs: tuple[Callable[[], None], ...]
    end_offset: int
    store_timestamp: int

    def run(self) -> None:
        """Sync; blocks, may run in any thread. `OSError` means that nothing is promised."""
        _run_all(self.syncs)

    def parts(self, count: int) -> Iterator[Callable[[], None]]:
        """The same work in parts of so many syncs, to be run one after the other.

        The caller runs no further part if one has failed.
        """
        for start in range(0, len(self.syncs), count):
            yield partial(_run_all, self.syncs[start : start + count])

    def try_run(self) -> OSError | None:
        """Run it here; returns the error instead of raising it."""
        try:
            self.run()
        except OSError as error:
            return error
        return None


class LogFlush:
    """Knows how much of the log is durable and when to sync again.

    `durable_offset` never moves after a failed sync: what the kernel could not write it may have
    forgotten, so a later sync that succeeds proves nothing about it.
    """

    def __init__(self, log: CommitLog, settings: FlushSettings) -> None:
        self._log = log
        self.settings = settings
        self.durable_offset = 0
        self.durable_timestamp = 0
        self.failure: OSError | None = None
        self._last_full_ms = 0
        self._under_way = False

    def start_at(self, offset: int, store_timestamp: int) -> None:
        """Count everything below `offset` as durable."""
        self.durable_offset = offset
        self.durable_timestamp = store_timestamp
        self._log.note_durable(offset)

    def vouch(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint with what is known of the log."""
        return replace(
            checkpoint,
            commit_log_timestamp=self.durable_timestamp,
            confirmed_offset=self.durable_offset,
            queue_offset=min(checkpoint.queue_offset, self._log.max_offset),
        )

    def is_due(self, now_ms: int) -> bool:
        """Whether ASYNC mode should sync now: enough pages, or long enough ago, monotonic."""
        dirty_bytes = self._log.max_offset - self.durable_offset
        if dirty_bytes == 0 or self._under_way:
            return False
        if now_ms - self._last_full_ms >= self.settings.thorough_interval_ms:
            return True
        return dirty_bytes >= self.settings.least_pages * PAGE_BYTES

    def begin(self, store_timestamp: int, now_ms: int) -> FlushJob | None:
        """The work that makes everything appended so far durable; None if there is none."""
        end_offset = self._log.max_offset
        if self.failure is not None or self._under_way or end_offset <= self.durable_offset:
            return None
        self._under_way = True
        self._last_full_ms = now_ms
        syncs = tuple(s.sync for s in self._log.chain.segments_from(self.durable_offset))
        return FlushJob(syncs, end_offset, store_timestamp)

    def finish(self, job: FlushJob, failure: OSError | None) -> None:
        """Take note of a finished job."""
        self._under_way = False
        if failure is not None:
            self.failure = failure
        elif self.failure is None:
            self.durable_offset = max(self.durable_offset, job.end_offset)
            self.durable_timestamp = max(self.durable_timestamp, job.store_timestamp)
            self._log.note_durable(self.durable_offset)


class FlushWaiters:
    """Senders that wait for an offset to become durable, each with a deadline.

    Offsets and deadlines both grow from one sender to the next, so the first in line is always
    the first to be freed and the first to be late.
    """

    def __init__(self) -> None:
        self._line: deque[tuple[int, int, Release, int]] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, offset: int, deadline_ms: int, release: Release, count: int = 1) -> None:
        """Have `release` called with the status, once, when `offset` is durable or too late.

        It answers `count` senders.
        """
        assert not self._line or self._line[-1][0] <= offset, "waiters come in the log's order"
        self._line.append((offset, deadline_ms, release, count))
        self._count += count

    def release(self, durable_offset: int) -> int:
        """Free those whose offset is durable; returns how many."""
        before = self._count
        while self._line and self._line[0][0] <= durable_offset:
            self._tell_first(PutStatus.PUT_OK)
        return before - self._count

    def expire(self, now_ms: int) -> int:
        """Tell those whose deadline has passed; returns how many."""
        before = self._count
        while self._line and self._line[0][1] <= now_ms:
            self._tell_first(PutStatus.FLUSH_DISK_TIMEOUT)
        return before - self._count

    def fail_all(self, status: PutStatus) -> int:
        """Tell everybody that the message will not become durable; returns how many."""
        before = self._count
        while self._line:
            self._tell_first(status)
        return before - self._count

    def _tell_first(self, status: PutStatus) -> None:
        _, _, release, count = self._line.popleft()
        self._count -= count
        release(status)


def _run_all(syncs: Iterable[Callable[[], None]]) -> None:
    for sync in syncs:
        sync()
