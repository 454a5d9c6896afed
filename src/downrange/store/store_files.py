"""What the parts of a store share about files: the disk, who is open, who has unsynced bytes."""

from dataclasses import dataclass
from typing import Self

from downrange.runtime.disk import Disk
from downrange.store.dirty_files import DirtyFiles
from downrange.store.file_pool import FilePool
from downrange.store.settings import OPEN_FILES_MAX


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """One pool for log, queues and index, so that the limit holds for all of them together."""

    disk: Disk
    pool: FilePool
    dirty: DirtyFiles

    @classmethod
    def of(cls, disk: Disk, open_files_max: int = OPEN_FILES_MAX) -> Self:
        """The files of one store, of which at most so many are open at a time."""
        # The rest is left for files that are only read, which can be closed at once.
        dirty = DirtyFiles(disk, max(open_files_max * 3 // 4, 1))
        return cls(disk, FilePool(open_files_max), dirty)

    def close(self) -> None:
        """Let go of everything, synced or not."""
        self.pool.close()
        self.dirty.clear()
