"""A file of fixed size that is mapped into memory while it is open.

Thousands of these belong to a store, and an open one costs two descriptors (Python's mmap keeps a
duplicate) and a mapping. So a file is opened when it is used, and `FilePool` closes those that have
not been used for longest.
"""

import mmap
from pathlib import Path
from typing import Protocol

from downrange.runtime.disk import Disk

NOT_OPEN = -1
# Stands for the map of a file that is not open: an access raises ValueError, it does not crash.
CLOSED = mmap.mmap(-1, 1)
CLOSED.close()


class OpenFiles(Protocol):
    """Decides how many files are open at a time; `FilePool` implements it."""

    def open(self, file: "MappedFile", *, create: bool = False) -> None:
        """Map the file; close others if there are too many. `OSError` if it is not possible."""
        ...

    def forget(self, file: "MappedFile") -> None:
        """Count a file that was closed as closed."""
        ...


class MappedFile:
    """One file, open or not. Owned by one thread; `sync` may run in another.

    Whoever wants `map` calls `open` first, and must not open another file before using it. The pool
    closes a file only if it is neither dirty (bytes were written since the last sync) nor pinned (a
    sync is in flight in another thread) nor has a reader with a view of it.
    """

    __slots__ = (
        "_descriptor",
        "_disk",
        "_pool",
        "directory",
        "is_dirty",
        "is_recent",
        "map",
        "name",
        "pins",
        "size",
    )

    def __init__(self, disk: Disk, pool: OpenFiles, directory: Path, name: str, size: int) -> None:
        self._disk = disk
        self._pool = pool
        self.directory = directory
        self.name = name
        self.size = size
        self.map: mmap.mmap = CLOSED
        self._descriptor = NOT_OPEN
        self.is_dirty = False
        self.is_recent = False  # used since the pool last looked for a file to close
        self.pins = 0

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self.directory / self.name

    @property
    def is_open(self) -> bool:
        """Whether it has a descriptor and a map."""
        return self.map is not CLOSED

    def open(self) -> None:
        """Have the map available; `OSError` if the file cannot be opened."""
        if self.map is CLOSED:
            self._pool.open(self)
        self.is_recent = True

    def map_now(self, *, create: bool) -> None:
        """Open and map the file; for the pool, which has made room."""
        disk, path = self._disk, self.path
        # The descriptor stays open until the bytes are synced: a write-back error is reported
        # once, to the descriptors that were open when it happened.
        descriptor = disk.open_file(path, create=create)
        try:
            if create or disk.size(path) != self.size:
                disk.truncate(descriptor, self.size)
            self.map = disk.map(descriptor, self.size)
        except BaseException:
            disk.close_file(descriptor)
            raise
        self._descriptor = descriptor

    def sync(self) -> None:
        """Make everything written so far durable; may block, may be called in another thread.

        In another thread only while the file is dirty or pinned, so that it is not closed
        meanwhile, or if it is not open at all.
        """
        descriptor = self._descriptor
        if descriptor != NOT_OPEN:
            self._disk.sync(descriptor)
            return
        try:
            descriptor = self._disk.open_file(self.path, create=False)
        except FileNotFoundError:
            return  # deleted since the sync was asked for
        try:
            self._disk.sync(descriptor)
        finally:
            self._disk.close_file(descriptor)

    def unmap(self) -> bool:
        """Close the file; False, and nothing changed, while a view or a sync needs it."""
        if self.map is CLOSED:
            return True
        if self.pins:
            return False
        try:
            self.map.close()
        except BufferError:
            return False
        self.map = CLOSED
        descriptor, self._descriptor = self._descriptor, NOT_OPEN
        self._disk.close_file(descriptor)
        return True

    def close(self) -> bool:
        """Close the file, dirty or not; False while a view or a sync needs it."""
        if not self.unmap():
            return False
        self._pool.forget(self)
        return True
