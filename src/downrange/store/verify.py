"""Compares the whole log with everything that is derived from it, and changes nothing.

Every record is read with its checksum; every consume queue entry must be that of its record; every
key must be found in the index. What is wrong is listed with file and position. Memory: about a
hundred bytes for each key of the index file that covers the place being read.
"""

import sys
from dataclasses import dataclass

from downrange.protocol.delay_levels import DelayLevels
from downrange.protocol.java_hash import extend_hash, index_key_hash, java_hash
from downrange.runtime.clock import SystemClock
from downrange.runtime.disk import Disk
from downrange.store.commit_log import CommitLog
from downrange.store.consume_queue import ENTRY_BYTES, FILLER_SIZE, HOLE_TAG, ConsumeQueue
from downrange.store.deleted_topics import DeletedTopics
from downrange.store.dispatch_entry import TAG_KEY_PREFIX, EntryReader, is_queued
from downrange.store.entry_check import is_light
from downrange.store.index_file import IndexFile
from downrange.store.key_index import KeyIndex
from downrange.store.manifest import ManifestFile
from downrange.store.message_store import MessageStore
from downrange.store.queue_table import QueueTable
from downrange.store.read_only_disk import ReadOnlyDisk
from downrange.store.recovery import dispatched_end
from downrange.store.scanner import Damage, LogScanner, Scanned
from downrange.store.segment import segment_name
from downrange.store.settings import StoreSettings
from downrange.store.store_files import StoreFiles

_UNSIGNED = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was looked at, and what is wrong with it."""

    end_offset: int  # physical offset behind the last sound record
    record_count: int
    entry_count: int  # queue entries that are those of their records
    hole_count: int  # queue entries of messages that are known to be lost
    key_count: int
    damages: tuple[Damage, ...]

    @property
    def is_sound(self) -> bool:
        """Whether everything is as it should be."""
        return not self.damages


def verify_open(store: MessageStore) -> VerifyReport:
    """Verify a store that this process has open; what waits for dispatch is not missed."""
    verification = _Verification(store.log, store.queues, store.index, store.settings)
    verification.deleted_below = _deleted_below(store.settings)
    return verification.run(store.log.max_offset, store.dispatched_offset)


def verify_stopped(settings: StoreSettings) -> VerifyReport:
    """Verify the files of a store that nobody has open.

    `StoreDamagedError` if they cannot be a store with these settings.
    """
    read_only = ReadOnlyDisk()
    files = StoreFiles.of(read_only, settings.open_files_max)
    log = CommitLog(files, settings)
    queues = QueueTable(files, settings)
    index = KeyIndex(files, SystemClock(), settings) if settings.index_enabled else None
    try:
        log.load()
        queues.load()
        strange_files = index.load() if index is not None else []
        verification = _Verification(log, queues, index, settings)
        for path in strange_files:
            verification.note(Damage(path, 0, 0, "not an index file of the configured size"))
        verification.deleted_below = _deleted_below(settings)
        return verification.run(None, None)
    finally:
        log.close()
        queues.close()
        if index is not None:
            index.close()


class _Verification:
    """One walk over the log, with a finger in each queue and in the index."""

    def __init__(
        self, log: CommitLog, queues: QueueTable, index: KeyIndex | None, settings: StoreSettings
    ) -> None:
        self._log = log
        self._queues = queues
        self._keys = _KeyCheck(index) if index is not None else None
        self._settings = settings
        self._entries = EntryReader(DelayLevels.parse(settings.delay_levels))
        self._next: dict[ConsumeQueue, int] = {}  # queue offset of the first entry not looked at
        self._unknown: dict[tuple[str, int], int] = {}  # queues without files -> messages
        self._damages: dict[Damage, None] = {}
        self._entry_count = 0
        self._hole_count = 0
        self.deleted_below: dict[str, int] = {}

    def note(self, damage: Damage, _offset: int = 0) -> None:
        """Remember something that is wrong, once."""
        self._damages[damage] = None

    def run(self, end_offset: int | None, dispatched_offset: int | None) -> VerifyReport:
        """Read up to `end_offset`; records at or behind `dispatched_offset` need no entry yet."""
        # Of a store that has stopped, a write that its process did not end is no damage.
        whole_below = dispatched_end(self._queues) if end_offset is None else sys.maxsize
        scanner = LogScanner(
            self._log,
            self.note,
            check_whole=self._settings.checks_whole_records,
            whole_below=whole_below,
        )
        count = 0
        for scanned in scanner.scan(self._log.min_offset, end_offset):
            count += 1
            if dispatched_offset is None or scanned[0] < dispatched_offset:
                self._look_at(scanned)
        if end_offset is not None:
            self._look_at_end(scanner.end_offset, end_offset)
        for queue in self._queues:
            self._look_at_entries(queue, queue.max_offset)
        for (topic, queue_id), messages in self._unknown.items():
            path = self._settings.consume_queue_path / topic / str(queue_id)
            self.note(Damage(path, 0, 0, f"{messages} messages have no queue file"))
        return VerifyReport(
            end_offset=scanner.end_offset,
            record_count=count,
            entry_count=self._entry_count,
            hole_count=self._hole_count,
            key_count=self._keys.count if self._keys is not None else 0,
            damages=tuple(self._damages),
        )

    def _look_at(self, scanned: Scanned) -> None:
        physical_offset, size, queue_id, queue_offset, sys_flag, stored_ms, name, text = scanned
        topic = name.decode("utf-8", "replace")
        if physical_offset < self.deleted_below.get(topic, 0):
            return
        if self._keys is not None:
            missing = self._keys.missing(topic, self._entries.keys(sys_flag, text), physical_offset)
            for key in missing:
                self._note_record(physical_offset, size, f"the index does not have its key {key!r}")
        if not is_queued(sys_flag):
            return
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            self._unknown[topic, queue_id] = self._unknown.get((topic, queue_id), 0) + 1
            return
        self._look_at_entries(queue, queue_offset)
        if queue_offset >= queue.max_offset:
            self._note_entry(queue, queue_offset, "the entry is missing")
        elif queue_offset * ENTRY_BYTES >= queue.chain.min_offset:
            tag_code = self._entries.tag_code(topic, text, stored_ms)
            found = queue.entry(queue_offset)
            if found == (physical_offset, size, tag_code):
                self._entry_count += 1
            else:
                wanted = (physical_offset, size, tag_code)
                self._note_entry(queue, queue_offset, f"the entry is {found}, not {wanted}")
        self._next[queue] = queue_offset + 1

    def _look_at_entries(self, queue: ConsumeQueue, stop: int) -> None:
        """The entries before `stop` that no record has asked for."""
        start = self._next.get(queue)
        if start is None:
            start = max(queue.min_offset, queue.first_at_or_behind(self._log.min_offset))
        for queue_offset in range(start, min(stop, queue.max_offset)):
            physical_offset, size, tag_code = queue.entry(queue_offset)
            if tag_code == HOLE_TAG:
                self._hole_count += 1
            elif size != FILLER_SIZE and not is_light(queue):
                reason = f"the entry {queue_offset} points at {physical_offset}, no such message"
                self._note_entry(queue, queue_offset, reason)

    def _look_at_end(self, found_end: int, end_offset: int) -> None:
        """An open store knows where its log ends; a damaged last record is not the end."""
        last = self._log.chain.find(found_end)
        if last is None or found_end == end_offset or end_offset % last.size == 0:
            return
        position = found_end - last.base_offset
        self.note(Damage(last.path, position, end_offset - found_end, "no sound record is here"))

    def _note_record(self, physical_offset: int, size: int, reason: str) -> None:
        segment = self._log.chain.find(physical_offset)
        assert segment is not None
        self.note(Damage(segment.path, physical_offset - segment.base_offset, size, reason))

    def _note_entry(self, queue: ConsumeQueue, queue_offset: int, reason: str) -> None:
        position = queue_offset * ENTRY_BYTES
        base_offset = position - position % queue.chain.segment_bytes
        path = queue.chain.directory / segment_name(base_offset)
        self.note(Damage(path, position - base_offset, ENTRY_BYTES, reason))


class _KeyCheck:
    """Looks keys up in the index, in the order of the log, one or two files in memory at a time."""

    def __init__(self, index: KeyIndex) -> None:
        self._waiting: list[IndexFile] = list(index.files)
        self._loaded: list[tuple[int, set[tuple[int, int]]]] = []  # end offset, keys
        self.count = 0

    def missing(self, topic: str, keys: list[bytes], physical_offset: int) -> list[bytes]:
        """Those of a message's keys that a look-up would not find."""
        while self._waiting and self._waiting[0].begin_offset <= physical_offset:
            file = self._waiting.pop(0)
            self._loaded.append((file.end_offset, set(file.reachable())))
        self._loaded = [known for known in self._loaded if known[0] >= physical_offset]
        prefix = java_hash(topic + "#") & _UNSIGNED
        missing = []
        for key in keys:
            if key.startswith(TAG_KEY_PREFIX):
                continue  # older releases did not index tags
            self.count += 1
            item = (index_key_hash(extend_hash(prefix, key)), physical_offset)
            if not any(item in known for _, known in self._loaded):
                missing.append(key)
        return missing


def _deleted_below(settings: StoreSettings) -> dict[str, int]:
    deleted = DeletedTopics(Disk(), settings.root)
    deleted.load(ManifestFile(Disk(), settings.root).load())
    return deleted.below
