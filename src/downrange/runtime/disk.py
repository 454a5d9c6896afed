"""The file system as parts receive it, so that a test can make it fail on demand."""

import fcntl
import mmap
import os
from dataclasses import dataclass
from pathlib import Path

_FETCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """How full the partition of a directory is."""

    total_bytes: int
    free_bytes: int

    @property
    def used_ratio(self) -> float:
        """Used share of what an ordinary user may fill, 0.0 to 1.0, as `df` reports it."""
        return 1.0 - self.free_bytes / self.total_bytes if self.total_bytes else 0.0


class Disk:
    """Every call that a part makes on files; errors are the operating system's own `OSError`.

    Holds no state and may be used from any thread.
    """

    # --- small files and directories -------------------------------------------------------

    def read(self, path: Path) -> bytes:
        """The whole content of a small file."""
        return path.read_bytes()

    def write(self, path: Path, data: bytes) -> None:
        """Create or replace a small file; its bytes are durable when this returns."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Move a file over another one in one step."""
        source.replace(target)

    def exists(self, path: Path) -> bool:
        """Whether something has this name."""
        return path.exists()

    def size(self, path: Path) -> int:
        """Length of a file in bytes."""
        return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        """When a file was last written, in milliseconds since 1970."""
        return path.stat().st_mtime_ns // 1_000_000

    def unlink(self, path: Path) -> None:
        """Remove a file; a file that is not there is no error."""
        path.unlink(missing_ok=True)

    def make_directory(self, path: Path) -> None:
        """Create a directory with its parents; an existing one is no error."""
        path.mkdir(parents=True, exist_ok=True)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        path.rmdir()

    def list_directory(self, path: Path) -> list[Path]:
        """What a directory holds, by name; a missing directory holds nothing."""
        return sorted(path.iterdir()) if path.is_dir() else []

    def list_names(self, path: Path) -> list[str]:
        """The names in a directory, sorted; a missing directory holds nothing."""
        try:
            return sorted(os.listdir(path))  # noqa: PTH208 - no object per name
        except (FileNotFoundError, NotADirectoryError):
            return []

    def file_sizes(self, path: Path) -> dict[str, int]:
        """Names and lengths of the files in a directory; a missing directory holds nothing.

        For directories that are many: it makes no object per file but the name.
        """
        try:
            with os.scandir(path) as entries:
                return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
        except (FileNotFoundError, NotADirectoryError):
            return {}

    def fsync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def usage(self, path: Path) -> DiskUsage:
        """How full the partition that holds this directory is."""
        facts = os.statvfs(path)
        used = facts.f_blocks - facts.f_bfree
        return DiskUsage(
            total_bytes=(used + facts.f_bavail) * facts.f_frsize,
            free_bytes=facts.f_bavail * facts.f_frsize,
        )

    def boot_id(self) -> str:
        """A text that changes with each start of the machine; empty where it cannot be had."""
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except OSError:
            return ""

    # --- large files, by descriptor --------------------------------------------------------

    def open_file(self, path: Path, *, create: bool, writable: bool = True) -> int:
        """A descriptor of the file."""
        flags = os.O_RDWR if writable else os.O_RDONLY
        return os.open(path, flags | (os.O_CREAT if create else 0), 0o644)

    def close_file(self, descriptor: int) -> None:
        """Give a descriptor back."""
        os.close(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut or extend a file; what is added reads as zero and takes no blocks."""
        os.ftruncate(descriptor, size)

    def write_at(self, descriptor: int, data: bytes, offset: int) -> None:
        """Write a few bytes; not durable before a `sync`."""
        os.pwrite(descriptor, data, offset)

    def allocate(self, descriptor: int, offset: int, length: int) -> None:
        """Reserve blocks, so that a later write through a mapping cannot run out of space."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, offset, length)

    def fetch(self, descriptor: int, offset: int, length: int) -> None:
        """Have a part of a file in memory; releases the interpreter while the system works.

        Advice alone (`POSIX_FADV_WILLNEED`) fetches single pages, of which each costs a fault at
        its first write; a read fetches them in large pieces.
        """
        if hasattr(os, "preadv"):
            buffer = bytearray(min(length, _FETCH_BYTES))
            for start in range(offset, offset + length, _FETCH_BYTES):
                os.preadv(descriptor, [buffer], start)

    def read_at(self, descriptor: int, offset: int, length: int) -> bytes:
        """Bytes of a file; fewer if it ends there. Releases the interpreter while it reads."""
        return os.pread(descriptor, length, offset)

    def sync(self, descriptor: int) -> None:
        """Make the content of a file durable; releases the interpreter while the disk works."""
        if hasattr(os, "fdatasync"):
            os.fdatasync(descriptor)
        else:
            os.fsync(descriptor)

    def map(self, descriptor: int, size: int, *, writable: bool = True) -> mmap.mmap:
        """The file's bytes as shared memory."""
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return mmap.mmap(descriptor, size, access=access)

    def data_extents(self, descriptor: int, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of [start, end) that may hold something other than zeros."""
        extents = []
        while start < end:
            try:
                begin = os.lseek(descriptor, start, os.SEEK_DATA)
            except OSError:  # ENXIO: nothing but a hole up to the end
                break
            if begin >= end:
                break
            stop = min(os.lseek(descriptor, begin, os.SEEK_HOLE), end)
            extents.append((begin, stop))
            start = stop
        return extents

    def lock(self, descriptor: int) -> None:
        """Take the whole file for this descriptor alone; `BlockingIOError` if it is taken."""
        # The first lock keeps out a second opener in this process. The second, a POSIX record lock
        # over the first byte, is what Java's FileChannel.tryLock(0, 1, false) takes, so that our
        # broker and an Apache broker keep each other out.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)


def make_durable_directory(disk: Disk, path: Path) -> None:
    """Create a directory with its parents; the new names are durable when this returns."""
    missing = [folder for folder in (path, *path.parents) if not disk.exists(folder)]
    disk.make_directory(path)
    for folder in missing:
        disk.fsync_directory(folder.parent)
