"""Decides how much of the log has to be read at start, from how the store was left."""

import logging
from collections.abc import Mapping

from downrange.store.checkpoint import Checkpoint
from downrange.store.commit_log import CommitLog
from downrange.store.entry_check import last_borne_out
from downrange.store.key_index import KeyIndex
from downrange.store.manifest import Manifest
from downrange.store.ownership import LastStop
from downrange.store.queue_table import QueueTable
from downrange.store.recovery import (
    RecoveryPlan,
    clean_start,
    crash_start,
    dispatched_end,
    segment_start,
)

_log = logging.getLogger(__name__)


class RecoveryPlanner:
    """Looks at what is there; removes index files that cannot be trusted."""

    def __init__(self, log: CommitLog, queues: QueueTable, index: KeyIndex | None) -> None:
        self._log = log
        self._queues = queues
        self._index = index

    def plan(
        self,
        last_stop: LastStop,
        checkpoint: Checkpoint,
        manifest: Manifest | None,
        deleted_below: Mapping[str, int],
        *,
        index_removed: bool,
        check_crc: bool = True,
        check_whole: bool = False,
    ) -> RecoveryPlan:
        """From where to read; everything, if a derived file is missing."""
        if last_stop is LastStop.UNKNOWN:
            start = crash_start(self._log, self._queues, checkpoint)
        else:
            # Also when only the process died: what it had dispatched is in the page cache.
            start = clean_start(self._log, self._queues)
        if manifest is not None and self._log.min_offset < manifest.log_start:
            _log.warning(
                "files of the log from before %d are back, queues and index are built again",
                manifest.log_start,
            )
            for queue in list(self._queues):
                self._queues.forget(queue, "it lacks what is in older files of the log")
            index_removed = True
        if manifest is not None:
            for queue in manifest.beheaded_queues(self._queues, self._log.min_offset):
                self._queues.forget(queue, "its first file is gone")
            missing = manifest.missing_queues(self._queues)
            if missing:
                _log.warning("consume queues are incomplete and are built again: %s", missing[:10])
                start = self._log.min_offset
        if self._queues.forgotten:
            start = self._log.min_offset
        for queue in self._queues:
            known = last_borne_out(self._log, queue)
            if known is not None:
                start = min(start, segment_start(self._log, known))
        index_from = self._index_from(last_stop, checkpoint, manifest, index_removed=index_removed)
        if index_from is not None:
            start = min(start, segment_start(self._log, index_from))
        return RecoveryPlan(
            start,
            index_from or 0,
            check_crc=check_crc,
            check_whole=check_whole,
            queues_are_complete=last_stop is LastStop.CLEAN and manifest is not None,
            deleted_below=deleted_below,
        )

    def _index_from(
        self,
        last_stop: LastStop,
        checkpoint: Checkpoint,
        manifest: Manifest | None,
        *,
        index_removed: bool,
    ) -> int | None:
        """The physical offset from which keys are missing; None if there is no index."""
        index = self._index
        if index is None:
            return None
        damaged = ["(removed at start)"] if index_removed else []
        if manifest is not None:
            unchanged = last_stop is LastStop.CLEAN and manifest.dispatched_end == dispatched_end(
                self._queues
            )
            damaged += manifest.damaged_index_files(index, unchanged=unchanged)
        if damaged:
            _log.error("damaged or missing index files, the index is built again: %s", damaged)
            index.drop_all()
            return self._log.min_offset
        if last_stop is LastStop.UNKNOWN:
            index.drop_unsafe(checkpoint.index_timestamp)
            return index.take_back_unsure()
        if not index.files:
            # An index that was switched off, or whose directory was deleted.
            nothing_to_index = manifest is not None and not manifest.index
            return dispatched_end(self._queues) if nothing_to_index else self._log.min_offset
        if last_stop is LastStop.PROCESS_DIED:
            return index.take_back_unsure()
        return index.end_offset + 1
