"""What derived files there were when the store was last closed, so that a missing one is noticed.

RocketMQ keeps no such list: a consume queue or index file that was deleted is simply not there, and
its messages are invisible for good. The file `derived.json` stands beside RocketMQ's own files; an
Apache broker leaves it alone. It may be out of date or missing; then less is noticed at start.
"""

from pathlib import Path
from zlib import crc32

import msgspec

from downrange.runtime.disk import Disk
from downrange.store.commit_log import CommitLog
from downrange.store.consume_queue import ConsumeQueue, OnDamagedFile, Positions
from downrange.store.key_index import KeyIndex
from downrange.store.ownership import LastStop
from downrange.store.queue_table import KnownPositions, QueueTable
from downrange.store.recovery import dispatched_end

FILE_NAME = "derived.json"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of all queues, checksums of all index files."""

    dispatched_end: int
    queues: dict[str, dict[int, int]]  # topic -> queue id -> max offset
    index: dict[str, int]  # file name -> checksum of the part in use
    # Queue offset of the first file of each queue while the log began at `log_start`.
    first_offsets: dict[str, dict[int, int]] = {}
    # Topic -> queue id -> file's first byte -> bytes in use, checksum.
    queue_files: dict[str, dict[int, dict[int, tuple[int, int]]]] = {}
    log_start: int = 0
    # Where the log ended, and what was known of each queue then without opening its files.
    log_end: int = -1
    positions: dict[str, dict[int, Positions]] = {}
    positions_checksum: int = 0  # a flipped bit must not move the end of a queue
    # Topic -> physical offset: its records below are those of a topic that was deleted.
    deleted_below: dict[str, int] = {}

    def watch(self, queues: QueueTable, on_damaged_file: OnDamagedFile) -> None:
        """Have each file of a queue compared with its checksum when it is first read."""
        for queue in queues:
            queue.checksums = self.queue_files.get(queue.topic, {}).get(queue.queue_id, {})
            queue.on_damaged_file = on_damaged_file

    def missing_queues(self, queues: QueueTable) -> list[str]:
        """The queues that have fewer entries than they had."""
        missing = []
        for topic, bounds in self.queues.items():
            for queue_id, max_offset in bounds.items():
                queue = queues.get(topic, queue_id)
                if queue is None or queue.max_offset < max_offset:
                    missing.append(f"{topic}/{queue_id}")
        return missing

    def beheaded_queues(self, queues: QueueTable, log_start: int) -> list[ConsumeQueue]:
        """The queues whose first file is gone although retention had no reason to delete it."""
        if log_start != self.log_start:
            return []
        return [
            queue
            for queue in queues
            if queue.first_offset > self.first_offsets.get(queue.topic, {}).get(queue.queue_id, 0)
            and queue.queue_id in self.queues.get(queue.topic, {})
        ]

    def damaged_index_files(self, index: KeyIndex, *, unchanged: bool) -> list[str]:
        """The index files that are gone, or, if nothing was added since, not what they were."""
        there = {file.path.name: file for file in index.files}
        damaged = [name for name in self.index if name not in there]
        if unchanged:
            damaged += [
                name
                for name, file in there.items()
                if name in self.index and self.index[name] != file.checksum()
            ]
        return damaged


class ManifestFile:
    """The file itself."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._path = root / FILE_NAME

    def load(self) -> Manifest | None:
        """What the file says; None if there is none or it cannot be read."""
        if not self._disk.exists(self._path):
            return None
        try:
            return msgspec.json.decode(self._disk.read(self._path), type=Manifest)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None

    def save(
        self,
        queues: QueueTable,
        index: KeyIndex | None,
        deleted_below: dict[str, int],
        log_start: int,
        log_end: int,
    ) -> None:
        """Write down what there is now; durable when this returns."""
        bounds: dict[str, dict[int, int]] = {}
        first_offsets: dict[str, dict[int, int]] = {}
        queue_files: dict[str, dict[int, dict[int, tuple[int, int]]]] = {}
        positions: dict[str, dict[int, Positions]] = {}
        for queue in queues:
            if queue.max_offset > queue.first_offset:
                positions.setdefault(queue.topic, {})[queue.queue_id] = queue.positions
            if queue.max_offset:
                bounds.setdefault(queue.topic, {})[queue.queue_id] = queue.max_offset
                checksums = queue.file_checksums()
                queue_files.setdefault(queue.topic, {})[queue.queue_id] = checksums
            if queue.first_offset:
                first_offsets.setdefault(queue.topic, {})[queue.queue_id] = queue.first_offset
        files = index.files if index is not None else []
        manifest = Manifest(
            dispatched_end=dispatched_end(queues),
            queues=bounds,
            index={file.path.name: file.checksum() for file in files},
            deleted_below=deleted_below,
            first_offsets=first_offsets,
            log_start=log_start,
            log_end=log_end,
            queue_files=queue_files,
            positions=positions,
            positions_checksum=_checksum(positions, log_end),
        )
        fresh = self._path.with_name(FILE_NAME + ".new")
        self._disk.write(fresh, msgspec.json.encode(manifest))
        self._disk.rename(fresh, self._path)
        self._disk.fsync_directory(self._path.parent)


def known_positions(
    manifest: Manifest | None, log: CommitLog, last_stop: LastStop
) -> KnownPositions | None:
    """Positions of queues that were closed gracefully, if nothing was appended since."""
    if manifest is None or last_stop is not LastStop.CLEAN:
        return None
    if manifest.positions_checksum != _checksum(manifest.positions, manifest.log_end):
        return None
    return manifest.positions if _ends_at(log, manifest.log_end) else None


def _checksum(positions: KnownPositions, log_end: int) -> int:
    return crc32(msgspec.json.encode((positions, log_end)))


def _ends_at(log: CommitLog, offset: int) -> bool:
    """Whether the log's last file ends here, or nothing follows in it."""
    last = log.last
    if last is None or not last.base_offset <= offset <= last.base_offset + last.size:
        return False
    start = offset - last.base_offset
    return not any(last.map[start : start + 4])  # the size of a record; a roll fills the rest


def is_as_left(manifest: Manifest | None, queues: QueueTable) -> bool:
    """Whether the queues end where they did when this program last closed the store."""
    return manifest is not None and manifest.dispatched_end == dispatched_end(queues)
