"""The log that holds every message once, in the order of arrival.

A record never crosses files: where it does not fit, a blank record (size = the bytes left, magic
0xCBD43194) fills the file and the record opens the next one.
"""

from downrange.protocol.record import BLANK, MAGIC_BLANK
from downrange.store.segment import Reservation, Segment
from downrange.store.segment_chain import SegmentChain
from downrange.store.settings import MIB, StoreSettings
from downrange.store.store_files import StoreFiles

BLANK_BYTES_MIN = BLANK.size  # a record must leave room for a blank one behind it
RESERVE_BYTES = 16 * MIB


class CommitLog:
    """Appends whole records and gives views of them; knows nothing of what is in a record.

    Owned by one thread; a sync of its segments may run in another.
    """

    def __init__(self, files: StoreFiles, settings: StoreSettings) -> None:
        reserve_bytes = min(RESERVE_BYTES, settings.segment_bytes)
        self.chain = SegmentChain(
            files.disk,
            settings.commit_log_path,
            settings.segment_bytes,
            reservation=Reservation(reserve_bytes, reserve_bytes),
            pool=files.pool,
            paths=settings.log_paths,
        )
        self._last: Segment | None = None

    def load(self) -> None:
        """Find the files; where the log ends is for recovery to find."""
        self.chain.load()
        self._follow_chain()

    @property
    def last(self) -> Segment | None:
        """The file that is written."""
        return self._last

    @property
    def min_offset(self) -> int:
        """Physical offset of the oldest byte."""
        return self.chain.min_offset

    @property
    def max_offset(self) -> int:
        """Physical offset behind the newest record."""
        last = self._last
        return last.base_offset + last.write_position if last is not None else 0

    def place(self, size: int) -> int:
        """The physical offset that a record of this size will get; opens a file if it must.

        `OSError` if the disk has no room; then nothing has changed.
        """
        last = self._last
        if last is not None:
            position = last.write_position
            end = position + size + BLANK_BYTES_MIN
            if end <= last.size and (end <= last.reserved or self._reserves(last, end)):
                return last.base_offset + position
        return self._roll().base_offset

    def write(self, head: bytes, rest: bytes) -> None:
        """Append a record where `place` said it would stand; the head's bytes come last.

        A process that is killed in between leaves zeros where the size would stand, so that the
        next start sees the end of the log and not half a record.
        """
        last = self._last
        assert last is not None
        start = last.write_position
        middle = start + len(head)
        end = middle + len(rest)
        buffer = last.map
        buffer[middle:end] = rest
        buffer[start:middle] = head
        last.write_position = end

    def view(self, offset: int, size: int) -> memoryview | None:
        """The bytes of a record; None if the log does not hold them all."""
        segment = self.chain.segment_at(offset)
        if segment is None:
            return None
        start = offset - segment.base_offset
        if size < 0 or start + size > segment.write_position:
            return None
        return memoryview(segment.map)[start : start + size]

    def next_file_offset(self, offset: int) -> int:
        """Where the file behind the one of this offset starts."""
        return offset - offset % self.chain.segment_bytes + self.chain.segment_bytes

    def cut(self, offset: int) -> None:
        """Forget everything from `offset` on."""
        self.chain.cut(offset)
        self._follow_chain()

    def note_durable(self, offset: int) -> None:
        """Records below `offset` are durable, those behind are not: their files stay open."""
        for segment in reversed(self.chain.segments):
            is_dirty = segment is self._last or segment.end_offset > offset
            if not is_dirty and not segment.is_dirty:
                break  # so are all before it
            segment.is_dirty = is_dirty

    def close(self) -> None:
        """Close the files."""
        self.chain.close()
        self._last = None

    def _reserves(self, last: Segment, end: int) -> bool:
        """Have blocks for a record, now, while a refusal still costs nothing.

        False if this disk is full and another one may take the next file.
        """
        try:
            last.reserve(end)
        except OSError:
            if not self.chain.has_other_path():
                raise
            return False
        return True

    def _roll(self) -> Segment:
        full = self._last
        position = full.write_position if full is not None else 0
        if full is not None:
            full.reserve(position + BLANK_BYTES_MIN)  # may fail, so before the new file
        segment = self.chain.roll()
        segment.is_dirty = True
        if full is not None and full.size - position >= BLANK_BYTES_MIN:
            BLANK.pack_into(full.map, position, full.size - position, MAGIC_BLANK)
        self._last = segment
        return segment

    def _follow_chain(self) -> None:
        self._last = self.chain.segments[-1] if self.chain.segments else None
        if self._last is not None:
            self._last.open()
            self._last.is_dirty = True  # it is written to, so it stays open
