"""Finds out, at start, what the log holds, and makes everything derived from it agree.

After a clean stop the newest file of the log is read again; after a crash everything from the file
that the checkpoint vouches for. Each sound record has its queue entry compared, and set right where
it differs; keys that the index does not have are added. What stands behind the last sound record
is cut off. Damage in the middle is passed over, reported, and its queue entries become holes.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from downrange.protocol.record import RECORD_BYTES_MIN
from downrange.protocol.sys_flag import INNER_BATCH, TRANSACTION_MASK
from downrange.store.checkpoint import Checkpoint
from downrange.store.commit_log import CommitLog
from downrange.store.consume_queue import ENTRY_BYTES, FILLER_SIZE, HOLE_TAG, ConsumeQueue
from downrange.store.dispatch_entry import EntryReader, is_queued
from downrange.store.entry_check import is_borne_out, is_record
from downrange.store.errors import StoreGivenUpError
from downrange.store.key_index import KeyIndex
from downrange.store.queue_table import QueueTable
from downrange.store.scanner import Damage, LogScanner, Scanned
from downrange.store.segment import Segment

_log = logging.getLogger(__name__)
RECORDS_BETWEEN_LOOKS = 1_024  # between two questions whether to go on, a power of two
STORE_TIME_MAX_MS = 1 << 43  # in the year 2248
NAME_BYTES_MAX = 255  # of a directory, on every file system in use


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """From where to read the log, and what is known about the derived files."""

    start_offset: int
    index_from: int  # records below are in the index already
    check_crc: bool = True
    check_whole: bool = False
    queues_are_complete: bool = False  # below the start, which a crash may leave in doubt
    # Topic -> the physical offset below which its records were deleted with it.
    deleted_below: Mapping[str, int] = field(default_factory=dict)


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


class _IncompleteQueueError(Exception):
    """A queue has fewer entries than it must have had at the plan's start."""


class Recovery:
    """One run over the files of a store that nobody else uses.

    When `is_wanted` says no, the run ends with `StoreGivenUpError` and leaves the files as a death
    of the process at that moment would have left them.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        index: KeyIndex | None,
        entries: EntryReader,
        is_wanted: Callable[[], bool],
    ) -> None:
        self._is_wanted = is_wanted
        self._log = log
        self._queues = queues
        self._index = index
        self._entries = entries
        self._queue_of: dict[tuple[bytes, int], ConsumeQueue] = {}
        self._expected: dict[ConsumeQueue, int] = {}
        self._queues_are_complete = False
        self._damaged: list[tuple[int, int]] = []  # physical offset, size
        self._deleted_below: dict[bytes, int] = {}
        self.report = RecoveryReport()

    def run(self, plan: RecoveryPlan) -> RecoveryReport:
        """Read the log from the plan's start, restore what is derived, cut the rest."""
        report = self.report
        report.start_offset = plan.start_offset
        self._queues_are_complete = plan.queues_are_complete
        scanner = LogScanner(
            self._log,
            self._note_damage,
            check_crc=plan.check_crc,
            check_whole=plan.check_whole,
            whole_below=dispatched_end(self._queues),
        )
        self._deleted_below = {name.encode(): at for name, at in plan.deleted_below.items()}
        restore, index_from = self._restore, plan.index_from
        scanned: Scanned | None = None
        count = 0
        walk = scanner.scan(plan.start_offset)
        try:
            for scanned in walk:
                if not count & (RECORDS_BETWEEN_LOOKS - 1):
                    self._look(scanned[0])
                restore(scanned, index_from)
                count += 1
        except _IncompleteQueueError:
            _log.warning("a consume queue lacks older entries, the whole log is read")
            return Recovery(
                self._log, self._queues, self._index, self._entries, self._is_wanted
            ).run(self._whole(plan))
        finally:
            walk.close()  # it holds a view of the log, which may have to be closed now
        report.record_count = count
        report.store_timestamp = scanned[5] if scanned is not None else 0
        report.end_offset = scanner.end_offset
        self._note_torn_end(report.end_offset)
        self._hole_tails()
        self._cut(report.end_offset)
        for damage in report.damages:
            _log.error("damaged: %s", damage)
        return report

    def _look(self, physical_offset: int) -> None:
        if not self._is_wanted():
            raise StoreGivenUpError(f"given up at offset {physical_offset} of the log")

    def _whole(self, plan: RecoveryPlan) -> RecoveryPlan:
        """The plan to read everything; the keys that were put so far are not put again."""
        index_from = plan.index_from
        if self._index is not None:
            index_from = max(index_from, self._index.end_offset + 1)
        return replace(plan, start_offset=self._log.min_offset, index_from=index_from)

    def _restore(self, scanned: Scanned, index_from: int) -> None:
        physical_offset, size, queue_id, queue_offset, sys_flag, stored_ms, name, text = scanned
        if self._deleted_below and physical_offset < self._deleted_below.get(name, 0):
            return
        queue = self._queue_of.get((name, queue_id)) or self._first_seen(name, queue_id)
        if queue is None:
            self._refuse(physical_offset, size, f"no topic can have the name {name!r}")
            return
        if not sys_flag & TRANSACTION_MASK or is_queued(sys_flag):
            tag_code = self._entries.tag_code(queue.topic, text, stored_ms)
            is_right = queue.holds(queue_offset, physical_offset, size, tag_code)
            # Nothing but the body is protected by a checksum, so the other fields are doubted.
            if not is_right and self._is_doubtful(queue, queue_offset, physical_offset, sys_flag):
                self._refuse(physical_offset, size, f"its queue offset cannot be {queue_offset}")
                return
            if self._expected.get(queue) != queue_offset:
                self._hole_gap(queue, queue_offset)
            if not is_right and queue.restore(queue_offset, physical_offset, size, tag_code):
                self.report.entries_restored += 1
            self._expected[queue] = queue_offset + 1
        if physical_offset >= index_from and self._index is not None:
            keys = self._entries.keys(sys_flag, text)
            if keys:
                # A damaged time at the head of an index file would hide what is in and before it.
                is_plausible = 0 < stored_ms < STORE_TIME_MAX_MS
                index_ms = stored_ms if is_plausible else self._index.end_timestamp
                self._index.put(queue.topic, keys, physical_offset, index_ms)

    def _first_seen(self, name: bytes, queue_id: int) -> ConsumeQueue | None:
        """The queue of a record; None if the topic's name could not be that of a directory."""
        try:
            topic = name.decode()
        except UnicodeDecodeError:
            return None
        if topic in {"", ".", ".."} or "/" in topic or "\0" in topic or len(name) > NAME_BYTES_MAX:
            return None
        queue = self._queue_of[name, queue_id] = self._queues.ensure(topic, queue_id)
        return queue

    def _is_doubtful(
        self, queue: ConsumeQueue, queue_offset: int, physical_offset: int, sys_flag: int
    ) -> bool:
        """Whether a record whose entry is not there can have a damaged topic, queue or offset."""
        missing = queue_offset - queue.max_offset
        if missing < 0:
            if queue_offset * ENTRY_BYTES < queue.chain.min_offset:
                return queue_offset < 0
            found, found_size, tag_code = queue.entry(queue_offset)
            if found == physical_offset or found_size == FILLER_SIZE or tag_code == HOLE_TAG:
                return False
            return is_borne_out(self._log, queue, queue_offset)  # another one has that place
        if missing == 0 or sys_flag & INNER_BATCH:
            return False
        if queue in self._expected or (self._queues_are_complete and queue.max_offset):
            # Only messages lost in damage can be missing between two of a queue.
            return missing * RECORD_BYTES_MIN > sum(size for _, size in self._damaged)
        if self.report.start_offset > self._log.min_offset and not self._queues_are_complete:
            raise _IncompleteQueueError
        return not queue.can_follow(queue_offset, physical_offset)

    def _refuse(self, physical_offset: int, size: int, reason: str) -> None:
        segment = self._log.chain.find(physical_offset)
        assert segment is not None
        position = physical_offset - segment.base_offset
        self._note_damage(Damage(segment.path, position, size, reason), physical_offset)

    def _note_damage(self, damage: Damage, physical_offset: int) -> None:
        self.report.damages.append(damage)
        self._damaged.append((physical_offset, damage.size))

    def _hole(self, queue: ConsumeQueue, start: int, stop: int) -> None:
        """The messages from `start` to `stop` are lost in the damage just before."""
        physical_offset, size = self._damaged[-1] if self._damaged else (self._log.min_offset, 1)
        for queue_offset in range(start, stop):
            queue.make_hole(queue_offset, physical_offset, size)

    def _hole_gap(self, queue: ConsumeQueue, stop: int) -> None:
        """The messages before `stop` that should have been read, and were not, are lost."""
        expected = self._expected.get(queue)
        if expected is None:
            self._hole_lost(queue, stop)
            return
        for queue_offset in range(expected, min(stop, queue.max_offset)):
            if self._is_lost(queue, queue_offset) or not is_borne_out(
                self._log, queue, queue_offset
            ):
                self._hole(queue, queue_offset, queue_offset + 1)

    def _hole_lost(self, queue: ConsumeQueue, stop: int) -> None:
        """Before the first message read of a queue: entries that point at what was read."""
        start_offset = self.report.start_offset
        start = queue.first_at_or_behind(start_offset)
        for queue_offset in range(start, min(stop, queue.max_offset)):
            was_read = queue.entry(queue_offset)[0] >= start_offset
            if was_read and self._is_lost(queue, queue_offset):
                self._hole(queue, queue_offset, queue_offset + 1)

    def _hole_tails(self) -> None:
        """Entries behind the last sound record of their queue: in damage, or of no message."""
        for queue in self._queues:
            if queue not in self._expected:
                self._hole_lost(queue, queue.max_offset)
                continue
            for queue_offset in range(self._expected[queue], queue.max_offset):
                if not self._is_lost(queue, queue_offset):
                    self.report.entries_cut += queue.cut_from(queue_offset)
                    break
                self._hole(queue, queue_offset, queue_offset + 1)

    def _is_damaged(self, physical_offset: int) -> bool:
        return any(at <= physical_offset < at + size for at, size in self._damaged)

    def _is_lost(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        """Whether an entry points into damage, or at a record that is not its own any more."""
        physical_offset, size, _ = queue.entry(queue_offset)
        if self._is_damaged(physical_offset):
            return True
        if is_borne_out(self._log, queue, queue_offset) or not is_record(
            self._log, physical_offset, size
        ):
            return False
        self._refuse(physical_offset, size, f"it is not {queue_offset} of {queue.topic} any more")
        return True

    def _note_torn_end(self, end_offset: int) -> None:
        """Say what stands behind the last sound record; nothing of it is kept."""
        report = self.report
        for segment in self._log.chain.open_from(end_offset):
            report.torn_bytes += _bytes_in_use(segment, max(end_offset - segment.base_offset, 0))
        if report.torn_bytes:
            _log.warning("cut %d bytes off the log at %d", report.torn_bytes, end_offset)
        lost = [at for queue in self._queues for at in _offsets_behind(queue, end_offset)]
        place = min(lost, default=end_offset)
        first = self._log.chain.find(place)
        if lost and first is not None:
            reason = f"the log ends here, {len(lost)} messages are lost"
            position = place - first.base_offset
            report.damages.append(Damage(first.path, position, report.torn_bytes, reason))

    def _cut(self, end_offset: int) -> None:
        report = self.report
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
            physical_offset, size, _ = queue.newest_entry()
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


def _offsets_behind(queue: ConsumeQueue, end_offset: int) -> list[int]:
    """Where the entries at a queue's end point that point behind the end of the log."""
    offsets: list[int] = []
    for physical_offset, size, _ in queue.newest_first():
        if physical_offset < end_offset or size < RECORD_BYTES_MIN:
            break
        offsets.append(physical_offset)
    return offsets


def _bytes_in_use(segment: Segment, start: int) -> int:
    """How many bytes from `start` on stand before the zeros that end the file."""
    for begin, stop in reversed(segment.data_extents(start)):
        used = len(segment.map[begin:stop].rstrip(b"\0"))
        if used:
            return begin + used - start
    return 0
