"""Walks a part of a commit-log file: sound records, many at a time, and the way past damage.

A part begins at the first record that starts in it and ends behind the last one that does, so that
parts can be cut anywhere. What is sound, and where the log ends, is decided as in
`store/scanner`: a record names its own place; where one does not, the walk goes on at the next
place that holds one which does; if there is none in this file and behind it, the log ends.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from struct import Struct
from typing import Final
from zlib import crc32

import numpy as np

from downrange.protocol.errors import ProtocolError
from downrange.protocol.record import (
    BLANK,
    CRC_MASK,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_POSITION,
    RECORD_BYTES_MIN,
    decode_record,
)
from downrange.spark.log_files import Data, LogBytes
from downrange.spark.record_heads import Longs, RecordHeads, read_heads

WINDOW_BYTES: Final = 8 * 1024 * 1024
ROWS_MAX: Final = 16_384
_MAGIC_BYTES: Final = tuple(BLANK.pack(0, magic)[4:] for magic in (MAGIC_V1, MAGIC_V2))
_MAGIC_POSITION: Final = 4
_unpack_start = BLANK.unpack_from
_unpack_place = Struct(">q").unpack_from


@dataclass(frozen=True, slots=True)
class LogDamage:
    """Bytes of a file that are not what they should be."""

    file: str
    position: int
    size: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file} at {self.position}, {self.size} bytes: {self.reason}"


@dataclass(frozen=True, slots=True)
class SoundRecords:
    """Some records: their bytes, and their heads, whose positions count from the first byte.

    `position` is where these bytes stand in the file.
    """

    position: int
    data: Data
    heads: RecordHeads


class LogWalk:
    """One walk over a part of a file.

    `goes_on_behind` is asked when no record is found up to the end of the file: whether a later
    file has some, so that this is not the end of the log.
    """

    def __init__(
        self,
        name: str,
        content: LogBytes,
        base_offset: int,
        *,
        on_damage: Callable[[LogDamage], None],
        goes_on_behind: Callable[[], bool],
        check_crc: bool = True,
        window_bytes: int = WINDOW_BYTES,
        rows_max: int = ROWS_MAX,
    ) -> None:
        self._name = name
        self._content = content
        self._base_offset = base_offset
        self._on_damage = on_damage
        self._goes_on_behind = goes_on_behind
        self._check_crc = check_crc
        self._window_bytes = window_bytes
        self._rows_max = rows_max

    def walk(self, start: int, end: int) -> Iterator[SoundRecords]:
        """The sound records that start in this part.

        What is damaged is told by the part that the last sound record before it belongs to. So a
        part that does not begin the file says nothing of damage before its first sound record, and
        each looks behind its end as far as the next one.
        """
        size = self._content.size
        end = min(end, size)
        position = start
        if start:
            position = next_record(self._content, self._base_offset, start, end)
        is_silent = start > 0
        damage: LogDamage | None = None
        window = self._window_bytes
        while 0 <= position < end:
            data = self._content.view(position, min(position + window, size))
            starts, stop, claimed = _walk_starts(data, end - position, self._rows_max)
            if not starts and len(data) < claimed <= size - position:
                window = claimed  # a record that is larger than the window
                continue
            window = self._window_bytes
            found = self._sound(data, np.array(starts, np.int64), position) if starts else None
            if found is not None:
                is_silent = False
                self._tell(damage, position)
                damage = None
                yield found
                count = found.heads.count
                position += stop if count == len(starts) else starts[count]
                continue
            reason = self._why_not_at(position)
            if not reason:  # the blank record, which fills the rest of the file
                return
            if not is_silent:
                damage = damage or LogDamage(self._name, position, 0, reason)
            position = next_record(self._content, self._base_offset, position + 1, size)
        if not is_silent:
            self._look_behind(position, damage)

    def _look_behind(self, position: int, damage: LogDamage | None) -> None:
        """Find the next sound record, and tell of what lies before it."""
        size = self._content.size
        while 0 <= position < size:
            reason = self._why_not_at(position)
            if not reason:
                self._tell(damage, position)
                return
            damage = damage or LogDamage(self._name, position, 0, reason)
            position = next_record(self._content, self._base_offset, position + 1, size)
        if damage is not None and self._goes_on_behind():
            self._tell(damage, size)

    def _tell(self, damage: LogDamage | None, end: int) -> None:
        if damage is not None:
            self._on_damage(replace(damage, size=end - damage.position))

    def has_records(self) -> bool:
        """Whether there is any sound record."""
        size = self._content.size
        is_first = size >= RECORD_BYTES_MIN and not self._why_not_at(0)
        return is_first or next_record(self._content, self._base_offset, 1, size) >= 0

    def _sound(self, data: Data, starts: Longs, position: int) -> SoundRecords | None:
        """The records up to the first one that is not sound."""
        count = len(starts)
        try:
            heads = read_heads(data, starts)
            bad = self._first_bad(data, heads, position)
            if bad < 0:
                return SoundRecords(position, data, heads)
        except ProtocolError:
            pass
        for count, start in enumerate(starts.tolist()):  # noqa: B007 - the first that is wrong
            if self._why_not(data, start, position):
                break
        else:
            count = len(starts)
        if not count:
            return None
        return SoundRecords(position, data, read_heads(data, starts[:count]))

    def _first_bad(self, data: Data, heads: RecordHeads, position: int) -> int:
        is_here = heads.longs("physical_offset") == heads.starts + (self._base_offset + position)
        if not is_here.all():
            return int(np.argmin(is_here))
        if not self._check_crc:
            return -1
        view = memoryview(data)
        spans = zip(heads.body_starts.tolist(), heads.body_ends.tolist(), strict=True)
        found = np.array([crc32(view[start:end]) for start, end in spans], np.int64) & CRC_MASK
        is_right = (found == heads.ints("crc")) | (heads.body_starts == heads.body_ends)
        return -1 if is_right.all() else int(np.argmin(is_right))

    def _why_not(self, data: Data, start: int, position: int) -> str:
        """Why there is no sound record at `start` of the data; empty if there is one."""
        view = memoryview(data)
        size, magic = _unpack_start(view, start)
        if magic not in {MAGIC_V1, MAGIC_V2}:
            return f"no record starts here (magic {magic & 0xFFFFFFFF:#010x})"
        if not RECORD_BYTES_MIN <= size <= len(view) - start:
            return f"the record claims {size} bytes"
        try:
            record = decode_record(view[start : start + size], check_crc=self._check_crc)
        except ProtocolError as error:
            return str(error)
        place = self._base_offset + position + start
        if record.physical_offset != place:
            return f"the record names {record.physical_offset} as its place, not {place}"
        return ""

    def _why_not_at(self, position: int) -> str:
        """The same for a place in the file; a blank record is sound."""
        left = self._content.size - position
        if left < BLANK.size:
            return "too few bytes for a record"
        start = self._content.view(position, position + BLANK.size)
        claimed, magic = _unpack_start(start)
        if magic == MAGIC_BLANK and claimed == left:
            return ""
        if left < RECORD_BYTES_MIN:
            return "too few bytes for a record"
        if RECORD_BYTES_MIN <= claimed <= left:
            start = self._content.view(position, position + claimed)
        return self._why_not(start, 0, position)


def next_record(content: LogBytes, base_offset: int, start: int, end: int) -> int:
    """The first place from `start` on that holds a record naming that very place, or -1."""
    found = [
        place
        for magic in _MAGIC_BYTES
        if (place := _next_of(content, base_offset, start, end, magic)) >= 0
    ]
    return min(found, default=-1)


def _next_of(content: LogBytes, base_offset: int, start: int, end: int, magic: bytes) -> int:
    search_end = min(end + _MAGIC_POSITION + len(magic) - 1, content.size)
    position = start + _MAGIC_POSITION
    while (found := content.find(magic, position, search_end)) >= 0:
        place = found - _MAGIC_POSITION
        if place >= end or content.size - place < RECORD_BYTES_MIN:
            return -1
        (named,) = _unpack_place(
            content.view(place + PHYSICAL_OFFSET_POSITION, place + PHYSICAL_OFFSET_POSITION + 8)
        )
        if named == base_offset + place:
            return place
        position = found + 1
    return -1


def _walk_starts(data: Data, end: int, rows_max: int) -> tuple[list[int], int, int]:
    """Where records seem to start, where the next one would, and how many bytes that claims."""
    starts: list[int] = []
    append = starts.append
    unpack = _unpack_start
    position, length = 0, len(data)
    claimed = 0
    while position < end and position + 8 <= length:
        claimed, magic = unpack(data, position)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or claimed < RECORD_BYTES_MIN:  # noqa: PLR1714 - the faster form
            claimed = 0
            break
        if position + claimed > length:
            break
        append(position)
        position += claimed
        if len(starts) >= rows_max:
            break
    return starts, position, claimed
