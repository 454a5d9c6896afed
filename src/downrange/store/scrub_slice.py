"""A small part of the log, read and checked away from the thread that owns the store.

It is read with calls that release the interpreter, never through a mapping: a page fault would
stop the event loop, and a bad sector would end the process. A slice is small, because checking
its records does hold the interpreter.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct

from downrange.protocol.record import HEAD_START, RECORD_BYTES_MIN
from downrange.protocol.sys_flag import INNER_BATCH
from downrange.runtime.disk import Disk
from downrange.store.consume_queue import ENTRY_BYTES
from downrange.store.dispatch_entry import is_queued
from downrange.store.scanner import Damage, check_at, is_blank_at, next_record_in, usual_at
from downrange.store.segment import segment_name
from downrange.store.settings import MIB

_ENTRY_START = Struct(">qi8x")  # of a queue entry: physical offset and size
SPAN_BYTES_MAX = 1 << 16  # of queue entries read at once
NAME_BYTES_MAX = 255
RECORD_BYTES_MAX = 32 * MIB  # twice the largest frame: what says to be longer is damaged


@dataclass(frozen=True, slots=True)
class StrayEntry:
    """A sound record whose queue entry does not point at it."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Bytes of a log file, as the scanner's functions take them."""

    map: bytes
    base_offset: int
    size: int  # up to the end of the file


@dataclass(slots=True)
class ScrubSlice:
    """The work, and after `run` what it found. Holds no file open."""

    disk: Disk
    path: Path
    file_start: int  # physical offset of the file
    file_bytes: int
    start: int  # physical offsets of the part to check
    end: int
    stop: int  # where the dispatched log ends: a record may end there, none may cross it
    queues_path: Path
    queue_file_bytes: int
    check_whole: bool
    in_damage: bool = False  # the slice before ended in damage, which was reported

    next_offset: int = 0
    bytes_wanted: int = 0  # for a record that is longer than the slice
    is_gone: bool = False  # retention has deleted the file
    record_count: int = 0
    damages: list[Damage] = field(default_factory=list)
    strays: list[StrayEntry] = field(default_factory=list)

    def run(self) -> None:
        """Read and check; blocks, may run in any thread."""
        position = self.start - self.file_start
        try:
            data = self._read(self.path, position, self.end - self.start)
        except FileNotFoundError:
            self.is_gone = True
            return
        except OSError as error:
            self.damages.append(Damage(self.path, position, self.end - self.start, str(error)))
            self.next_offset, self.in_damage = self.end, True
            return
        self._walk(_Stretch(data, self.start, self.file_start + self.file_bytes - self.start))

    def _read(self, path: Path, position: int, length: int) -> bytes:
        descriptor = self.disk.open_file(path, create=False, writable=False)
        try:
            return self.disk.read_at(descriptor, position, length)
        finally:
            self.disk.close_file(descriptor)

    def _walk(self, stretch: _Stretch) -> None:
        limit = len(stretch.map)
        entries: defaultdict[tuple[bytes, int], list[tuple[int, int, int]]] = defaultdict(list)
        position = next_record_in(stretch.map, self.start, 0) if self.in_damage else 0
        self.in_damage = position < 0
        with memoryview(stretch.map) as view:
            while 0 <= position <= limit - RECORD_BYTES_MIN:
                record, reason = None, ""
                if not self.check_whole:
                    record = usual_at(stretch, view, position, limit, True)
                if record is None:
                    if is_blank_at(stretch, position):
                        position = stretch.size
                        break
                    checked = check_at(stretch, view, position, limit, True, self.check_whole)
                    record, reason = checked
                if record is not None:
                    offset, size, queue_id, queue_offset, sys_flag, _, name, _ = record
                    self.record_count += 1
                    if is_queued(sys_flag) and not sys_flag & INNER_BATCH:
                        entries[name, queue_id].append((queue_offset, offset, size))
                    position += size
                elif self._goes_on(stretch, position, limit):
                    break
                else:
                    found = next_record_in(stretch.map, self.start, position + 1)
                    size = (found if found >= 0 else limit) - position
                    at = self.start + position - self.file_start
                    self.damages.append(Damage(self.path, at, size, reason))
                    position, self.in_damage = found, found < 0
        self._end_at(position, limit)
        for (name, queue_id), places in entries.items():
            self._compare(name, queue_id, places)

    def _goes_on(self, stretch: _Stretch, position: int, limit: int) -> bool:
        """Whether a record at `position` says that it goes on behind this slice, and may."""
        size, _, _, _, _, _, named = HEAD_START.unpack_from(stretch.map, position)
        start = self.start + position
        if named != start or size <= limit - position or self.end == self.stop:
            return False
        file_end = self.file_start + self.file_bytes
        if size > RECORD_BYTES_MAX or start + size > min(self.stop, file_end):
            return False
        self.bytes_wanted = size
        return True

    def _end_at(self, position: int, limit: int) -> None:
        """Where the next slice begins."""
        file_end = self.file_start + self.file_bytes
        if position < 0:
            # A record may begin in the last bytes and go on behind them.
            next_offset = max(self.start + limit - RECORD_BYTES_MIN, self.start + 1)
        else:
            next_offset = self.start + position
        if self.end == min(self.stop, file_end) and (
            position < 0 or self.end - next_offset < RECORD_BYTES_MIN
        ):
            next_offset = self.end
        self.next_offset = min(next_offset, file_end)

    def _compare(self, name: bytes, queue_id: int, places: list[tuple[int, int, int]]) -> None:
        """Note the records whose entries point elsewhere."""
        topic = name.decode("utf-8", "replace")
        if "/" in topic or len(name) > NAME_BYTES_MAX:
            return  # recovery refuses such a record
        by_file: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for place in places:
            by_file[place[0] * ENTRY_BYTES // self.queue_file_bytes].append(place)
        for number, members in by_file.items():
            base = number * self.queue_file_bytes
            path = self.queues_path / topic / str(queue_id) / segment_name(max(base, 0))
            first = min(members)[0] * ENTRY_BYTES
            span = max(members)[0] * ENTRY_BYTES - first + ENTRY_BYTES
            try:
                data = b"" if span > SPAN_BYTES_MAX else self._read(path, first - base, span)
            except OSError:
                data = b""
            for queue_offset, physical_offset, size in members:
                position = queue_offset * ENTRY_BYTES - first
                entry = data[position : position + ENTRY_BYTES]
                is_whole = len(entry) == ENTRY_BYTES
                if not is_whole or _ENTRY_START.unpack(entry) != (physical_offset, size):
                    self.strays.append(StrayEntry(topic, queue_id, queue_offset, physical_offset))
