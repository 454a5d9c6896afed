"""Which files of a store are open: as many as the process can afford, the recently used ones."""

import errno
from collections import OrderedDict

from downrange.store.mapped_file import MappedFile

# The process has no descriptor, or the kernel no mapping, left.
_NONE_LEFT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_GIVE_UP_MIN = 16  # files closed at once when none is left


class FilePool:
    """Opens files, and closes the least recently used ones beyond `limit`.

    Owned by the store's thread. "Recently used" is approximated as page caches do: a file used
    since the last look gets a second chance. Files with unsynced bytes stay open, and so do those
    that a reader has a view of; so the limit may be exceeded, by the few files that are written to
    the log and the index. `DirtyFiles` bounds the number of the others.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._files: OrderedDict[MappedFile, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def open(self, file: MappedFile, *, create: bool = False) -> None:
        """Map the file; `OSError` if it cannot be opened."""
        if len(self._files) >= self.limit:
            self._give_up(len(self._files) - self.limit + 1)
        try:
            file.map_now(create=create)
        except OSError as error:
            # Something else in this process has taken descriptors that were counted as ours.
            count = max(_GIVE_UP_MIN, len(self._files) // 4)
            if error.errno not in _NONE_LEFT or not self._give_up(count):
                raise
            file.map_now(create=create)
        self._files[file] = None

    def forget(self, file: MappedFile) -> None:
        """Count a file that was closed as closed."""
        self._files.pop(file, None)

    def close(self) -> None:
        """Close what is still open: files deleted while somebody needed them."""
        for file in list(self._files):
            file.close()

    def _give_up(self, count: int) -> int:
        """Close up to `count` files that nobody needs; returns how many."""
        files = self._files
        closed = 0
        for _ in range(2 * len(files)):  # twice around, so that each gets its second chance
            if closed >= count:
                break
            file = next(iter(files))
            files.move_to_end(file)
            if file.is_recent:
                file.is_recent = False
            elif not file.is_dirty and file.unmap():
                del files[file]
                closed += 1
        return closed
