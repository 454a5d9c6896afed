"""A disk that fails on demand, so that a test can see what a program makes of it.

disk = FaultyDisk()
disk.fail("sync", errno.EIO, path_contains="commitlog")      # every sync of the log, until heal
disk.fail("allocate", errno.ENOSPC, at_call=3, times=1)      # the third one from now on
disk.reported_usage = DiskUsage(total_bytes=100, free_bytes=5)
disk.on_sync = lambda path: clock.advance(6_000)             # a slow fsync
"""

import mmap
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from downrange.runtime.disk import Disk, DiskUsage


@dataclass(slots=True)
class Fault:
    """An operation that is to fail; `seen` counts the calls it applies to."""

    operation: str
    error_number: int
    path_contains: str = ""
    at_call: int = 1
    times: int | None = None  # None: every call from `at_call` on
    seen: int = 0

    def strikes(self, operation: str, path: Path) -> bool:
        """Count a call if it is one of those meant; whether it has to fail."""
        if operation != self.operation or self.path_contains not in str(path):
            return False
        self.seen += 1
        late = self.times is not None and self.seen >= self.at_call + self.times
        return self.seen >= self.at_call and not late


class FaultyDisk(Disk):
    """A real disk whose calls fail as they are told to; `calls` counts them by operation.

    Operations are the names of the methods of `Disk`. A failing call does nothing, except that a
    failing `write` leaves half of the bytes behind, as a disk that fills up does. Faults may be
    added while another thread uses the disk; everything else belongs to one thread.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.reported_usage: DiskUsage | None = None
        self.on_sync: Callable[[Path], None] | None = None
        self._faults: list[Fault] = []
        self._paths: dict[int, Path] = {}

    def fail(
        self,
        operation: str,
        error_number: int,
        *,
        path_contains: str = "",
        at_call: int = 1,
        times: int | None = None,
    ) -> Fault:
        """Have an operation fail from its n-th call from now on, for good or so many times."""
        if operation.startswith("_") or not hasattr(Disk, operation):
            raise ValueError(f"a disk has no operation {operation!r}")
        fault = Fault(operation, error_number, path_contains, at_call, times)
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """Forget all faults, the reported usage and the hook."""
        self._faults.clear()
        self.reported_usage = None
        self.on_sync = None

    def read(self, path: Path) -> bytes:
        """As `Disk.read`."""
        self._enter("read", path)
        return super().read(path)

    def write(self, path: Path, data: bytes) -> None:
        """As `Disk.write`; a failure leaves half of the bytes."""
        try:
            self._enter("write", path)
        except OSError:
            if path.parent.is_dir():
                path.write_bytes(data[: len(data) // 2])
            raise
        super().write(path, data)

    def rename(self, source: Path, target: Path) -> None:
        """As `Disk.rename`; a fault is matched against the target."""
        self._enter("rename", target)
        super().rename(source, target)

    def exists(self, path: Path) -> bool:
        """As `Disk.exists`."""
        self._enter("exists", path)
        return super().exists(path)

    def size(self, path: Path) -> int:
        """As `Disk.size`."""
        self._enter("size", path)
        return super().size(path)

    def modified_ms(self, path: Path) -> int:
        """As `Disk.modified_ms`."""
        self._enter("modified_ms", path)
        return super().modified_ms(path)

    def unlink(self, path: Path) -> None:
        """As `Disk.unlink`."""
        self._enter("unlink", path)
        super().unlink(path)

    def make_directory(self, path: Path) -> None:
        """As `Disk.make_directory`."""
        self._enter("make_directory", path)
        super().make_directory(path)

    def remove_directory(self, path: Path) -> None:
        """As `Disk.remove_directory`."""
        self._enter("remove_directory", path)
        super().remove_directory(path)

    def list_directory(self, path: Path) -> list[Path]:
        """As `Disk.list_directory`."""
        self._enter("list_directory", path)
        return super().list_directory(path)

    def list_names(self, path: Path) -> list[str]:
        """As `Disk.list_names`."""
        self._enter("list_names", path)
        return super().list_names(path)

    def file_sizes(self, path: Path) -> dict[str, int]:
        """As `Disk.file_sizes`."""
        self._enter("file_sizes", path)
        return super().file_sizes(path)

    def fsync_directory(self, path: Path) -> None:
        """As `Disk.fsync_directory`."""
        self._enter("fsync_directory", path)
        super().fsync_directory(path)

    def usage(self, path: Path) -> DiskUsage:
        """What the test has set, else as `Disk.usage`."""
        self._enter("usage", path)
        return self.reported_usage or super().usage(path)

    def open_file(self, path: Path, *, create: bool, writable: bool = True) -> int:
        """As `Disk.open_file`."""
        self._enter("open_file", path)
        descriptor = super().open_file(path, create=create, writable=writable)
        self._paths[descriptor] = path
        return descriptor

    def close_file(self, descriptor: int) -> None:
        """As `Disk.close_file`; the descriptor is given back even if the call fails."""
        path = self._paths.pop(descriptor, Path())
        super().close_file(descriptor)
        self._enter("close_file", path)

    def truncate(self, descriptor: int, size: int) -> None:
        """As `Disk.truncate`."""
        self._enter("truncate", self._path(descriptor))
        super().truncate(descriptor, size)

    def write_at(self, descriptor: int, data: bytes, offset: int) -> None:
        """As `Disk.write_at`."""
        self._enter("write_at", self._path(descriptor))
        super().write_at(descriptor, data, offset)

    def allocate(self, descriptor: int, offset: int, length: int) -> None:
        """As `Disk.allocate`."""
        self._enter("allocate", self._path(descriptor))
        super().allocate(descriptor, offset, length)

    def fetch(self, descriptor: int, offset: int, length: int) -> None:
        """As `Disk.fetch`."""
        self._enter("fetch", self._path(descriptor))
        super().fetch(descriptor, offset, length)

    def read_at(self, descriptor: int, offset: int, length: int) -> bytes:
        """As `Disk.read_at`."""
        self._enter("read_at", self._path(descriptor))
        return super().read_at(descriptor, offset, length)

    def sync(self, descriptor: int) -> None:
        """As `Disk.sync`, the hook before it."""
        path = self._path(descriptor)
        if self.on_sync is not None:
            self.on_sync(path)
        self._enter("sync", path)
        super().sync(descriptor)

    def map(self, descriptor: int, size: int, *, writable: bool = True) -> mmap.mmap:
        """As `Disk.map`."""
        self._enter("map", self._path(descriptor))
        return super().map(descriptor, size, writable=writable)

    def data_extents(self, descriptor: int, start: int, end: int) -> list[tuple[int, int]]:
        """As `Disk.data_extents`."""
        self._enter("data_extents", self._path(descriptor))
        return super().data_extents(descriptor, start, end)

    def lock(self, descriptor: int) -> None:
        """As `Disk.lock`."""
        self._enter("lock", self._path(descriptor))
        super().lock(descriptor)

    @property
    def open_paths(self) -> list[Path]:
        """The files that were opened and not closed, to find a descriptor that is lost."""
        return sorted(self._paths.values())

    def _path(self, descriptor: int) -> Path:
        return self._paths.get(descriptor, Path())

    def _enter(self, operation: str, path: Path) -> None:
        self.calls[operation] += 1
        struck = [fault for fault in self._faults if fault.strikes(operation, path)]
        if struck:
            number = struck[0].error_number
            raise OSError(number, os.strerror(number), str(path))
