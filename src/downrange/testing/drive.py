"""A drive in memory that loses power on demand, and holds what a machine would find afterwards.

drive = Drive(random.Random(seed), file_system=FileSystem.STRICT)
disk = SimulatedDisk(drive)       # its paths exist nowhere else
...                               # a store writes
drive.cut_power()                 # at any instant, in the midst of a call too
disk = SimulatedDisk(drive)       # the machine has started again

What is durable is decided by syncs alone. What was not synced may be there or not, page by page or
sector by sector, in any combination; the seed decides. Pages written through a mapping do not pass
through `Disk`, so the drive compares a file with its durable bytes whenever it needs to know.
"""

import mmap
import os
import random
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from downrange.runtime.disk import DiskUsage

SECTOR_BYTES: Final = 512
PAGE_BYTES: Final = 4096
WRITE_BACK_CHANCE: Final = 1 / 16  # per step, of a file or name that the kernel writes by itself
CAPACITY: Final = DiskUsage(total_bytes=1 << 40, free_bytes=9 << 36)


class FileSystem(Enum):
    """What survives without a sync of its own.

    STRICT is the least that POSIX promises: a name survives if its directory was synced, and of
    the changes after that any combination may survive.

    ORDERED behaves as ext4 does with data=ordered: changes of names survive in the order in which
    they were made, the sync of a new or resized file makes all earlier ones durable, and a file
    that is renamed over another one is written first.
    """

    STRICT = "strict"
    ORDERED = "ordered"


class Survival(Enum):
    """What becomes of bytes and names that were not synced when the power fails."""

    NOTHING = "nothing"
    EVERYTHING = "everything"
    SECTORS = "sectors"  # any combination of 512 B
    PAGES = "pages"  # any combination of 4 KiB


class PowerLostError(OSError):
    """The machine that this disk belonged to is off."""


class Node:
    """A file or a directory: as programs see it, and as it is on the platter."""

    def __init__(self, *, is_directory: bool) -> None:
        self.is_directory = is_directory
        self.names: dict[str, Node] = {}
        self.durable_names: dict[str, Node] = {}
        self.durable = b""
        self.is_new_or_resized = not is_directory
        self.modified_ms = 0
        self.lock_holder: int | None = None
        self.open_count = 0
        self._data = b""
        self._memory: int | None = None  # a descriptor, while somebody has the file open
        self._maps: list[weakref.ref[mmap.mmap]] = []

    def __del__(self) -> None:
        if self._memory is not None:
            os.close(self._memory)

    @property
    def size(self) -> int:
        """Length in bytes."""
        return len(self._data) if self._memory is None else os.fstat(self._memory).st_size

    def live(self) -> bytes:
        """The bytes that a program would read now."""
        return self._data if self._memory is None else os.pread(self._memory, self.size, 0)

    def replace(self, data: bytes) -> None:
        """Give the file other bytes, seen by those who have it open too."""
        if self._memory is None:
            self._data = data
            return
        os.ftruncate(self._memory, 0)
        _write_pages(self._memory, data)

    def open(self, *, writable: bool) -> int:
        """A descriptor that the system knows, so that it can be mapped, cut and sought in."""
        if self._memory is None:
            self._memory = os.memfd_create("drive")
            _write_pages(self._memory, self._data)
            self._data = b""
        self.open_count += 1
        flags = os.O_RDWR if writable else os.O_RDONLY
        return os.open(f"/proc/self/fd/{self._memory}", flags)

    def map(self, descriptor: int, size: int, access: int) -> mmap.mmap:
        """Shared memory; what is written to it is live at once."""
        mapped = mmap.mmap(descriptor, size, access=access)
        self._maps.append(weakref.ref(mapped))
        return mapped

    def close(self, descriptor: int) -> None:
        """Give a descriptor back, and the memory behind the last one."""
        os.close(descriptor)
        self.open_count -= 1
        if self.lock_holder == descriptor:
            self.lock_holder = None
        if not self.open_count:
            self._maps = [
                ref for ref in self._maps if (one := ref()) is not None and not one.closed
            ]
            if not self._maps and self._memory is not None:
                self._data = self.live()
                os.close(self._memory)
                self._memory = None

    def write_back(self, unit: int, survives: Callable[[], bool], *, keeps_size: bool) -> None:
        """Put those pieces of the live bytes on the platter that survive."""
        live, durable = self.live(), self.durable
        if live == durable:
            return
        length = len(durable) if keeps_size else len(live)
        live, platter = live.ljust(length, b"\0"), bytearray(durable[:length].ljust(length, b"\0"))
        for start in range(0, length, unit):
            piece = live[start : min(start + unit, length)]
            if piece != platter[start : start + len(piece)] and survives():
                platter[start : start + len(piece)] = piece
        self.durable = bytes(platter)


@dataclass(frozen=True, slots=True)
class OpenFile:
    """What a descriptor stands for."""

    node: Node
    path: Path


@dataclass(frozen=True, slots=True)
class NameChange:
    """A name that came, went, or moved within its directory; done entirely or not at all."""

    directory: Node
    node: Node
    added: str = ""
    removed: str = ""

    def apply(self, names: dict[str, Node]) -> None:
        """Do it."""
        if self.removed and names.get(self.removed) is self.node:
            del names[self.removed]
        if self.added:
            names[self.added] = self.node

    def touches(self, other: "NameChange") -> bool:
        """Whether the order of the two matters."""
        names = {self.added, self.removed} - {""}
        return self.directory is other.directory and bool(names & {other.added, other.removed})


class Drive:
    """The files of one machine, through any number of power failures; belongs to one thread.

    `before_step` is told of every call that changes something, and of the middle of those that
    consist of several steps; it may raise an `OSError`, or cut the power.
    """

    def __init__(
        self,
        rng: random.Random,
        *,
        file_system: FileSystem = FileSystem.STRICT,
        now_ms: Callable[[], int] = lambda: 0,
        write_back_chance: float = WRITE_BACK_CHANCE,
    ) -> None:
        self.rng = rng
        self.file_system = file_system
        self.now_ms = now_ms
        self._write_back_chance = write_back_chance
        self.root = Node(is_directory=True)
        self.boot = 1
        self.usage = CAPACITY
        self.before_step: list[Callable[[str, Path], None]] = []
        self._changes: list[NameChange] = []
        self.opened: dict[int, OpenFile] = {}  # of this boot, by descriptor

    # --- power -----------------------------------------------------------------------------

    def cut_power(self, survival: Survival | None = None) -> Survival:
        """Forget what does not survive; every disk that was mounted is dead from here on."""
        chosen = survival or self.rng.choice(list(Survival))
        self._fail_names(chosen)
        self._changes.clear()
        self.opened = {}
        self.root = self._survivor(self.root, chosen, {})
        self.boot += 1
        return chosen

    def _fail_names(self, survival: Survival) -> None:
        pending, rng = self._changes, self.rng
        if survival is Survival.NOTHING:
            pending = []
        elif survival is not Survival.EVERYTHING:
            if self.file_system is FileSystem.ORDERED:
                pending = pending[: rng.randint(0, len(pending))]
            else:
                pending = [change for change in pending if rng.random() < 1 / 2]
        for change in pending:
            change.apply(change.directory.durable_names)

    def _survivor(self, node: Node, survival: Survival, known: dict[Node, Node]) -> Node:
        """What is left of a node, as a new one: a dead process may still write to the old."""
        if node in known:  # a rename that was half lost leaves two names
            return known[node]
        left = known[node] = Node(is_directory=node.is_directory)
        left.modified_ms = node.modified_ms
        left.is_new_or_resized = False
        if node.is_directory:
            for name in sorted(node.durable_names):
                left.durable_names[name] = self._survivor(node.durable_names[name], survival, known)
            left.names = dict(left.durable_names)
            return left
        if survival is Survival.EVERYTHING:
            node.durable = node.live()
        elif survival is not Survival.NOTHING:
            unit = SECTOR_BYTES if survival is Survival.SECTORS else PAGE_BYTES
            self._write_back(node, unit, self.rng.choice((1 / 8, 1 / 2, 7 / 8)))
        left.durable = node.durable
        left.replace(node.durable)
        return left

    # --- what the kernel does --------------------------------------------------------------

    def step(self, operation: str, path: Path) -> None:
        """Something is about to happen; the kernel may write something back before."""
        for told in self.before_step:
            told(operation, path)
        if self.rng.random() < self._write_back_chance:
            self._write_something()

    def sync(self, node: Node) -> None:
        """The bytes of a file survive from here on."""
        node.durable = node.live()
        if node.is_new_or_resized and self.file_system is FileSystem.ORDERED:
            self._commit()
        node.is_new_or_resized = False

    def sync_directory(self, directory: Node) -> None:
        """The names in a directory survive from here on."""
        if self.file_system is FileSystem.ORDERED:
            self._commit()
            return
        for change in self._changes:
            if change.directory is directory:
                change.apply(directory.durable_names)
        self._changes = [change for change in self._changes if change.directory is not directory]

    def change(self, change: NameChange) -> None:
        """Add, remove or move a name; visible now, durable later."""
        replaces = change.added in change.directory.names
        if replaces and not change.node.is_directory and self.file_system is FileSystem.ORDERED:
            change.node.durable = change.node.live()
        change.apply(change.directory.names)
        self._changes.append(change)

    def _write_back(self, node: Node, unit: int, chance: float) -> None:
        rng = self.rng
        node.write_back(unit, lambda: rng.random() < chance, keeps_size=rng.random() < 1 / 2)

    def _write_something(self) -> None:
        rng = self.rng
        files = [file.node for file in self.opened.values()]
        if files and rng.random() < 1 / 2:
            self._write_back(rng.choice(files), PAGE_BYTES, 1 / 2)
        elif self._changes and self.file_system is FileSystem.STRICT:
            index = rng.randrange(len(self._changes))
            change = self._changes[index]
            if not any(change.touches(earlier) for earlier in self._changes[:index]):
                change.apply(change.directory.durable_names)
                del self._changes[index]
        else:
            self._commit()

    def _commit(self) -> None:
        for change in self._changes:
            change.apply(change.directory.durable_names)
        self._changes.clear()


def _write_pages(descriptor: int, data: bytes) -> None:
    """Fill an empty file; pages of zeros stay holes, as a reader of extents expects."""
    os.ftruncate(descriptor, len(data))
    for start in range(0, len(data), PAGE_BYTES):
        page = data[start : start + PAGE_BYTES]
        if page.count(0) != len(page):
            os.pwrite(descriptor, page, start)
