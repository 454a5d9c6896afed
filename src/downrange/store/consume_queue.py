"""The consume queue: for each message of one queue where its record is, in 20 bytes.

    0   physical offset  8   of the record in the commit log
    8   size             4   of the record
    12  tag code         8   Java hash of the tag, 0 without; deliver time for delayed messages

An entry's place in the chain of files is the message's queue offset. Two kinds of entries point at
no message: fillers (offset 0, size 2^31-1, tag 0), with which RocketMQ pads the first file of a
queue that does not start at 0, and holes (tag `HOLE_TAG`), with which recovery replaces the entry
of a message whose record is damaged. A hole keeps offset and size of the damaged bytes, because an
Apache broker takes the last entry's end for how far the log was dispatched.
"""

import mmap
import sys
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from zlib import crc32

from downrange.protocol.record import RECORD_BYTES_MIN
from downrange.runtime.disk import Disk
from downrange.store.segment import Segment
from downrange.store.segment_chain import SegmentChain

ENTRY = Struct(">qiq")
ENTRY_BYTES = ENTRY.size
FILLER = ENTRY.pack(0, 0x7FFFFFFF, 0)
FILLER_SIZE = 0x7FFFFFFF
# No tag hash (32 bits), no deliver time of this aeon, and no address of an extension file
# (negative), so nothing else can have this value.
HOLE_TAG = 0x7FF0_0000_0000_0000
RESERVE_BYTES = 64 * 1024

_pack_into = ENTRY.pack_into
_unpack_from = ENTRY.unpack_from


class ConsumeQueue:
    """One queue of one topic.

    `max_offset` is the queue offset that the next dispatched message gets; `next_offset` the one
    that the next appended message gets, ahead of it while messages wait for dispatch.
    """

    __slots__ = (
        "_last",
        "chain",
        "checksums",
        "max_offset",
        "min_offset",
        "next_offset",
        "on_damaged_file",
        "queue_id",
        "topic",
    )

    def __init__(
        self, disk: Disk, directory: Path, topic: str, queue_id: int, entries_per_file: int
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.chain = SegmentChain(
            disk,
            directory,
            entries_per_file * ENTRY_BYTES,
            reserve_bytes=min(RESERVE_BYTES, entries_per_file * ENTRY_BYTES),
        )
        self.min_offset = 0
        self.max_offset = 0
        self.next_offset = 0
        self._last = None if not self.chain.segments else self.chain.segments[-1]
        # Files that nobody has read since the start, as they were at the last clean stop. Entries
        # are only added to a file, so what was there then is compared when it is first read.
        self.checksums: dict[int, tuple[int, int]] = {}
        self.on_damaged_file: Callable[[ConsumeQueue, int, int], None] | None = None

    def load(self) -> None:
        """Map the files and find the last entry."""
        self.chain.load()
        while self.chain.segments:
            last = self.chain.segments[-1]
            used = _used_bytes(last.map, last.data_extents(0))
            last.write_position = -(-used // ENTRY_BYTES) * ENTRY_BYTES
            if last.write_position or len(self.chain.segments) == 1:
                break
            self.chain.cut(last.base_offset)
        self._follow_chain()
        self.min_offset = self.chain.min_offset // ENTRY_BYTES
        while self.min_offset < self.max_offset and self.entry(self.min_offset)[1] == FILLER_SIZE:
            self.min_offset += 1
        self.next_offset = self.max_offset

    @property
    def first_offset(self) -> int:
        """The queue offset at which the first file begins."""
        return self.chain.min_offset // ENTRY_BYTES

    def put(self, physical_offset: int, size: int, tag_code: int) -> None:
        """Append the entry of the next message; `OSError` if the disk has no room."""
        last = self._last
        if last is None or last.write_position >= last.size:
            last = self._last = self.chain.roll()
        position = last.write_position
        if position + ENTRY_BYTES > last.reserved:
            last.reserve(position + ENTRY_BYTES)
        _pack_into(last.map, position, physical_offset, size, tag_code)
        last.write_position = position + ENTRY_BYTES
        self.max_offset += 1

    def put_all(self, entries: list[bytes]) -> None:
        """Append the packed entries of the next messages; `OSError` if the disk has no room."""
        last = self._last
        if last is not None:
            position = last.write_position
            end = position + ENTRY_BYTES * len(entries)
            if end <= last.reserved:
                last.map[position:end] = b"".join(entries)
                last.write_position = end
                self.max_offset += len(entries)
                return
        for entry in entries:
            self.put(*ENTRY.unpack(entry))

    def restore(self, queue_offset: int, physical_offset: int, size: int, tag_code: int) -> bool:
        """Make the entry what the log says it is; True if it was another one or was missing."""
        if queue_offset >= self.max_offset:
            if queue_offset > self.max_offset:
                self._pad_to(queue_offset, physical_offset)
            self.put(physical_offset, size, tag_code)
            return True
        position = queue_offset * ENTRY_BYTES
        segment = self._last
        if segment is None or position < segment.base_offset:
            segment = self.chain.segment_at(position)
            if segment is None:
                return False  # the file is gone by retention, the record soon will be
        position -= segment.base_offset
        if _unpack_from(segment.map, position) == (physical_offset, size, tag_code):
            return False
        _pack_into(segment.map, position, physical_offset, size, tag_code)
        self.checksums.pop(segment.base_offset, None)
        self.min_offset = min(self.min_offset, queue_offset)
        return True

    def holds(self, queue_offset: int, physical_offset: int, size: int, tag_code: int) -> bool:
        """Whether the entry is there and just so."""
        segment = self._last
        if queue_offset >= self.max_offset or segment is None:
            return False
        position = queue_offset * ENTRY_BYTES
        if position < segment.base_offset:
            segment = self.chain.segment_at(position)
            if segment is None:
                return False
        position -= segment.base_offset
        found: tuple[int, int, int] = _unpack_from(segment.map, position)
        return found == (physical_offset, size, tag_code)

    def can_follow(self, queue_offset: int, physical_offset: int) -> bool:
        """Whether the log has room for the messages between the last entry and this one."""
        last_offset = 0
        if self.max_offset > self.chain.min_offset // ENTRY_BYTES:
            last_offset = self.entry(self.max_offset - 1)[0]
        missing = queue_offset - self.max_offset
        return missing * RECORD_BYTES_MIN <= physical_offset - last_offset

    def entry(self, queue_offset: int) -> tuple[int, int, int]:
        """Physical offset, size and tag code of an entry between the files' first and last."""
        segment = self.chain.segment_at(queue_offset * ENTRY_BYTES)
        assert segment is not None, (self.topic, self.queue_id, queue_offset)
        found: tuple[int, int, int] = _unpack_from(
            segment.map, queue_offset * ENTRY_BYTES - segment.base_offset
        )
        return found

    def entries(self, queue_offset: int, count_max: int) -> bytes:
        """The packed entries from here on, at most `count_max`, not beyond the file's end."""
        start = queue_offset * ENTRY_BYTES
        segment = self.chain.segment_at(start)
        if segment is None or queue_offset >= self.max_offset:
            return b""
        if self.checksums and segment.base_offset in self.checksums:
            self._check_file(segment)
        start -= segment.base_offset
        end = min(start + count_max * ENTRY_BYTES, segment.write_position)
        return segment.map[start:end]

    def file_checksums(self) -> dict[int, tuple[int, int]]:
        """For each file, by its first byte's offset: how many bytes are in use, and their CRC."""
        return {
            segment.base_offset: self.checksums.get(segment.base_offset)
            or (segment.write_position, _checksum(segment, segment.write_position))
            for segment in self.chain.segments
        }

    def make_hole(self, queue_offset: int, physical_offset: int, size: int) -> None:
        """Replace an entry by one that points at no message."""
        self.restore(queue_offset, physical_offset, min(size, FILLER_SIZE - 1), HOLE_TAG)

    def first_at_or_behind(self, physical_offset: int) -> int:
        """The lowest queue offset whose record stands at or behind this physical offset."""
        low, high = self.chain.min_offset // ENTRY_BYTES, self.max_offset
        while low < high:
            middle = (low + high) // 2
            if self._offset_around(middle) < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def correct_min(self, min_physical_offset: int) -> None:
        """Move the lower bound past the messages that retention has removed from the log."""
        if self.min_offset < self.max_offset:
            self.min_offset = max(self.min_offset, self.first_at_or_behind(min_physical_offset))

    def drop_files_below(self, min_physical_offset: int) -> int:
        """Delete the files all of whose messages are gone; the newest stays. Returns how many."""
        dropped = 0
        while len(self.chain.segments) > 1:
            second_start = self.chain.segments[1].base_offset // ENTRY_BYTES
            if (
                self._offset_around(second_start - 1) >= min_physical_offset
                or not self.chain.drop_first()
            ):
                break
            dropped += 1
        self.min_offset = max(self.min_offset, self.chain.min_offset // ENTRY_BYTES)
        return dropped

    def cut(self, physical_end: int) -> int:
        """Forget the entries of messages at or behind `physical_end`; returns how many."""
        keep = self.max_offset
        first = self.chain.min_offset // ENTRY_BYTES
        while keep > first:
            physical_offset, size, _ = self.entry(keep - 1)
            if size == FILLER_SIZE or (size > 0 and physical_offset + size <= physical_end):
                break
            keep -= 1
        return self.cut_from(keep)

    def cut_from(self, queue_offset: int) -> int:
        """Forget the entries from `queue_offset` on; returns how many."""
        forgotten = self.max_offset - queue_offset
        if forgotten:
            self.chain.cut(queue_offset * ENTRY_BYTES)
            self._follow_chain()
        self.next_offset = self.max_offset
        self.min_offset = min(self.min_offset, self.max_offset)
        return forgotten

    def _offset_around(self, queue_offset: int) -> int:
        """The physical offset of an entry; of a neighbour if this one is out of order, damaged."""
        offsets = [self.entry(queue_offset)[0]]
        if self.first_offset < queue_offset < self.max_offset - 1:
            offsets += self.entry(queue_offset - 1)[0], self.entry(queue_offset + 1)[0]
        middle = sorted(offsets)[len(offsets) // 2]
        return middle if middle >= 0 else sys.maxsize

    def _pad_to(self, queue_offset: int, physical_offset: int) -> None:
        if not self.chain.segments:
            per_file = self.chain.segment_bytes // ENTRY_BYTES
            first = queue_offset - queue_offset % per_file
            self._last = self.chain.start_at(first * ENTRY_BYTES)
            self._last.append(FILLER * (queue_offset - first))
            self.max_offset = queue_offset
            self.min_offset = queue_offset
            return
        while self.max_offset < queue_offset:
            self.put(physical_offset, 1, HOLE_TAG)

    def _check_file(self, segment: Segment) -> None:
        length, checksum = self.checksums.pop(segment.base_offset)
        if length <= segment.write_position and _checksum(segment, length) == checksum:
            return
        if self.on_damaged_file is not None:
            first = segment.base_offset // ENTRY_BYTES
            self.on_damaged_file(self, first, segment.write_position // ENTRY_BYTES)

    def _follow_chain(self) -> None:
        self._last = self.chain.segments[-1] if self.chain.segments else None
        self.max_offset = self.chain.max_offset // ENTRY_BYTES


def _checksum(segment: Segment, length: int) -> int:
    with memoryview(segment.map) as view, view[:length] as used:
        return crc32(used)


def _used_bytes(buffer: mmap.mmap, extents: list[tuple[int, int]]) -> int:
    """How many bytes stand before the zeros that end a file."""
    for start, stop in reversed(extents):
        used = len(buffer[start:stop].rstrip(b"\0"))
        if used:
            return start + used
    return 0
