"""Reads messages out of a queue by the rules of RocketMQ's getMessage.

The bytes that come back are views of the mapped log, not copies; who sends them on decodes nothing.
"""

import mmap
import os
from collections.abc import Callable
from enum import Enum
from struct import Struct
from typing import NamedTuple, Protocol

from downrange.store.commit_log import CommitLog
from downrange.store.consume_queue import ENTRY, ENTRY_BYTES, HOLE_TAG, ConsumeQueue
from downrange.store.queue_table import QueueTable
from downrange.store.settings import MIB, ReadSettings, StoreSettings

BYTES_MIN = 100  # a reader that asks for less gets one message all the same
BYTES_MAX = 128 * MIB
_unpack_size = Struct(">i").unpack_from


class ReadStatus(Enum):
    """How a read went, by RocketMQ's names."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_RESET = "OFFSET_RESET"  # given by the broker, never by the store


class MessageFilter(Protocol):
    """Says which messages a reader wants."""

    def matches_entry(self, tag_code: int) -> bool:
        """By the queue entry alone; True if the record has to decide."""
        ...

    def matches_record(self, record: memoryview) -> bool:
        """By the record."""
        ...


class ReadResult(NamedTuple):
    """What a read found; `views` are the records' bytes, end to end where they stood so."""

    status: ReadStatus
    views: list[memoryview]
    message_count: int
    size: int
    next_offset: int
    min_offset: int
    max_offset: int
    suggest_slave: bool
    filtered_count: int


# Queue, queue offset of an entry that does not point at a record -> the entry as it should be.
Repair = Callable[[ConsumeQueue, int], tuple[int, int, int] | None]


class QueueReader:
    """Reads from the queues of one store."""

    def __init__(
        self, log: CommitLog, queues: QueueTable, repair: Repair, settings: StoreSettings
    ) -> None:
        self._log = log
        self._queues = queues
        self._repair = repair
        self._settings: ReadSettings = settings.read
        self._corrects_offsets = not settings.is_slave
        memory_bytes = settings.read.memory_bytes or physical_memory_bytes()
        self._memory_window = int(memory_bytes * settings.read.memory_ratio)

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        bytes_max: int = BYTES_MAX,
        message_filter: MessageFilter | None = None,
    ) -> ReadResult:
        """Messages from `offset` on; the status says why there are none, and where to go on."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return self._nothing(ReadStatus.NO_MATCHED_LOGIC_QUEUE, offset, 0, 0, 0)
        low, high = queue.min_offset, queue.max_offset
        if high == 0:
            return self._nothing(ReadStatus.NO_MESSAGE_IN_QUEUE, offset, 0, low, high)
        if offset < low:
            return self._nothing(ReadStatus.OFFSET_TOO_SMALL, offset, low, low, high)
        if offset == high:
            return self._nothing(ReadStatus.OFFSET_OVERFLOW_ONE, offset, offset, low, high)
        if offset > high:
            return self._nothing(ReadStatus.OFFSET_OVERFLOW_BADLY, offset, high, low, high)
        bytes_max = min(max(bytes_max, BYTES_MIN), BYTES_MAX)
        return self._collect(queue, offset, count_max, bytes_max, message_filter)

    def _nothing(
        self, status: ReadStatus, offset: int, corrected: int, low: int, high: int
    ) -> ReadResult:
        next_offset = corrected if self._corrects_offsets else offset
        return ReadResult(status, [], 0, 0, next_offset, low, high, False, 0)

    def _collect(
        self,
        queue: ConsumeQueue,
        offset: int,
        count_max: int,
        bytes_max: int,
        message_filter: MessageFilter | None,
    ) -> ReadResult:
        log_end = self._log.max_offset
        window = self._memory_window
        # A filter may look at more entries than are returned; without one there is no use in it.
        looked_at_max = max(count_max, 1)
        if message_filter is not None:
            looked_at_max = max(self._settings.filter_bytes_max // ENTRY_BYTES, looked_at_max)
        entries = queue.entries(offset, looked_at_max)
        if not entries:
            return self._beyond_file(queue, offset)
        limits = self._limits(count_max, bytes_max)
        runs = _Runs(self._log)
        count = size_sum = filtered = physical_offset = 0
        next_offset = offset
        was_removed = False
        for physical_offset, size, tag_code in ENTRY.iter_unpack(entries):
            if size_sum:
                count_limit, bytes_limit = limits[log_end - physical_offset <= window]
                if count >= count_limit or size_sum + size > bytes_limit:
                    break
            next_offset += 1
            if tag_code == HOLE_TAG:
                continue
            if message_filter is not None and not message_filter.matches_entry(tag_code):
                continue
            if not runs.select(physical_offset, size):
                size = self._select_repaired(runs, queue, next_offset - 1)  # noqa: PLW2901
                if not size:
                    was_removed = True
                    continue
            if message_filter is not None and not message_filter.matches_record(runs.selected()):
                filtered += 1
                continue
            runs.take()
            count += 1
            size_sum += size
        status = ReadStatus.NO_MATCHED_MESSAGE
        if count:
            status = ReadStatus.FOUND
        elif was_removed:
            status = ReadStatus.MESSAGE_WAS_REMOVING
        return ReadResult(
            status,
            runs.finish(),
            count,
            size_sum,
            next_offset,
            queue.min_offset,
            queue.max_offset,
            log_end - physical_offset > window,
            filtered,
        )

    def _beyond_file(self, queue: ConsumeQueue, offset: int) -> ReadResult:
        """The file that should hold this offset is not there: go on with the next one."""
        per_file = queue.chain.segment_bytes // ENTRY_BYTES
        next_file = offset - offset % per_file + per_file
        return self._nothing(
            ReadStatus.OFFSET_FOUND_NULL, offset, next_file, queue.min_offset, queue.max_offset
        )

    def _select_repaired(self, runs: "_Runs", queue: ConsumeQueue, queue_offset: int) -> int:
        """Select the record of an entry that is wrong; its size, or 0 if the log has none."""
        if 0 <= queue.entry(queue_offset)[0] < self._log.min_offset:
            return 0  # nothing is wrong: retention has removed the record
        repaired = self._repair(queue, queue_offset)
        if repaired is None or not runs.select(repaired[0], repaired[1]):
            return 0
        return repaired[1]

    def _limits(self, count_max: int, bytes_max: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Most messages and bytes of a read, from the disk and from memory."""
        settings = self._settings
        return (
            (
                min(count_max, settings.on_disk_count_max),
                min(bytes_max, settings.on_disk_bytes_max),
            ),
            (
                min(count_max, settings.in_memory_count_max),
                min(bytes_max, settings.in_memory_bytes_max),
            ),
        )


class _Runs:
    """Gathers records; those that stand end to end in the log become one view."""

    __slots__ = (
        "_base",
        "_end",
        "_limit",
        "_log",
        "_map",
        "_run_end",
        "_run_start",
        "_start",
        "views",
    )

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._map: mmap.mmap | None = None
        self._base = 0
        self._limit = 0
        self._start = self._end = 0
        self._run_start = self._run_end = 0
        self.views: list[memoryview] = []

    def select(self, physical_offset: int, size: int) -> bool:
        """Look at a record; False if there is none of that size."""
        start = physical_offset - self._base
        end = start + size
        if start < 0 or end > self._limit or self._map is None:
            self._close_run()
            segment = self._log.chain.segment_at(physical_offset)
            if segment is None:
                return False
            self._map = segment.map
            self._base = segment.base_offset
            self._limit = segment.write_position
            start = physical_offset - self._base
            end = start + size
            if end > self._limit:
                return False
        # The record says its own size first; an entry that disagrees is damaged.
        if _unpack_size(self._map, start)[0] != size:
            return False
        self._start = start
        self._end = end
        return True

    def selected(self) -> memoryview:
        """The bytes of the record that was looked at last."""
        assert self._map is not None
        return memoryview(self._map)[self._start : self._end]

    def take(self) -> None:
        """Add the record that was looked at last."""
        if self._start != self._run_end:
            self._close_run()
            self._run_start = self._start
        self._run_end = self._end

    def finish(self) -> list[memoryview]:
        """The views of everything taken."""
        self._close_run()
        return self.views

    def _close_run(self) -> None:
        if self._map is not None and self._run_end > self._run_start:
            self.views.append(memoryview(self._map)[self._run_start : self._run_end])
        self._run_start = self._run_end = -1


def physical_memory_bytes() -> int:
    """How much RAM the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
