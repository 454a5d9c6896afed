"""A `Disk` over a `Drive`: what one start of a simulated machine sees of its files."""

import errno
import mmap
import os
from pathlib import Path

from downrange.runtime.disk import Disk, DiskUsage
from downrange.testing.drive import Drive, NameChange, Node, OpenFile, PowerLostError


class SimulatedDisk(Disk):
    """Works until the power is cut; every call after that is a `PowerLostError`.

    Every path belongs to the drive, which begins with an empty root directory.
    """

    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._boot = drive.boot
        self._opened = drive.opened
        self._own: set[int] = set()

    @property
    def is_dead(self) -> bool:
        """Whether the power was cut since this disk was mounted."""
        return self._boot != self._drive.boot

    def end_process(self) -> None:
        """Close what is still open, as the kernel does when a process dies."""
        for descriptor in sorted(self._own):
            self.close_file(descriptor)

    # --- small files and directories -------------------------------------------------------

    def read(self, path: Path) -> bytes:
        """As `Disk.read`."""
        return self._file(path).live()

    def write(self, path: Path, data: bytes) -> None:
        """As `Disk.write`; the power may fail before, between and after its steps."""
        self._step("write", path)
        node = self._find(path) or self._create(path, Node(is_directory=False))
        node.replace(data[: len(data) // 2])
        self._step("write", path)
        node.replace(data)
        node.is_new_or_resized = True
        node.modified_ms = self._drive.now_ms()
        self._step("sync", path)
        self._drive.sync(node)

    def rename(self, source: Path, target: Path) -> None:
        """As `Disk.rename`; between directories it is two changes, and either may be lost."""
        self._step("rename", target)
        node = self._node(source)
        old, new = self._directory(source), self._directory(target)
        if old is new:
            self._drive.change(NameChange(new, node, added=target.name, removed=source.name))
        else:
            self._drive.change(NameChange(new, node, added=target.name))
            self._drive.change(NameChange(old, node, removed=source.name))

    def exists(self, path: Path) -> bool:
        """As `Disk.exists`."""
        return self._find(path) is not None

    def size(self, path: Path) -> int:
        """As `Disk.size`."""
        return self._node(path).size

    def modified_ms(self, path: Path) -> int:
        """As `Disk.modified_ms`; writes through a mapping count when they are synced."""
        return self._node(path).modified_ms

    def unlink(self, path: Path) -> None:
        """As `Disk.unlink`."""
        self._step("unlink", path)
        node = self._find(path)
        if node is not None:
            self._drive.change(NameChange(self._directory(path), node, removed=path.name))

    def make_directory(self, path: Path) -> None:
        """As `Disk.make_directory`."""
        for folder in (*reversed(path.parents), path):
            if self._find(folder) is None:
                self._step("make_directory", folder)
                self._create(folder, Node(is_directory=True))

    def remove_directory(self, path: Path) -> None:
        """As `Disk.remove_directory`."""
        self._step("remove_directory", path)
        node = self._node(path)
        if node.names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
        self._drive.change(NameChange(self._directory(path), node, removed=path.name))

    def list_directory(self, path: Path) -> list[Path]:
        """As `Disk.list_directory`."""
        node = self._find(path)
        return [] if node is None else [path / name for name in sorted(node.names)]

    def list_names(self, path: Path) -> list[str]:
        """As `Disk.list_names`."""
        node = self._find(path)
        return [] if node is None else sorted(node.names)

    def file_sizes(self, path: Path) -> dict[str, int]:
        """As `Disk.file_sizes`."""
        node = self._find(path)
        names = {} if node is None else node.names
        return {name: at.size for name, at in names.items() if not at.is_directory}

    def fsync_directory(self, path: Path) -> None:
        """As `Disk.fsync_directory`."""
        self._step("fsync_directory", path)
        self._drive.sync_directory(self._node(path))

    def usage(self, path: Path) -> DiskUsage:
        """What the drive has been told to report."""
        self._node(path)
        return self._drive.usage

    def boot_id(self) -> str:
        """Another one after each power failure."""
        return f"boot-{self._boot}"

    # --- large files, by descriptor --------------------------------------------------------

    def open_file(self, path: Path, *, create: bool, writable: bool = True) -> int:
        """As `Disk.open_file`."""
        node = self._find(path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            self._step("open_file", path)
            node = self._create(path, Node(is_directory=False))
        descriptor = node.open(writable=writable)
        self._opened[descriptor] = OpenFile(node, path)
        self._own.add(descriptor)
        return descriptor

    def close_file(self, descriptor: int) -> None:
        """As `Disk.close_file`; a dead process gives its descriptors back too."""
        self._own.discard(descriptor)
        self._opened.pop(descriptor).node.close(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        """As `Disk.truncate`."""
        try:
            node = self._changed("truncate", descriptor)
        except PowerLostError:
            # The dead process may still read its mapping, and must not run off the end of a file
            # that it has just cut: that would be the end of the test as well.
            if size > os.fstat(descriptor).st_size:
                os.ftruncate(descriptor, size)
            raise
        os.ftruncate(descriptor, size)
        node.is_new_or_resized = True

    def write_at(self, descriptor: int, data: bytes, offset: int) -> None:
        """As `Disk.write_at`."""
        self._changed("write_at", descriptor)
        os.pwrite(descriptor, data, offset)

    def allocate(self, descriptor: int, offset: int, length: int) -> None:
        """As `Disk.allocate`; a drive in memory has its blocks, so only the step counts."""
        node = self._changed("allocate", descriptor)
        if node.size < offset + length:
            os.ftruncate(descriptor, offset + length)
        node.is_new_or_resized = True

    def read_at(self, descriptor: int, offset: int, length: int) -> bytes:
        """As `Disk.read_at`."""
        self._check_power()
        return super().read_at(descriptor, offset, length)

    def fetch(self, descriptor: int, offset: int, length: int) -> None:
        """As `Disk.fetch`."""
        self._check_power()
        super().fetch(descriptor, offset, length)

    def sync(self, descriptor: int) -> None:
        """As `Disk.sync`."""
        self._drive.sync(self._changed("sync", descriptor))

    def map(self, descriptor: int, size: int, *, writable: bool = True) -> mmap.mmap:
        """As `Disk.map`."""
        self._check_power()
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return self._opened[descriptor].node.map(descriptor, size, access)

    def data_extents(self, descriptor: int, start: int, end: int) -> list[tuple[int, int]]:
        """As `Disk.data_extents`."""
        self._check_power()
        return super().data_extents(descriptor, start, end)

    def lock(self, descriptor: int) -> None:
        """As `Disk.lock`, between all that use the drive."""
        node = self._opened[descriptor].node
        if node.lock_holder not in {None, descriptor}:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        node.lock_holder = descriptor

    # --- inside ----------------------------------------------------------------------------

    def _step(self, operation: str, path: Path) -> None:
        self._check_power()
        self._drive.step(operation, path)
        self._check_power()  # it may have failed just now

    def _check_power(self) -> None:
        if self.is_dead:
            raise PowerLostError(errno.EIO, "the power was cut")

    def _changed(self, operation: str, descriptor: int) -> Node:
        self._step(operation, self._opened[descriptor].path)
        node = self._opened[descriptor].node
        node.modified_ms = self._drive.now_ms()
        return node

    def _create(self, path: Path, node: Node) -> Node:
        node.modified_ms = self._drive.now_ms()
        self._drive.change(NameChange(self._directory(path), node, added=path.name))
        return node

    def _directory(self, path: Path) -> Node:
        return self._node(path.parent)

    def _file(self, path: Path) -> Node:
        node = self._node(path)
        if node.is_directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return node

    def _node(self, path: Path) -> Node:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return node

    def _find(self, path: Path) -> Node | None:
        self._check_power()
        node: Node | None = self._drive.root
        for name in path.parts[1:]:
            if node is None:
                return None
            node = node.names.get(name)
        return node
