"""When appended bytes become durable, and who is told.

The store is passive: `begin` names the work, the work runs wherever the caller wants (an fdatasync
may take long and releases the interpreter), `finish` takes note of how it went. One sync covers
every record appended before it began, so all that wait for them are freed together.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from downrange.runtime.disk import Disk
from downrange.store.checkpoint import Checkpoint, CheckpointFile
from downrange.store.commit_log import CommitLog
from downrange.store.consume_queue import ENTRY_BYTES
from downrange.store.errors import PutStatus
from downrange.store.key_index import KeyIndex
from downrange.store.queue_table import QueueTable
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
        for sync in self.syncs:
            sync()

    def try_run(self) -> OSError | None:
        """Run it here; returns the error instead of raising it."""
        try:
            self.run()
        except OSError as error:
            return error
        return None


@dataclass(frozen=True, slots=True)
class DerivedFlushJob(FlushJob):
    """Its last step writes the checkpoint, which vouches for those before it."""

    checkpoint: Checkpoint


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


class DerivedFlush:
    """Syncs consume queues and key index; a crash loses what is not synced, recovery rebuilds it.

    The checkpoint vouches for files and for their names, so a job syncs the directories of new
    files too: a queue or index file without a durable name disappears at a power failure, and
    recovery does not read the part of the log that would bring it back.
    """

    def __init__(
        self,
        disk: Disk,
        queues: QueueTable,
        index: KeyIndex | None,
        checkpoint_file: CheckpointFile,
    ) -> None:
        self._disk = disk
        self._queues = queues
        self._index = index
        self._checkpoint_file = checkpoint_file
        self._synced: dict[tuple[str, int], int] = {}  # queue -> its max offset at the last sync
        self._named: set[Path] = set()  # queue directories whose names are durable
        self._full_index: set[Path] = set()  # index files that were full at their last sync
        self._index_files: set[Path] = set()  # index files whose names are durable

    def trust_queues(self) -> None:
        """Take the queues that recovery found for durable: the store was closed gracefully."""
        for queue in self._queues:
            self._synced[queue.topic, queue.queue_id] = queue.max_offset
            self._named.add(queue.chain.directory)

    def begin(
        self, dispatched_offset: int, store_timestamp: int, of_log: Checkpoint
    ) -> DerivedFlushJob:
        """The work that makes every entry put so far durable; `of_log` holds for the log."""
        directories: set[Path] = set()
        syncs = self._queue_syncs(directories)
        index_timestamp, queue_offset = 0, dispatched_offset
        if self._index is not None and self._index.files:
            syncs += self._index_syncs(self._index, directories)
            finished = [file for file in self._index.files if file.is_full]
            # An Apache broker that finds a crash deletes the unfinished index file, and indexes
            # again from where the checkpoint says that queues end: so that must not be later.
            index_timestamp = finished[-1].end_timestamp if finished else 0
            if len(finished) < len(self._index.files):
                queue_offset = min(queue_offset, finished[-1].end_offset if finished else 0)
                store_timestamp = min(store_timestamp, index_timestamp)
        checkpoint = replace(
            of_log,
            queue_timestamp=store_timestamp,
            index_timestamp=index_timestamp,
            queue_offset=queue_offset,
        )
        syncs += [partial(self._disk.fsync_directory, path) for path in sorted(directories)]
        syncs.append(partial(self._checkpoint_file.save, checkpoint))
        return DerivedFlushJob(tuple(syncs), dispatched_offset, store_timestamp, checkpoint)

    def _queue_syncs(self, directories: set[Path]) -> list[Callable[[], None]]:
        syncs: list[Callable[[], None]] = []
        for queue in self._queues:
            name = (queue.topic, queue.queue_id)
            synced = self._synced.get(name, 0)
            if queue.max_offset != synced:
                first_byte = min(synced, queue.max_offset) * ENTRY_BYTES
                syncs += [segment.sync for segment in queue.chain.segments_from(first_byte)]
                self._synced[name] = queue.max_offset
                directory = queue.chain.directory
                if directory not in self._named:
                    self._named.add(directory)
                    # TOPIC/QUEUE and its names; an Apache broker syncs none of these.
                    directories.update((directory, directory.parent, directory.parent.parent))
        return syncs

    def _index_syncs(self, index: KeyIndex, directories: set[Path]) -> list[Callable[[], None]]:
        syncs = [file.sync for file in index.files if file.path not in self._full_index]
        self._full_index = {file.path for file in index.files if file.is_full}
        paths = {file.path for file in index.files}
        for path in paths - self._index_files:
            directories.update((path.parent, path.parent.parent))
        self._index_files = paths
        return syncs

    def forget(self) -> None:
        """Take nothing for durable: a sync has failed."""
        self._synced.clear()
        self._named.clear()
        self._full_index.clear()
        self._index_files.clear()

    def forget_topic(self, topic: str) -> None:
        """Its queues were deleted; new ones of the same name start with nothing synced."""
        for name in [name for name in self._synced if name[0] == topic]:
            del self._synced[name]
        self._named = {path for path in self._named if path.parent.name != topic}


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
