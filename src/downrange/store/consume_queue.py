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

import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from downrange.protocol.record import RECORD_BYTES_MIN
from downrange.store.segment import QueueSegment, Reservation, Segment
from downrange.store.segment_chain import SegmentChain
from downrange.store.store_files import StoreFiles

ENTRY = Struct(">qiq")
ENTRY_BYTES = ENTRY.size
FILLER = ENTRY.pack(0, 0x7FFFFFFF, 0)
FILLER_SIZE = 0x7FFFFFFF
# No tag hash (32 bits), no deliver time of this aeon, and no address of an extension file
# (negative), so nothing else can have this value.
HOLE_TAG = 0x7FF0_0000_0000_0000
UNKNOWN = -1
# Most queues have few messages, so a file begins with one block and grows by doubling.
RESERVE_BYTES_MIN = 4 * 1024
RESERVE_BYTES = 64 * 1024

_PAGE_BYTES = 4096
_pack_into = ENTRY.pack_into
_unpack_from = ENTRY.unpack_from
_unpack = ENTRY.unpack
_unpack_offset = Struct(">q").unpack_from


class Positions(NamedTuple):
    """What is known of a queue without opening its files."""

    min_offset: int
    max_offset: int
    first_physical: int  # physical offset of the entry at `min_offset`; UNKNOWN if not known
    last: tuple[int, int, int]  # the newest entry


# Called with the queue, the first queue offset of a damaged file and the number of its entries.
OnDamagedFile = Callable[["ConsumeQueue", int, int], None]


class ConsumeQueue:
    """One queue of one topic.

    `max_offset` is the queue offset that the next dispatched message gets; `next_offset` the one
    that the next appended message gets, ahead of it while messages wait for dispatch. These and the
    newest entry are in memory; files are opened when they are written or read.
    """

    __slots__ = (
        "_dirty",
        "_first_physical",
        "_last",
        "_newest",
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
        self, files: StoreFiles, directory: Path, topic: str, queue_id: int, entries_per_file: int
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        file_bytes = entries_per_file * ENTRY_BYTES
        self._dirty = files.dirty
        self.chain = SegmentChain(
            files.disk,
            directory,
            file_bytes,
            reservation=_reservation(file_bytes),
            pool=files.pool,
            dirty=files.dirty,
        )
        self.min_offset = 0
        self.max_offset = 0
        self.next_offset = 0
        self._last: Segment | None = None
        self._newest = b""  # the packed entry below max_offset; empty if it must be read
        self._first_physical = UNKNOWN
        # Files that nobody has read since the start, as they were at the last clean stop. Entries
        # are only added to a file, so what was there then is compared when it is first read.
        self.checksums: dict[int, tuple[int, int]] = {}
        self.on_damaged_file: OnDamagedFile | None = None

    def load(self, known: Positions | None = None) -> None:
        """Find the files and the last entry.

        `known` is what the store noted at a clean stop since which nobody has written; it spares
        reading the files if they can be those that were there.
        """
        self.chain.load()
        if known is not None and self._adopt(known):
            return
        first = newest = b""
        while self.chain.segments:
            last = self.chain.segments[-1]
            last.write_position, first, newest = last.ends(ENTRY_BYTES)
            if last.write_position or len(self.chain.segments) == 1:
                break
            self.chain.cut(last.base_offset)
        self._follow_chain()
        self._newest = newest
        self.min_offset = self.first_offset
        if len(self.chain.segments) == 1 and first and _unpack(first)[1] != FILLER_SIZE:
            self._first_physical = _unpack(first)[0]
        else:
            while self.min_offset < self.max_offset and self._is_filler(self.min_offset):
                self.min_offset += 1
        self.next_offset = self.max_offset

    def _adopt(self, known: Positions) -> bool:
        segments, chain = self.chain.segments, self.chain
        if not segments or chain.has_short_file or chain.has_short_end:
            return False
        used = known.max_offset * ENTRY_BYTES - segments[-1].base_offset
        if not 0 < used <= segments[-1].size or self.first_offset > known.min_offset:
            return False
        segments[-1].write_position = used
        self._follow_chain()
        self._newest = ENTRY.pack(*known.last)
        self.min_offset, self._first_physical = known.min_offset, known.first_physical
        self.next_offset = self.max_offset
        return True

    @property
    def positions(self) -> Positions:
        """What to note at a clean stop; the queue must have entries."""
        newest = self.newest_entry()
        return Positions(self.min_offset, self.max_offset, self._first_physical, newest)

    @property
    def first_offset(self) -> int:
        """The queue offset at which the first file begins."""
        return self.chain.min_offset // ENTRY_BYTES

    def put(self, physical_offset: int, size: int, tag_code: int) -> None:
        """Append the entry of the next message; see `put_all`."""
        self.put_all([ENTRY.pack(physical_offset, size, tag_code)])

    def put_all(self, entries: list[bytes]) -> None:
        """Append the packed entries of the next messages.

        `OSError` if the disk does not take them all; those that it took are below `max_offset`.
        """
        last = self._last
        if last is not None:
            position = last.write_position
            end = position + ENTRY_BYTES * len(entries)
            if end <= last.reserved:
                if not last.is_dirty:
                    self._dirty.admit(last)
                last.map[position:end] = b"".join(entries)
                last.write_position = end
                self.max_offset += len(entries)
                self._newest = entries[-1]
                return
        for entry in entries:
            self._put_one(entry)

    def _put_one(self, entry: bytes) -> None:
        last = self._last
        if last is None or last.write_position >= last.size:
            last = self._last = self.chain.roll()
        elif not last.is_dirty:
            self._dirty.admit(last)
        last.append(entry)
        if self.min_offset == self.max_offset:
            self._first_physical = _unpack_offset(entry)[0]
        self.max_offset += 1
        self._newest = entry

    def restore(self, queue_offset: int, physical_offset: int, size: int, tag_code: int) -> bool:
        """Make the entry what the log says it is; True if it was another one or was missing."""
        if queue_offset >= self.max_offset:
            if queue_offset > self.max_offset:
                self._pad_to(queue_offset, physical_offset)
            self.put(physical_offset, size, tag_code)
            return True
        segment = self.chain.segment_at(queue_offset * ENTRY_BYTES)
        if segment is None:
            return False  # the file is gone by retention, the record soon will be
        if queue_offset == self.max_offset - 1:
            self._newest = b""
        position = queue_offset * ENTRY_BYTES - segment.base_offset
        if _unpack_from(segment.map, position) == (physical_offset, size, tag_code):
            return False
        if not segment.is_dirty:
            self._dirty.admit(segment, is_repair=True)
        _pack_into(segment.map, position, physical_offset, size, tag_code)
        segment.note_change()
        self.checksums.pop(segment.base_offset, None)
        if queue_offset <= self.min_offset:
            self.min_offset = queue_offset
            self._first_physical = UNKNOWN
        return True

    def holds(self, queue_offset: int, physical_offset: int, size: int, tag_code: int) -> bool:
        """Whether the entry is there and just so, in the file too."""
        if queue_offset >= self.max_offset:
            return False
        position = queue_offset * ENTRY_BYTES
        if queue_offset == self.max_offset - 1 and self._newest and self._last is not None:
            # At start this is asked for most queues, and mapping their files would take long.
            expected = ENTRY.pack(physical_offset, size, tag_code)
            position -= self._last.base_offset
            return self._newest == expected == self._last.peek(position, ENTRY_BYTES)
        segment = self.chain.segment_at(position)
        if segment is None:
            return False
        found: tuple[int, int, int] = _unpack_from(
            segment.map, queue_offset * ENTRY_BYTES - segment.base_offset
        )
        return found == (physical_offset, size, tag_code)

    def can_follow(self, queue_offset: int, physical_offset: int) -> bool:
        """Whether the log has room for the messages between the last entry and this one."""
        last_offset = 0
        if self.max_offset > self.first_offset:
            last_offset = self.newest_entry()[0]
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

    def newest_entry(self) -> tuple[int, int, int]:
        """The entry below `max_offset`, mostly without opening a file; there must be one."""
        if not self._newest:
            return self.entry(self.max_offset - 1)
        newest: tuple[int, int, int] = _unpack(self._newest)
        return newest

    def newest_first(self) -> Iterator[tuple[int, int, int]]:
        """The entries from the newest to the oldest; a file is opened for the second one."""
        if self.max_offset > self.min_offset:
            yield self.newest_entry()
        for queue_offset in range(self.max_offset - 2, self.min_offset - 1, -1):
            yield self.entry(queue_offset)

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
        if end - start > _PAGE_BYTES and isinstance(segment, QueueSegment):
            segment.expect_read(start, end)
        return segment.map[start:end]

    def file_checksums(self) -> dict[int, tuple[int, int]]:
        """For each file, by its first byte's offset: how many bytes are in use, and their CRC."""
        return {
            segment.base_offset: self.checksums.get(segment.base_offset)
            or (segment.write_position, segment.checksum())
            for segment in self.chain.segments
        }

    def make_hole(self, queue_offset: int, physical_offset: int, size: int) -> None:
        """Replace an entry by one that points at no message."""
        self.restore(queue_offset, physical_offset, min(size, FILLER_SIZE - 1), HOLE_TAG)

    def first_at_or_behind(self, physical_offset: int) -> int:
        """The lowest queue offset whose record stands at or behind this physical offset."""
        if self._newest and 0 <= _unpack_offset(self._newest)[0] < physical_offset:
            return self.max_offset  # true of most queues, and needs no file
        if self.min_offset == self.first_offset and self._first_physical >= physical_offset:
            return self.min_offset
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
        if self.min_offset >= self.max_offset or self._first_physical >= min_physical_offset:
            return
        self.min_offset = max(self.min_offset, self.first_at_or_behind(min_physical_offset))
        self._first_physical = UNKNOWN
        if self.min_offset < self.max_offset:
            self._first_physical = self.entry(self.min_offset)[0]

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
        if self.min_offset < self.first_offset:
            self.min_offset = self.first_offset
            self._first_physical = UNKNOWN
        return dropped

    def cut(self, physical_end: int) -> int:
        """Forget the entries of messages at or behind `physical_end`; returns how many."""
        keep = self.max_offset
        while keep > self.first_offset:
            entry = self.newest_entry() if keep == self.max_offset else self.entry(keep - 1)
            physical_offset, size, _ = entry
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
            self._newest = b""
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
            self._newest = b""
            return
        while self.max_offset < queue_offset:
            self.put(physical_offset, 1, HOLE_TAG)

    def _is_filler(self, queue_offset: int) -> bool:
        return self.entry(queue_offset)[1] == FILLER_SIZE

    def _check_file(self, segment: Segment) -> None:
        length, checksum = self.checksums.pop(segment.base_offset)
        if length <= segment.write_position and segment.has_checksum(length, checksum):
            return
        self._newest = b""
        if self.on_damaged_file is not None:
            first = segment.base_offset // ENTRY_BYTES
            self.on_damaged_file(self, first, segment.write_position // ENTRY_BYTES)
            segment.open()  # the files of the log that were read may have taken its place

    def _follow_chain(self) -> None:
        self._last = self.chain.segments[-1] if self.chain.segments else None
        self.max_offset = self.chain.max_offset // ENTRY_BYTES


@lru_cache(maxsize=8)
def _reservation(file_bytes: int) -> Reservation:
    """One object for all queues."""
    return Reservation(min(RESERVE_BYTES_MIN, file_bytes), min(RESERVE_BYTES, file_bytes))
