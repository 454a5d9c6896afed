"""A disk for looking at a store that is not ours to change."""

import mmap
from pathlib import Path

from downrange.runtime.disk import Disk


class ReadOnlyDisk(Disk):
    """A disk that pretends to have done what would change files."""

    def open_file(self, path: Path, *, create: bool, writable: bool = True) -> int:
        """A descriptor that cannot write."""
        assert not create, "looking makes no files"
        assert writable, "the store opens its files to write"
        return super().open_file(path, create=False, writable=False)

    def map(self, descriptor: int, size: int, *, writable: bool = True) -> mmap.mmap:
        """The file's bytes; a file that is too short is padded in memory."""
        assert writable
        try:
            return super().map(descriptor, size, writable=False)
        except ValueError:
            padded = mmap.mmap(-1, size)
            with open(descriptor, "rb", closefd=False) as file:
                padded.write(file.read(size))
            return padded

    def truncate(self, descriptor: int, size: int) -> None:
        """Do nothing."""

    def unlink(self, path: Path) -> None:
        """Do nothing."""

    def remove_directory(self, path: Path) -> None:
        """Do nothing."""
