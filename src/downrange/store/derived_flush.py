"""When entries of queues and index become durable, and what the checkpoint may say about them."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from downrange.store.checkpoint import Checkpoint, CheckpointFile
from downrange.store.dirty_files import DirtyFiles, SyncBatch
from downrange.store.flush import FlushJob
from downrange.store.key_index import KeyIndex
from downrange.store.queue_table import QueueTable

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DerivedFlushJob(FlushJob):
    """Its last step writes the checkpoint, which vouches for those before it."""

    checkpoint: Checkpoint
    batch: SyncBatch


class DerivedFlush:
    """Syncs consume queues and key index; a crash loses what is not synced, recovery rebuilds it.

    The checkpoint vouches for files and for their names, so a job syncs the directories of new
    files too: a queue or index file without a durable name disappears at a power failure, and
    recovery does not read the part of the log that would bring it back.

    After a failed sync the checkpoint never again claims more about queues and index than it did:
    what the kernel could not write it may have forgotten, and a later sync that succeeds proves
    nothing about it. Then `failure` is set, and the next start must read the log from there.
    """

    def __init__(
        self,
        dirty: DirtyFiles,
        queues: QueueTable,
        index: KeyIndex | None,
        checkpoint_file: CheckpointFile,
        on_doubt: Callable[[], None],
    ) -> None:
        self._on_doubt = on_doubt  # called once, when a sync has failed
        self._dirty = dirty
        self._queues = queues
        self._index = index
        self._checkpoint_file = checkpoint_file
        self.failure: OSError | None = None

    def doubt_queues(self, claimed_offset: int) -> None:
        """Have the files synced that another process has left, but for what it had synced.

        That is every queue whose messages are below `claimed_offset` of the log.
        """
        for queue in self._queues:
            if queue.max_offset and queue.newest_entry()[0] >= claimed_offset:
                for segment in queue.chain.segments:
                    self._dirty.doubt(segment)
        self._dirty.note_names(self._queues.root)
        if self._index is not None:
            for file in self._index.files:
                self._dirty.doubt(file)

    def begin(
        self, dispatched_offset: int, store_timestamp: int, of_log: Checkpoint
    ) -> DerivedFlushJob:
        """The work that makes every entry put so far durable; `of_log` holds for the log.

        It also holds the last claims about queues and index.
        """
        batch = self._dirty.begin_sync()
        index_timestamp, queue_offset = 0, dispatched_offset
        if self._index is not None and self._index.files:
            finished = [file for file in self._index.files if file.is_full]
            # An Apache broker that finds a crash deletes the unfinished index file, and indexes
            # again from where the checkpoint says that queues end: so that must not be later.
            index_timestamp = finished[-1].end_timestamp if finished else 0
            if len(finished) < len(self._index.files):
                queue_offset = min(queue_offset, finished[-1].end_offset if finished else 0)
                store_timestamp = min(store_timestamp, index_timestamp)
        checkpoint = of_log
        if self.failure is None and batch.is_all:
            checkpoint = replace(
                of_log,
                queue_timestamp=store_timestamp,
                index_timestamp=index_timestamp,
                queue_offset=queue_offset,
            )
        syncs: list[Callable[[], None]] = [
            *batch.syncs,
            partial(self._checkpoint_file.save, checkpoint),
        ]
        return DerivedFlushJob(tuple(syncs), dispatched_offset, store_timestamp, checkpoint, batch)

    def finish(self, job: DerivedFlushJob, failure: OSError | None) -> bool:
        """Take note of a finished job, as of every job that was begun; False if it failed."""
        self._dirty.end_sync(job.batch)
        if failure is None:
            return True
        # Not fatal: the next start builds from the log what did not reach the disk.
        _log.error("queues and index could not be synced: %s", failure)
        if not job.batch.is_synced and self.failure is None:  # else only the checkpoint failed
            self.failure = failure
            self._on_doubt()
        return False
