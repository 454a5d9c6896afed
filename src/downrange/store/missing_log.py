"""A store whose log is gone, or has lost its newest files: refused, or begun anew on request.

Everything in a store is derived from its log. If the volume of the log is not mounted, or
storePathCommitLog names another place, a start would see an empty log, drop the queues and hand
out offsets and file names that the real log has already used. So it is refused unless
startWithoutCommitLog says that the log is gone for good; then what was derived from it is moved
aside, never deleted.
"""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from downrange.protocol.record import RECORD_BYTES_MIN
from downrange.runtime.clock import Clock
from downrange.runtime.disk import Disk, make_durable_directory
from downrange.store.checkpoint import FILE_NAME as CHECKPOINT_NAME
from downrange.store.checkpoint import Checkpoint
from downrange.store.commit_log import CommitLog
from downrange.store.consume_queue import ConsumeQueue
from downrange.store.deleted_topics import FILE_NAME as DELETED_NAME
from downrange.store.errors import LogMissingError
from downrange.store.manifest import FILE_NAME as MANIFEST_NAME
from downrange.store.manifest import Manifest
from downrange.store.queue_table import QueueTable
from downrange.store.recovery import dispatched_end
from downrange.store.settings import StoreSettings

_log = logging.getLogger(__name__)
_REMEDY: Final = (
    "check that every path of storePathCommitLog and readOnlyCommitLogStorePaths is right and its"
    " volume is mounted; if the messages are gone for good, start once with"
    " startWithoutCommitLog=true"
)
# One entry may be damaged itself; two that agree are not.
_ENTRIES_MIN: Final = 2


class MissingLog:
    """Looks at a store before its recovery; owned by the store."""

    def __init__(self, disk: Disk, clock: Clock, settings: StoreSettings) -> None:
        self._disk = disk
        self._clock = clock
        self._settings = settings

    def prepare(self, log: CommitLog, checkpoint: Checkpoint, manifest: Manifest | None) -> bool:
        """Have all directories; True if the store begins anew and what was derived is aside.

        `LogMissingError` if there was a log and there is none. To be called before queues and index
        are loaded.
        """
        begins_anew = self._begins_anew(log, checkpoint, manifest)
        for path in (*self._settings.log_paths.writable, self._settings.consume_queue_path):
            make_durable_directory(self._disk, path)
        return begins_anew

    def _begins_anew(
        self, log: CommitLog, checkpoint: Checkpoint, manifest: Manifest | None
    ) -> bool:
        if log.chain.segments:
            return False
        evidence = list(self._evidence(checkpoint, manifest))
        if not evidence:
            return False
        paths = ", ".join(map(str, self._settings.log_paths.everywhere))
        if not self._settings.starts_without_log:
            raise LogMissingError(
                f"there is no file of the commit log in {paths}, but there was a log:"
                f" {'; '.join(evidence)}. {_REMEDY}"
            )
        _log.error("the commit log is gone (%s), the store begins anew", "; ".join(evidence))
        self._move_aside()
        return True

    def check_end(self, log: CommitLog, queues: QueueTable, checkpoint: Checkpoint) -> None:
        """Refuse a log that lacks its newest files, which the queues know.

        Files behind the confirmed offset may be gone: after a power failure recovery deletes what
        was not durable, and if the power fails again before the queues are durable, they still
        point to it.
        """
        segments = log.chain.segments
        if not segments:
            return
        last = segments[-1]
        end = last.base_offset + last.size
        if 0 < checkpoint.confirmed_offset <= end:
            return
        known_end = dispatched_end(queues)
        if known_end <= end:
            return
        lost = sum(_count_behind(queue, end) for queue in queues)
        if lost < _ENTRIES_MIN:
            return
        text = (
            f"the newest files of the commit log are missing: the last one is {last.path}, and"
            f" {lost} messages stand behind it, up to the physical offset {known_end}"
        )
        if not self._settings.starts_without_log:
            raise LogMissingError(f"{text}. {_REMEDY}")
        _log.error("%s; they are given up", text)

    def _evidence(self, checkpoint: Checkpoint, manifest: Manifest | None) -> Iterator[str]:
        settings, disk = self._settings, self._disk
        if checkpoint.commit_log_timestamp > 0:
            moment = datetime.fromtimestamp(checkpoint.commit_log_timestamp / 1000, UTC)
            yield f"the checkpoint knows a message of {moment:%Y-%m-%d %H:%M:%S} UTC"
        if manifest is not None and manifest.dispatched_end > 0:
            yield f"it had {manifest.dispatched_end} bytes when the store was last closed"
        topics = [
            path for path in disk.list_directory(settings.consume_queue_path) if _holds(disk, path)
        ]
        if topics:
            yield f"{settings.consume_queue_path} has the queues of {len(topics)} topics"
        if disk.list_directory(settings.index_path):
            yield f"{settings.index_path} has index files"

    def _move_aside(self) -> None:
        settings, disk = self._settings, self._disk
        moment = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
        suffix = f".aside-{moment:%Y%m%dT%H%M%S}"
        for path in (
            settings.consume_queue_path,
            settings.index_path,
            settings.root / CHECKPOINT_NAME,
            settings.root / MANIFEST_NAME,
            settings.root / DELETED_NAME,
        ):
            if disk.exists(path):
                target = _unused(disk, path.with_name(path.name + suffix))
                disk.rename(path, target)
                _log.warning(
                    "%s was moved to %s; put it back before a start with the log it belongs to, or"
                    " delete it",
                    path,
                    target,
                )
        disk.fsync_directory(settings.root)


def _holds(disk: Disk, topic_path: Path) -> bool:
    return any(disk.list_directory(queue_path) for queue_path in disk.list_directory(topic_path))


def _count_behind(queue: ConsumeQueue, end: int) -> int:
    """How many entries at a queue's end point at or behind a physical offset."""
    count = 0
    for physical_offset, size, _ in queue.newest_first():
        if physical_offset < end or size < RECORD_BYTES_MIN:
            break
        count += 1
    return count


def _unused(disk: Disk, path: Path) -> Path:
    number, candidate = 1, path
    while disk.exists(candidate):
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate
