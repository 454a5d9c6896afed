"""Reads messages out of a queue by the rules of RocketMQ's getMessage.

The bytes that come back are views of the mapped log, not copies; who sends them on decodes nothing.
"""

import os
from bisect import bisect_right
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from itertools import accumulate
from struct import Struct
from typing import NamedTuple, Protocol

from downrange.protocol.record import RECORD_BYTES_MIN
from downrange.store.commit_log import CommitLog
from downrange.store.consume_queue import ENTRY, ENTRY_BYTES, HOLE_TAG, ConsumeQueue
from downrange.store.entry_check import is_light
from downrange.store.queue_table import QueueTable
from downrange.store.settings import MIB, ReadSettings, StoreSettings

BYTES_MIN = 100  # a reader that asks for less gets one message all the same
BYTES_MAX = 128 * MIB
_PIECE_COUNT_MAX = 64
_first_physical = Struct(">q").unpack_from
_first_entry = ENTRY.unpack_from
_HOLE_TAG_BYTES = HOLE_TAG.to_bytes(8, "big", signed=True)
# Size, queue id and queue offset of a record: who the message is, but for its topic.
_IDENTITY = Struct(">i8xi4xq")
_unpack_identity = _IDENTITY.unpack_from


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


# Most messages and bytes of a read: from the disk, from memory.
_Limits = tuple[tuple[int, int], tuple[int, int]]
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
        # Readers mostly ask for the same again.
        self._limits_asked = (-1, -1)
        self._limits_known = ((0, 0), (0, 0))
        self._memory_window = int(memory_bytes * settings.read.memory_ratio)

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        bytes_max: int = BYTES_MAX,
        message_filter: MessageFilter | None = None,
        *,
        in_bulk: bool = False,
    ) -> ReadResult:
        """Messages from `offset` on; the status says why there are none, and where to go on.

        A read in bulk has limits of its own, which are higher and do not ask where the log is.
        """
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
        if in_bulk:
            count_max = min(count_max, self._settings.bulk_count_max)
            of_bulk = (count_max, min(bytes_max, self._settings.bulk_bytes_max))
            limits = (of_bulk, of_bulk)
        else:
            limits = self._limits(count_max, bytes_max)
        entries = self._entries(queue, offset, count_max, is_filtered=message_filter is not None)
        if not entries:
            return self._beyond_file(queue, offset)
        if in_bulk and message_filter is None:
            entries = _fitting(entries, limits[True][1])
        oldest_in_memory = self._log.max_offset - self._memory_window
        if message_filter is None and _first_physical(entries)[0] >= oldest_in_memory:
            plain = self._read_plain(queue, offset, entries, *limits[True])
            if plain is not None:
                return plain
        return self._collect(queue, offset, entries, limits, oldest_in_memory, message_filter)

    def _nothing(
        self, status: ReadStatus, offset: int, corrected: int, low: int, high: int
    ) -> ReadResult:
        next_offset = corrected if self._corrects_offsets else offset
        return ReadResult(status, [], 0, 0, next_offset, low, high, False, 0)

    def _collect(
        self,
        queue: ConsumeQueue,
        offset: int,
        entries: bytes,
        limits: _Limits,
        oldest_in_memory: int,
        message_filter: MessageFilter | None,
    ) -> ReadResult:
        count_limit, bytes_limit = limits[True]
        is_cold = _first_physical(entries)[0] < oldest_in_memory
        views: list[memoryview] = []
        view, base, end = memoryview(b""), 0, 0
        run_start = run_end = -1
        queue_id = queue.queue_id
        count = size_sum = filtered = 0
        queue_offset = offset - 1
        status = ReadStatus.NO_MATCHED_MESSAGE
        for physical_offset, size, tag_code in ENTRY.iter_unpack(entries):
            if is_cold:
                count_limit, bytes_limit = limits[physical_offset >= oldest_in_memory]
            if (size_sum + size > bytes_limit or count >= count_limit) and count:
                break
            queue_offset += 1
            if tag_code == HOLE_TAG or (
                message_filter is not None and not message_filter.matches_entry(tag_code)
            ):
                continue
            start = physical_offset - base
            stop = start + size
            # The record says its size, queue and offset; an entry that disagrees is damaged.
            if (
                start < 0
                or size < RECORD_BYTES_MIN
                or stop > end
                or _unpack_identity(view, start) != (size, queue_id, queue_offset)
            ):
                found = self._locate(queue, queue_offset, physical_offset, size)
                if found is None:
                    if not count:
                        status = ReadStatus.MESSAGE_WAS_REMOVING
                    continue
                if run_end > run_start:
                    views.append(view[run_start:run_end])
                run_start = run_end = -1
                # The size is what the log says, not the entry.
                (view, base, end), start, size = found  # noqa: PLW2901
                stop = start + size
            if message_filter is not None and not message_filter.matches_record(view[start:stop]):
                filtered += 1
                continue
            # Records that stand end to end in the log become one view.
            if start != run_end:
                if run_end > run_start:
                    views.append(view[run_start:run_end])
                run_start = start
            run_end = stop
            count += 1
            size_sum += size
        if count:
            status = ReadStatus.FOUND
            views.append(view[run_start:run_end])
        last_entry = max(queue_offset - offset, 0) * ENTRY_BYTES  # that was looked at
        is_old = _first_physical(entries, last_entry)[0] < oldest_in_memory
        bounds = queue_offset + 1, queue.min_offset, queue.max_offset
        return ReadResult(status, views, count, size_sum, *bounds, is_old, filtered)

    def _read_plain(
        self, queue: ConsumeQueue, offset: int, entries: bytes, count_max: int, bytes_max: int
    ) -> ReadResult | None:
        """The records of all entries if nothing is unusual, as it mostly is; else None.

        They stand in one file, agree with their entries, and are not more than may be read.
        """
        piece = self._read_piece(queue, offset, entries, count_max, bytes_max)
        if piece is not None:
            return piece
        found = list(ENTRY.iter_unpack(entries))
        sizes = [size for _, size, _ in found]
        size_sum = sum(sizes)
        segment = self._log.chain.segment_at(found[0][0])
        if (
            segment is None
            or len(found) > count_max
            or size_sum > bytes_max
            or min(sizes) < RECORD_BYTES_MIN
        ):
            return None
        view, base, end = memoryview(segment.map), segment.base_offset, segment.write_position
        views: list[memoryview] = []
        run_start = run_end = found[0][0] - base
        queue_id = queue.queue_id
        queue_offset = offset
        for physical_offset, size, tag_code in found:
            start = physical_offset - base
            stop = start + size
            if (
                start < 0
                or stop > end
                or tag_code == HOLE_TAG
                or _unpack_identity(view, start) != (size, queue_id, queue_offset)
            ):
                return None
            if start != run_end:
                views.append(view[run_start:run_end])
                run_start = start
            run_end = stop
            queue_offset += 1
        views.append(view[run_start:run_end])
        bounds = queue_offset, queue.min_offset, queue.max_offset
        return ReadResult(ReadStatus.FOUND, views, len(found), size_sum, *bounds, False, 0)

    def _read_piece(
        self, queue: ConsumeQueue, offset: int, entries: bytes, count_max: int, bytes_max: int
    ) -> ReadResult | None:
        """The records of all entries if they are one piece of the log and of one size.

        So batches leave them, and then a few calls look at all of them; else None.
        """
        count = len(entries) // ENTRY_BYTES
        if not 1 < count <= min(count_max, _PIECE_COUNT_MAX):
            return None
        place, size, _ = _first_entry(entries)
        (last,) = _first_physical(entries, -ENTRY_BYTES)
        size_sum = size * count
        segment = self._log.chain.segment_at(place)
        if last + size != place + size_sum or size < RECORD_BYTES_MIN or segment is None:
            return None
        start = place - segment.base_offset
        if size_sum > bytes_max or start + size_sum > segment.write_position:
            return None
        # What the other entries say is not needed where the log has the records.
        records = _all_identities(size, count).unpack_from(segment.map, start)
        if (
            _HOLE_TAG_BYTES in entries
            or records[0::3].count(size) != count
            or records[1::3].count(queue.queue_id) != count
            or records[2::3] != tuple(range(offset, offset + count))
        ):
            return None
        view = memoryview(segment.map)[start : start + size_sum]
        bounds = offset + count, queue.min_offset, queue.max_offset
        return ReadResult(ReadStatus.FOUND, [view], count, size_sum, *bounds, False, 0)

    def _locate(
        self, queue: ConsumeQueue, queue_offset: int, physical_offset: int, size: int
    ) -> tuple["_Place", int, int] | None:
        """The file, position and size of an entry's record, the entry repaired if it is wrong."""
        for attempt in range(2):
            segment = self._log.chain.segment_at(physical_offset)
            if segment is not None:
                start = physical_offset - segment.base_offset
                fits = RECORD_BYTES_MIN <= size <= segment.write_position - start
                named = _unpack_identity(segment.map, start) if fits else ()
                identity = (size, queue.queue_id, queue_offset)
                if named == identity or (named[:1] == (size,) and is_light(queue)):
                    place = _Place(
                        memoryview(segment.map), segment.base_offset, segment.write_position
                    )
                    return place, start, size
            if attempt or 0 <= physical_offset < self._log.min_offset:
                return None  # nothing is wrong if retention has removed the record
            repaired = self._repair(queue, queue_offset)
            if repaired is None:
                return None
            physical_offset, size, _ = repaired
        return None

    def _entries(
        self, queue: ConsumeQueue, offset: int, count_max: int, *, is_filtered: bool
    ) -> bytes:
        """The entries to look at; a filter may look at more than are returned."""
        looked_at_max = max(count_max, 1)
        if is_filtered:
            looked_at_max = max(self._settings.filter_bytes_max // ENTRY_BYTES, looked_at_max)
        return queue.entries(offset, looked_at_max)

    def _beyond_file(self, queue: ConsumeQueue, offset: int) -> ReadResult:
        """The file that should hold this offset is not there: go on with the next one."""
        per_file = queue.chain.segment_bytes // ENTRY_BYTES
        next_file = offset - offset % per_file + per_file
        return self._nothing(
            ReadStatus.OFFSET_FOUND_NULL, offset, next_file, queue.min_offset, queue.max_offset
        )

    def _limits(self, count_max: int, bytes_max: int) -> _Limits:
        """Most messages and bytes of a read, from the disk and from memory."""
        if self._limits_asked == (count_max, bytes_max):
            return self._limits_known
        settings = self._settings
        self._limits_asked = (count_max, bytes_max)
        self._limits_known = (
            (
                min(count_max, settings.on_disk_count_max),
                min(bytes_max, settings.on_disk_bytes_max),
            ),
            (
                min(count_max, settings.in_memory_count_max),
                min(bytes_max, settings.in_memory_bytes_max),
            ),
        )
        return self._limits_known


class _Place(NamedTuple):
    """The file of the log that is being read."""

    view: memoryview
    base_offset: int
    end: int


@lru_cache(maxsize=1024)
def _all_identities(size: int, count: int) -> Struct:
    """The identities of so many records of this size."""
    layout = f"{_IDENTITY.format.removeprefix('>')}{size - _IDENTITY.size}x"
    return Struct(">" + layout * count)


def _fitting(entries: bytes, bytes_max: int) -> bytes:
    """As many of the entries as have records of so many bytes together; at least one."""
    sizes = [size for _, size, _ in ENTRY.iter_unpack(entries)]
    count = bisect_right(list(accumulate(sizes)), bytes_max)
    return entries[: max(count, 1) * ENTRY_BYTES]


def physical_memory_bytes() -> int:
    """How much RAM the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
