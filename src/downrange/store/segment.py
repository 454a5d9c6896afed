"""One file of a chain: fixed size, mapped while in use, blocks reserved ahead of the writer.

A file has its full length from the start, as RocketMQ requires when it opens one, but it is
sparse: blocks are reserved in steps just before they are written. Without that reservation a full
disk would end the process with SIGBUS in the middle of a memory write instead of an error.
"""

import mmap
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from downrange.runtime.disk import Disk
from downrange.store.mapped_file import MappedFile, OpenFiles

NAME_DIGITS = 20
_TAIL_BYTES = 64 * 1024  # read at once when looking for the end of the data
_CHECKSUM_BYTES_MAX = 64 * 1024  # more than that waits until the store is closed


@dataclass(frozen=True, slots=True)
class Reservation:
    """How many bytes are reserved ahead of the writer: the first time, and at most."""

    first_bytes: int
    most_bytes: int

    def target(self, reserved: int, end: int, size: int) -> int:
        """Up to where to reserve so that `end` fits, if it is reserved up to `reserved` now.

        Each step doubles what there is, so that a file with few bytes takes few blocks.
        """
        step = min(max(reserved, self.first_bytes), self.most_bytes)
        return min(size, max(end, reserved + step))


class Segment(MappedFile):
    """A file that starts at `base_offset` of its chain.

    Owned by its chain. `write_position` counts bytes within the file; bytes below it are appended,
    not yet durable; below `reserved` the disk has blocks. The positions are known whether the file
    is open or not.
    """

    __slots__ = ("_checksum", "_checksum_end", "_reservation", "base_offset", "reserved",
                 "write_position")  # fmt: skip

    def __init__(
        self,
        disk: Disk,
        pool: OpenFiles,
        directory: Path,
        name: str,
        size: int,
        reservation: Reservation,
    ) -> None:
        super().__init__(disk, pool, directory, name, size)
        self.base_offset = int(name)
        self.write_position = 0
        self.reserved = 0
        self._reservation = reservation
        self._checksum = 0  # of the bytes below _checksum_end
        self._checksum_end = 0

    def create(self) -> None:
        """Make the file, with its first blocks, and open it; `OSError` leaves no trace of it."""
        try:
            self._pool.open(self, create=True)
            self.reserve(min(1, self.size))
        except OSError:
            self.close()
            self._disk.unlink(self.path)  # an empty file of full length would look like a segment
            raise

    @property
    def end_offset(self) -> int:
        """Offset just behind the last byte that was appended here."""
        return self.base_offset + self.write_position

    def append(self, data: bytes) -> None:
        """Write at the write position; the caller has opened it and made sure that it fits."""
        start = self.write_position
        end = start + len(data)
        if end > self.reserved:
            self.reserve(end)
        self.map[start:end] = data
        self.write_position = end

    def reserve(self, end: int) -> None:
        """Make sure that the disk has blocks for everything below `end`; `OSError` if not.

        The file must be open.
        """
        if end <= self.reserved:
            return
        target = self._reservation.target(self.reserved, end, self.size)
        self._disk.allocate(self._descriptor, self.reserved, target - self.reserved)
        self.reserved = target

    def fetch(self, start: int, end: int) -> None:
        """Bring this part into memory; may block, may be called in another thread."""
        self._disk.fetch(self._descriptor, start, end - start)

    def cut(self, position: int) -> None:
        """Forget everything from `position` on; what follows reads as zero again."""
        # Stale records behind the cut carry their own offsets and would look alive to a later
        # recovery, so they are not only passed over but erased.
        self.open()
        self._disk.truncate(self._descriptor, position)
        self._disk.truncate(self._descriptor, self.size)
        self.write_position = position
        self.reserved = position
        self.note_change()

    def note_change(self) -> None:
        """Bytes below the write position have changed, so the checksum is computed anew."""
        self._checksum = self._checksum_end = 0

    def checksum(self) -> int:
        """CRC-32 of everything below the write position; opens the file if it is not known."""
        start, end = self._checksum_end, self.write_position
        if start < end:
            self.open()
            with memoryview(self.map) as view, view[start:end] as added:
                self._checksum = crc32(added, self._checksum)
            self._checksum_end = end
        return self._checksum

    def has_checksum(self, length: int, checksum: int) -> bool:
        """Whether the first `length` bytes have this CRC-32; the file must be open."""
        with memoryview(self.map) as view, view[:length] as used:
            is_right = crc32(used) == checksum
        if is_right:
            self._checksum_end, self._checksum = length, checksum
        return is_right

    def data_extents(self, start: int) -> list[tuple[int, int]]:
        """The parts from `start` on that may hold something other than zeros; opens the file."""
        self.open()
        return self._disk.data_extents(self._descriptor, start, self.size)

    def peek(self, position: int, length: int) -> bytes:
        """These bytes, read without mapping the file if it is not open."""
        if self.is_open:
            return self.map[position : position + length]
        descriptor = self._disk.open_file(self.path, create=False)
        try:
            return self._disk.read_at(descriptor, position, length)
        finally:
            self._disk.close_file(descriptor)

    def ends(self, entry_bytes: int) -> tuple[int, bytes, bytes]:
        """How many bytes are in use, in whole entries, and the first and last of these entries.

        Reads the end of the file without mapping it.
        """
        disk = self._disk
        descriptor = disk.open_file(self.path, create=False)
        try:
            used = 0
            for begin, stop in reversed(disk.data_extents(descriptor, 0, self.size)):
                while begin < stop and not used:
                    start = max(begin, stop - _TAIL_BYTES)
                    data = disk.read_at(descriptor, start, stop - start).rstrip(b"\0")
                    used = start + len(data) if data else 0
                    stop = start  # noqa: PLW2901 - the part before it is next
                if used:
                    break
            used = min(-(-used // entry_bytes) * entry_bytes, self.size)
            if not used:
                return 0, b"", b""
            first = disk.read_at(descriptor, 0, entry_bytes)
            return used, first, disk.read_at(descriptor, used - entry_bytes, entry_bytes)
        finally:
            disk.close_file(descriptor)


class QueueSegment(Segment):
    """A segment of a queue: one of many, mostly empty, and opened again and again.

    Its checksum is brought up to date before it is closed, while that is cheap.
    """

    __slots__ = ()

    def map_now(self, *, create: bool) -> None:
        """Open and map the file; for the pool, which has made room."""
        super().map_now(create=create)
        # Else each first access would have the kernel fetch megabytes of holes.
        if hasattr(mmap, "MADV_RANDOM"):
            self.map.madvise(mmap.MADV_RANDOM)

    def expect_read(self, start: int, end: int) -> None:
        """Have the kernel fetch this part, which is read next, with few requests."""
        if hasattr(mmap, "MADV_WILLNEED"):
            start -= start % mmap.PAGESIZE
            self.map.madvise(mmap.MADV_WILLNEED, start, end - start)

    def unmap(self) -> bool:
        """Close the file; False, and nothing changed, while a view or a sync needs it."""
        if self.is_open and self.write_position - self._checksum_end <= _CHECKSUM_BYTES_MAX:
            self.checksum()
        return super().unmap()


def segment_name(base_offset: int) -> str:
    """The file name of a segment: its first offset in 20 digits."""
    return f"{base_offset:0{NAME_DIGITS}d}"


def is_segment_name(name: str) -> bool:
    """Whether a file name can be a segment's."""
    return len(name) == NAME_DIGITS and name.isascii() and name.isdigit()
