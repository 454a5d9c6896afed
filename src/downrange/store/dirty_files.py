"""Files of queues and index that have bytes which no sync has covered yet, and how many may be.

Before a file is closed it is synced through the descriptor that wrote it; a write-back error that
happened in between would otherwise be reported to nobody. Syncing blocks, so it is done by a flush
job in another thread, and until then the file stays open. That is why their number is bounded.
"""

import errno
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from downrange.runtime.disk import Disk
from downrange.store.mapped_file import MappedFile

DOUBTFUL_TOGETHER_MAX = 512  # synced with one job, so that writers do not wait long


class FilesBusyError(OSError):
    """Every file that may be open has unsynced bytes: try again after the next sync."""

    def __init__(self) -> None:
        super().__init__(errno.EBUSY, "all open queue files wait to be synced")


class SyncBatch:
    """Files and directories that one job syncs; `DirtyFiles` begins and ends it."""

    def __init__(
        self,
        files: list[MappedFile],
        directories: list[Path],
        sync_directory: Callable[[Path], None],
        *,
        is_all: bool = True,
    ) -> None:
        self.is_all = is_all  # nothing older remains to be synced
        self.files = files
        self.directories = directories
        self._sync_directory = sync_directory
        self.is_synced = False

    @property
    def syncs(self) -> list[Callable[[], None]]:
        """The calls to make, each of which may block: contents first, then the names."""
        calls: list[Callable[[], None]] = [file.sync for file in self.files]
        calls += [partial(self._sync_names, directory) for directory in self.directories]
        calls.append(self._note_synced)
        return calls

    def _note_synced(self) -> None:
        self.is_synced = True

    def _sync_names(self, directory: Path) -> None:
        with suppress(FileNotFoundError):  # deleted meanwhile, with its topic
            self._sync_directory(directory)


class DirtyFiles:
    """Owned by the store's thread. While `may_block` is set, syncing is done in line.

    It is set while the store opens and closes, when nobody is served. At most `files_max` files are
    dirty at a time. Of n topics each may have one part in n + 1 of them for files that were not
    open, so writes to many idle queues hold up neither busy queues nor other topics.
    """

    def __init__(self, disk: Disk, files_max: int) -> None:
        self._disk = disk
        self.files_max = files_max
        self.may_block = False
        self._dirty: dict[MappedFile, None] = {}
        self._held: dict[MappedFile, Path] = {}  # dirty, or being synced -> directory of its topic
        self._topics: Counter[Path] = Counter()  # how many of these each topic has
        self._directories: dict[Path, None] = {}  # with names that are not durable yet
        self._doubtful: deque[MappedFile] = deque()  # written by another process, mostly not open
        self._is_awaited = False

    def __len__(self) -> int:
        return len(self._dirty) + len(self._doubtful)

    @property
    def is_full(self) -> bool:
        """Whether no further file may become dirty before the next sync."""
        return len(self._held) >= self.files_max

    @property
    def needs_sync(self) -> bool:
        """Whether to sync now rather than in time: a writer waits, or will soon."""
        return self._is_awaited or 4 * len(self._dirty) > self.files_max

    def check(self, directory: Path, *, is_open: bool = False) -> None:
        """Raise `FilesBusyError` unless one more file of this directory may become dirty."""
        if not self.is_full and (is_open or self._has_share(directory.parent)):
            return
        if not self.may_block:
            self._is_awaited = True
            raise FilesBusyError
        batch = self.begin_sync()
        try:
            for sync in batch.syncs:
                sync()
        finally:
            self.end_sync(batch)

    def _has_share(self, topic: Path) -> bool:
        topic_count = len(self._topics) + (topic not in self._topics)
        return self._topics[topic] < max(self.files_max // (topic_count + 1), 1)

    def admit(self, file: MappedFile, *, is_repair: bool = False) -> None:
        """Open a file to write to it; `FilesBusyError` if too many are dirty.

        A repair, which is rare, is made whatever the limit if it would have to wait.
        """
        if file not in self._held and (self.may_block or not is_repair):
            self.check(file.directory, is_open=file.is_open)
        file.open()
        self.note(file)

    def note(self, file: MappedFile) -> None:
        """Count a file that is open as dirty, whatever the limit: it is written to now."""
        file.is_dirty = True
        self._dirty[file] = None
        if file not in self._held:
            topic = self._held[file] = file.directory.parent
            self._topics[topic] += 1

    def _release(self, file: MappedFile) -> None:
        topic = self._held.pop(file, None)
        if topic is not None:
            self._topics[topic] -= 1
            if not self._topics[topic]:
                del self._topics[topic]

    def doubt(self, file: MappedFile) -> None:
        """Have a file of a queue or index synced that this process has not written, with its name.

        A process that was killed may have left its bytes in the page cache. Such files are synced
        some at a time, and opened only for that.
        """
        self._doubtful.append(file)

    def note_names(self, *directories: Path) -> None:
        """Have directories synced, too: a file or directory was created in them."""
        for directory in directories:
            self._directories[directory] = None

    def forget(self, file: MappedFile) -> None:
        """A file was deleted; what was written to it need not become durable."""
        file.is_dirty = False
        self._dirty.pop(file, None)
        if not file.pins:
            self._release(file)

    def forget_directory(self, directory: Path) -> None:
        """A directory was deleted."""
        self._directories.pop(directory, None)

    def begin_sync(self) -> SyncBatch:
        """Everything that is dirty now; what is written from here on is for the next batch."""
        doubtful = self._doubtful
        count = min(len(doubtful), DOUBTFUL_TOGETHER_MAX)
        taken = [doubtful.popleft() for _ in range(count)]
        for file in taken:
            self.note_names(file.directory, file.directory.parent)
        files = [*self._dirty, *taken]
        batch = SyncBatch(
            files, list(self._directories), self._disk.fsync_directory, is_all=not doubtful
        )
        for file in batch.files:
            file.is_dirty = False
            file.pins += 1
        self._dirty.clear()
        self._directories.clear()
        self._is_awaited = False
        return batch

    def end_sync(self, batch: SyncBatch) -> None:
        """Let go of the files of a batch; those of a failed one are dirty again."""
        for file in batch.files:
            file.pins -= 1
            if not batch.is_synced:
                if file.is_open:
                    self.note(file)
                else:
                    self._doubtful.append(file)
            elif not file.is_dirty:
                self._release(file)
        if not batch.is_synced:
            self.note_names(*batch.directories)

    def clear(self) -> None:
        """Forget everything: the store was closed."""
        self._dirty.clear()
        self._doubtful.clear()
        self._held.clear()
        self._topics.clear()
        self._directories.clear()
        self._is_awaited = False
