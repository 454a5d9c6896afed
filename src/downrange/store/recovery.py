"""Finds out, at start, what the log holds, and makes everything derived from it agree.

After a clean stop the newest file of the log is read again; after a crash everything from the file
that the checkpoint vouches for. Each sound record has its queue entry compared, and set right where
it differs; keys that the index does not have are added. What stands behind the last sound record
is cut off. Damage in the middle is passed over, reported, and its queue entries become holes.
"""

import logging
from dataclasses import dataclass, field

from downrange.protocol.sys_flag import TRANSACTION_MASK
from downrange.store.checkpoint import Checkpoint
from downrange.store.commit_log import CommitLog
from downrange.store.consume_queue import ConsumeQueue
from downrange.store.dispatch_entry import EntryReader, is_queued
from downrange.store.key_index import KeyIndex
from downrange.store.queue_table import QueueTable
from downrange.store.scanner import Damage, LogScanner, Scanned
from downrange.store.segment import Segment

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """From where to read the log, and what is known about the derived files."""

    start_offset: int
    index_from: int  # records below are in the index already
    check_crc: bool = True


@dataclass(slots=True)
class RecoveryReport:
    """What recovery saw and did."""

    start_offset: int = 0
    end_offset: int = 0
    store_timestamp: int = 0
    record_count: int = 0
    entries_restored: int = 0
    entries_cut: int = 0
    torn_bytes: int = 0
    damages: list[Damage] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"start={self.start_offset} end={self.end_offset} records={self.record_count} "
            f"entries_restored={self.entries_restored} entries_cut={self.entries_cut} "
            f"torn_bytes={self.torn_bytes} damages={len(self.damages)}"
        )


class Recovery:
    """One run over the files of a store that nobody else uses."""

    def __init__(
        self, log: CommitLog, queues: QueueTable, index: KeyIndex | None, entries: EntryReader
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._entries = entries
        self._queue_of: dict[tuple[bytes, int], ConsumeQueue] = {}
        self._expected: dict[ConsumeQueue, int] = {}
        self._damaged: list[tuple[int, int]] = []  # physical offset, size
        self.report = RecoveryReport()

    def run(self, plan: RecoveryPlan) -> RecoveryReport:
        """Read the log from the plan's start, restore what is derived, cut the rest."""
        report = self.report
        report.start_offset = plan.start_offset
        scanner = LogScanner(self._log, self._note_damage, check_crc=plan.check_crc)
        restore, index_from = self._restore, plan.index_from
        scanned: Scanned | None = None
        count = 0
        for scanned in scanner.scan(plan.start_offset):
            restore(scanned, index_from)
            count += 1
        report.record_count = count
        report.store_timestamp = scanned[5] if scanned is not None else 0
        report.end_offset = scanner.end_offset
        self._hole_tails()
        self._cut(report.end_offset)
        for damage in report.damages:
            _log.error("damaged: %s", damage)
        return report

    def _restore(self, scanned: Scanned, index_from: int) -> None:
        physical_offset, size, queue_id, queue_offset, sys_flag, stored_ms, name, text = scanned
        queue = self._queue_of.get((name, queue_id))
        if queue is None:
            queue = self._queues.ensure(name.decode("utf-8", "replace"), queue_id)
            self._queue_of[name, queue_id] = queue
            self._expected[queue] = queue.first_at_or_behind(self.report.start_offset)
        if not sys_flag & TRANSACTION_MASK or is_queued(sys_flag):
            if self._damaged and self._expected[queue] < queue_offset and queue.chain.segments:
                self._hole(queue, self._expected[queue], queue_offset)
            tag_code = self._entries.tag_code(queue.topic, text, stored_ms)
            if queue.restore(queue_offset, physical_offset, size, tag_code):
                self.report.entries_restored += 1
            self._expected[queue] = queue_offset + 1
        if physical_offset >= index_from and self._index is not None:
            keys = self._entries.keys(sys_flag, text)
            if keys:
                self._index.put(queue.topic, keys, physical_offset, stored_ms)

    def _note_damage(self, damage: Damage, physical_offset: int) -> None:
        self.report.damages.append(damage)
        self._damaged.append((physical_offset, damage.size))

    def _hole(self, queue: ConsumeQueue, start: int, stop: int) -> None:
        """The messages from `start` to `stop` are lost in the damage just before."""
        physical_offset, size = self._damaged[-1]
        for queue_offset in range(start, stop):
            queue.make_hole(queue_offset, physical_offset, size)

    def _hole_tails(self) -> None:
        """Entries behind the last sound record of their queue that point into damage."""
        for queue in self._queues if self._damaged else ():
            start = self._expected.get(queue)
            if start is None:
                start = queue.first_at_or_behind(self.report.start_offset)
            for queue_offset in range(start, queue.max_offset):
                physical_offset = queue.entry(queue_offset)[0]
                if any(at <= physical_offset < at + size for at, size in self._damaged):
                    self._hole(queue, queue_offset, queue_offset + 1)

    def _cut(self, end_offset: int) -> None:
        report = self.report
        for segment in self._log.chain.segments_from(end_offset):
            report.torn_bytes += _bytes_in_use(segment, max(end_offset - segment.base_offset, 0))
        if report.torn_bytes:
            _log.warning("cut %d bytes off the log at %d", report.torn_bytes, end_offset)
        self._log.cut(end_offset)
        for queue in self._queues:
            report.entries_cut += queue.cut(end_offset)
            queue.correct_min(self._log.min_offset)
        if self._index is not None:
            self._index.cut(end_offset)


def clean_start(log: CommitLog, queues: QueueTable) -> int:
    """Where to read from after a clean stop: the newest file whose start was dispatched."""
    return segment_start(log, dispatched_end(queues))


def crash_start(log: CommitLog, queues: QueueTable, checkpoint: Checkpoint) -> int:
    """Where to read from after a crash: the newest file older than the checkpoint.

    Never behind what the queues know, should the checkpoint be wrong.
    """
    safe_ms = checkpoint.recovery_timestamp
    start = log.min_offset
    for segment in log.chain.segments:
        first_ms = _first_store_timestamp(log, segment)
        if not 0 < first_ms <= safe_ms:
            break
        start = segment.base_offset
    return min(start, clean_start(log, queues))


def dispatched_end(queues: QueueTable) -> int:
    """Physical offset behind the newest record that a queue has an entry of."""
    end = 0
    for queue in queues:
        if queue.max_offset > queue.min_offset:
            physical_offset, size, _ = queue.entry(queue.max_offset - 1)
            end = max(end, physical_offset + size)
    return end


def segment_start(log: CommitLog, offset: int) -> int:
    """Where the file that holds this offset starts; the first or last file if none does."""
    start = log.min_offset
    for segment in log.chain.segments:
        if segment.base_offset <= offset:
            start = segment.base_offset
    return start


def _first_store_timestamp(log: CommitLog, segment: Segment) -> int:
    scanner = LogScanner(log, lambda _damage, _offset: None, check_crc=False)
    end = segment.base_offset + segment.size
    for scanned in scanner.scan(segment.base_offset, end):
        return scanned[5]
    return 0


def _bytes_in_use(segment: Segment, start: int) -> int:
    """How many bytes from `start` on stand before the zeros that end the file."""
    for begin, stop in reversed(segment.data_extents(start)):
        used = len(segment.map[begin:stop].rstrip(b"\0"))
        if used:
            return begin + used - start
    return 0
