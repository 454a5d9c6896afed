"""One file of a chain: fixed size, mapped into memory, blocks reserved ahead of the writer.

A file has its full length from the start, as RocketMQ requires when it opens one, but it is
sparse: blocks are reserved in steps just before they are written. Without that reservation a full
disk would end the process with SIGBUS in the middle of a memory write instead of an error.
"""

import mmap
from pathlib import Path

from downrange.runtime.disk import Disk

# Removing the map of a segment that a reader still looks at would be a crash in C; Python refuses
# it, and the segment then waits for its readers.
NAME_DIGITS = 20


class Segment:
    """A mapped file that starts at `base_offset` of its chain.

    Owned by its chain. `write_position` counts bytes within the file; bytes below it are appended,
    not yet durable; below `reserved` the disk has blocks. `sync` may run in another thread than
    the appends.
    """

    __slots__ = (
        "_descriptor",
        "_disk",
        "_reserve_bytes",
        "base_offset",
        "map",
        "path",
        "reserved",
        "size",
        "write_position",
    )

    def __init__(
        self,
        disk: Disk,
        path: Path,
        size: int,
        *,
        reserve_bytes: int,
        create: bool = False,
        writable: bool = True,
    ) -> None:
        self._disk = disk
        self.path = path
        self.size = size
        self.base_offset = int(path.name)
        self.write_position = 0
        self._reserve_bytes = reserve_bytes
        self.reserved = 0
        # The descriptor stays open for as long as the file is written: a write-back error is
        # reported once, to the descriptors that were open when it happened.
        self._descriptor = disk.open_file(path, create=create, writable=writable)
        try:
            if writable and (create or disk.size(path) != size):
                disk.truncate(self._descriptor, size)
            if create and reserve_bytes:
                self.reserve(min(reserve_bytes, size))
            self.map: mmap.mmap = disk.map(self._descriptor, size, writable=writable)
        except BaseException:
            disk.close_file(self._descriptor)
            raise

    @property
    def end_offset(self) -> int:
        """Offset just behind the last byte that was appended here."""
        return self.base_offset + self.write_position

    def append(self, data: bytes) -> None:
        """Write at the write position; the caller has made sure that it fits."""
        start = self.write_position
        end = start + len(data)
        if end > self.reserved:
            self.reserve(end)
        self.map[start:end] = data
        self.write_position = end

    def reserve(self, end: int) -> None:
        """Make sure that the disk has blocks for everything below `end`; `OSError` if not."""
        if end <= self.reserved:
            return
        target = min(self.size, max(end, self.reserved + self._reserve_bytes))
        self._disk.allocate(self._descriptor, self.reserved, target - self.reserved)
        self.reserved = target

    def fetch(self, start: int, end: int) -> None:
        """Bring this part into memory; may block, may be called in another thread."""
        self._disk.fetch(self._descriptor, start, end - start)

    def sync(self) -> None:
        """Make everything appended so far durable; may block, may be called in another thread."""
        self._disk.sync(self._descriptor)

    def cut(self, position: int) -> None:
        """Forget everything from `position` on; what follows reads as zero again."""
        # Stale records behind the cut carry their own offsets and would look alive to a later
        # recovery, so they are not only passed over but erased.
        self._disk.truncate(self._descriptor, position)
        self._disk.truncate(self._descriptor, self.size)
        self.write_position = position
        self.reserved = position

    def data_extents(self, start: int) -> list[tuple[int, int]]:
        """The parts of the file from `start` on that may hold something other than zeros."""
        return self._disk.data_extents(self._descriptor, start, self.size)

    def close(self) -> bool:
        """Unmap and close; False, and nothing done, while a reader holds a view of it."""
        try:
            self.map.close()
        except BufferError:
            return False
        self._disk.close_file(self._descriptor)
        return True


def segment_name(base_offset: int) -> str:
    """The file name of a segment: its first offset in 20 digits."""
    return f"{base_offset:0{NAME_DIGITS}d}"


def is_segment_name(name: str) -> bool:
    """Whether a file name can be a segment's."""
    return len(name) == NAME_DIGITS and name.isascii() and name.isdigit()
