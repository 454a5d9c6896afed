"""Walks the commit log record by record and finds the way past damage.

A record is sound when magic, sizes and physical offset agree and its body has the checksum that it
carries. Where one is not, the walk goes on at the next place that holds a record naming that very
place as its physical offset: a pattern that nothing else has. If there is none, the log ends.

A writer that dies while it writes several records at once leaves zeros for the first head, and
behind it records that may be whole or not; nobody was told of any of them, and none is kept.
"""

import mmap
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Protocol
from zlib import crc32

from downrange.protocol.record import (
    BLANK,
    CRC_MASK,
    HEAD_START,
    HEAD_V4,
    HEADS,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
)
from downrange.protocol.record_crc import check_record_crc
from downrange.protocol.sys_flag import BORN_HOST_V6, STORE_HOST_V6
from downrange.store.commit_log import CommitLog
from downrange.store.segment import Segment

_MAGICS = tuple(BLANK.pack(0, magic)[4:] for magic in (MAGIC_V1, MAGIC_V2))
_HEAD_V4_BYTES = HEAD_V4.size
_V6_BITS = BORN_HOST_V6 | STORE_HOST_V6
# The head with IPv4 hosts, without the fields that nobody asks for here.
_unpack_usual = Struct(">iiIi4xqqi8x8xq8x12xi").unpack_from

# physical offset, size, queue id, queue offset, system flag, store time, topic, properties
Scanned = tuple[int, int, int, int, int, int, bytes, bytes]


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a file that are not what they should be."""

    path: Path
    position: int  # within the file
    size: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path} at {self.position}, {self.size} bytes: {self.reason}"


class LogBytes(Protocol):
    """A log file, or the part of one from `base_offset` to its end."""

    @property
    def map(self) -> mmap.mmap | bytes:
        """The bytes, as far as they are here."""
        ...

    @property
    def base_offset(self) -> int:
        """Physical offset of the first byte."""
        ...

    @property
    def size(self) -> int:
        """Bytes up to the end of the file."""
        ...


class LogScanner:
    """One walk over the log; `end_offset` is where the last sound record seen so far ended.

    `whole_below` is an offset below which all writes are known to have ended; by default all.
    """

    def __init__(
        self,
        log: CommitLog,
        on_damage: Callable[[Damage, int], None],
        *,
        check_crc: bool = True,
        check_whole: bool = False,
        whole_below: int = sys.maxsize,
    ) -> None:
        self._log = log
        self._on_damage = on_damage
        self._check_crc = check_crc
        self._check_whole = check_whole
        self._whole_below = whole_below
        self.end_offset = 0

    def scan(self, start: int, end: int | None = None) -> Generator[Scanned, None, None]:
        """The sound records from the one that starts at `start`, below `end`."""
        self.end_offset = start
        for segment in self._log.chain.open_from(start):
            limit = segment.size if end is None else min(segment.size, end - segment.base_offset)
            position = max(start - segment.base_offset, 0)
            yield from self._scan_segment(segment, position, limit)

    def _scan_segment(self, segment: Segment, position: int, limit: int) -> Iterator[Scanned]:
        check_crc = self._check_crc
        check_whole = self._check_whole
        damaged_from = -1
        reason = ""
        with memoryview(segment.map) as view:
            while position + RECORD_BYTES_MIN <= limit:
                record = None
                if not check_whole:
                    record = usual_at(segment, view, position, limit, check_crc)
                if record is None:
                    if is_blank_at(segment, position):
                        break
                    record, why = check_at(segment, view, position, limit, check_crc, check_whole)
                    if record is None:
                        if damaged_from < 0:
                            if self._is_torn_write(segment, view, position, limit):
                                return
                            damaged_from, reason = position, why
                        position = _next_candidate(segment, position + 1, limit)
                        continue
                if damaged_from >= 0:
                    self._report(segment, damaged_from, position, reason)
                    damaged_from = -1
                position += record[1]
                self.end_offset = segment.base_offset + position
                yield record
        if damaged_from >= 0 and self._goes_on_behind(segment):
            self._report(segment, damaged_from, min(position, limit), reason)

    def _is_torn_write(self, segment: Segment, view: memoryview, position: int, limit: int) -> bool:
        """Whether nothing but the rest of one write follows, whose head was to come last.

        What is written at once is of one topic and has one store time.
        """
        if segment.base_offset + position < self._whole_below:
            return False
        if any(view[position : position + HEAD_START.size]):
            return False
        written = None
        while (position := _next_candidate(segment, position + 1, limit)) < limit:
            record, _ = check_at(segment, view, position, limit, False, False)
            if record is None:
                continue
            _, size, _, _, _, stored_ms, topic, _ = record
            if written is None:
                written = (stored_ms, topic)
            elif written != (stored_ms, topic):
                return False
            position += size - 1
        return written is not None and not self._goes_on_behind(segment)

    def _goes_on_behind(self, segment: Segment) -> bool:
        """Whether a later file begins with a sound record, so that this one is not the end."""
        for later in self._log.chain.open_from(segment.base_offset + segment.size):
            with memoryview(later.map) as view:
                record, _ = check_at(later, view, 0, later.size, False, False)
                if record is not None or _next_candidate(later, 1, later.size) < later.size:
                    return True
        return False

    def _report(self, segment: Segment, start: int, stop: int, reason: str) -> None:
        self._on_damage(
            Damage(segment.path, start, stop - start, reason), segment.base_offset + start
        )


def usual_at(
    segment: LogBytes, view: memoryview, position: int, limit: int, check_crc: bool
) -> Scanned | None:
    """The record at `position` if it is sound, V1 and with IPv4 hosts: what nearly all are.

    Says the same as `check_at`, which takes all forms, in a third of the time.
    """
    buffer = segment.map
    size, magic, crc, queue_id, queue_offset, physical_offset, sys_flag, stored_ms, body_bytes = (
        _unpack_usual(buffer, position)
    )
    if (
        magic != MAGIC_V1
        or sys_flag & _V6_BITS
        or physical_offset != segment.base_offset + position
    ):
        return None
    end = position + size
    body_start = position + _HEAD_V4_BYTES
    body_end = body_start + body_bytes
    if not body_start <= body_end < end <= limit:
        return None
    topic_end = body_end + 1 + buffer[body_end]
    properties_start = topic_end + 2
    if properties_start > end:
        return None
    if properties_start + (buffer[topic_end] << 8) + buffer[topic_end + 1] != end:
        return None
    if check_crc and body_bytes and crc32(view[body_start:body_end]) & CRC_MASK != crc:
        return None
    if not buffer[end - 1] and properties_start < end:
        return None
    return (
        physical_offset,
        size,
        queue_id,
        queue_offset,
        sys_flag,
        stored_ms,
        buffer[body_end + 1 : topic_end],
        buffer[properties_start:end],
    )


def is_blank_at(segment: LogBytes, position: int) -> bool:
    """Whether a blank record fills the file from here."""
    size, magic = BLANK.unpack_from(segment.map, position)
    return bool(magic == MAGIC_BLANK and position + size == segment.size)


def check_at(
    segment: LogBytes,
    view: memoryview,
    position: int,
    limit: int,
    check_crc: bool,
    check_whole: bool,
) -> tuple[Scanned | None, str]:
    """The record at `position` in any of its forms, or why there is none."""
    head = HEADS[(HEAD_V4.unpack_from(view, position)[7] >> 4) & 3]
    if position + head.size + 3 > limit:
        return None, "too few bytes for a record"
    fields = head.unpack_from(view, position)
    size, magic, crc, queue_id, _, queue_offset, physical_offset, sys_flag = fields[:8]
    if magic not in {MAGIC_V1, MAGIC_V2}:
        return None, f"no record starts here (magic {magic & 0xFFFFFFFF:#010x})"
    if physical_offset != segment.base_offset + position:
        return None, f"the record names {physical_offset} as its place"
    end = position + size
    body_start = position + head.size
    body_end = body_start + fields[14]
    length_bytes = 1 if magic == MAGIC_V1 else 2
    if not body_start <= body_end <= body_end + length_bytes + 2 <= end <= limit:
        return None, f"the sizes in the record do not fit (total {size}, body {fields[14]})"
    topic_start = body_end + length_bytes
    topic_end = topic_start + int.from_bytes(view[body_end:topic_start], "big")
    properties_start = topic_end + 2
    if (
        properties_start > end
        or properties_start + int.from_bytes(view[topic_end:properties_start], "big") != end
    ):
        return None, f"the size of the record ({size}) is not the sum of its parts"
    if check_crc and fields[14] and crc32(view[body_start:body_end]) & CRC_MASK != crc:
        return None, "the body does not have the checksum that the record carries"
    is_torn = properties_start < end and not view[end - 1]
    if is_torn or (check_whole and check_record_crc(view[position:end]) is False):
        return None, (
            "its properties end with zeros" if is_torn
            else "the record does not have the checksum that its last property says"
        )  # fmt: skip
    return (
        physical_offset,
        size,
        queue_id,
        queue_offset,
        sys_flag,
        fields[10],
        bytes(view[topic_start:topic_end]),
        bytes(view[properties_start:end]),
    ), ""


def next_record_in(data: bytes, base_offset: int, start: int) -> int:
    """The next position in the bytes from `base_offset` at which a record may start; -1 if none."""
    for position in range(start, len(data)):
        found = [data.find(magic, position + 4) for magic in _MAGICS]
        candidate = min((place - 4 for place in found if place >= 0), default=-1)
        if candidate < 0:
            return -1
        if int.from_bytes(data[candidate + 28 : candidate + 36], "big") == base_offset + candidate:
            return candidate
    return -1


def _next_candidate(segment: Segment, start: int, limit: int) -> int:
    """The next position at which a record of this place may start; `limit` if there is none."""
    buffer = segment.map
    for begin, stop in segment.data_extents(start):
        position = max(begin, start)
        while position < stop:
            found = [buffer.find(magic, position, min(stop + 3, limit)) for magic in _MAGICS]
            places = [place for place in found if place >= 0]
            if not places:
                break
            candidate = min(places) - 4
            if candidate + RECORD_BYTES_MIN <= limit and candidate >= start:
                named = int.from_bytes(buffer[candidate + 28 : candidate + 36], "big")
                if named == segment.base_offset + candidate:
                    return candidate
            position = candidate + 5
    return limit
