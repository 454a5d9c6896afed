"""Segments of equal size in one directory, addressed by one running offset."""

from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

from downrange.runtime.disk import Disk
from downrange.store.dirty_files import DirtyFiles
from downrange.store.errors import SegmentMissingError, StoreDamagedError
from downrange.store.log_paths import LogPaths
from downrange.store.mapped_file import CLOSED, OpenFiles
from downrange.store.segment import (
    QueueSegment,
    Reservation,
    Segment,
    is_segment_name,
    segment_name,
)


class SegmentChain:
    """The files of a log or of a queue, in order and without a gap.

    Owned by one thread. Only the last segment is written; the others are full. With `dirty`, which
    is for queues, new files are made durable by the next flush job; without, at once, and whoever
    writes to a segment says that it is dirty.
    """

    __slots__ = (
        "_dirty",
        "_disk",
        "_paths",
        "_pool",
        "_reservation",
        "_waiting_for_readers",
        "directory",
        "full_paths",
        "has_short_end",
        "has_short_file",
        "segment_bytes",
        "segments",
    )

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        segment_bytes: int,
        *,
        reservation: Reservation,
        pool: OpenFiles,
        dirty: DirtyFiles | None = None,
        paths: LogPaths | None = None,
    ) -> None:
        self._disk = disk
        self._paths = paths  # where the files are if not all are in `directory`
        self.full_paths: frozenset[Path] = frozenset()  # those that should get no more files
        self.directory = directory
        self.segment_bytes = segment_bytes
        self._reservation = reservation
        self._pool = pool
        self._dirty = dirty
        self.segments: list[Segment] = []
        self.has_short_file = False  # before the last one: somebody has cut it
        self.has_short_end = False  # the last one, when it was loaded
        # Segments that were removed from the chain while somebody still needed them.
        self._waiting_for_readers: list[Segment] = []

    def load(self) -> None:
        """Find the files, without opening them; `StoreDamagedError` if they are not one chain."""
        found = [
            (name, directory, size)
            for directory in self.directories
            for name, size in self._disk.file_sizes(directory).items()
            if is_segment_name(name)
        ]
        found.sort(key=itemgetter(0))
        self._check(found)
        for name, directory, _ in found:
            segment = self._segment(directory, name)
            segment.write_position = self.segment_bytes
            self.segments.append(segment)

    def _check(self, found: list[tuple[str, Path, int]]) -> None:
        expected = int(found[0][0]) if found else 0
        for number, (name, directory, size) in enumerate(found):
            path, base_offset = directory / name, int(name)
            if base_offset % self.segment_bytes:
                raise StoreDamagedError(
                    f"{path} does not continue the files before it with a size of "
                    f"{self.segment_bytes} bytes; if the store was written with another file size, "
                    f"configure that size"
                )
            if size > self.segment_bytes:
                raise StoreDamagedError(
                    f"{path} is longer than the configured file size of {self.segment_bytes} bytes;"
                    f" configure the size that the store was written with"
                )
            if base_offset < expected:
                raise StoreDamagedError(
                    f"{path} is there twice: {found[number - 1][1] / name} has the same name; find"
                    " out which of the two is a copy, and move that one away"
                )
            if base_offset != expected:
                raise SegmentMissingError(
                    f"{path} does not follow on the file before it: {segment_name(expected)} is"
                    " missing"
                )
            expected += self.segment_bytes
            self.has_short_end = size < self.segment_bytes
            self.has_short_file |= self.has_short_end and number < len(found) - 1

    @property
    def directories(self) -> tuple[Path, ...]:
        """All directories that may hold files."""
        return (self.directory,) if self._paths is None else self._paths.everywhere

    @property
    def growing_directories(self) -> tuple[Path, ...]:
        """The directories that get new files."""
        return (self.directory,) if self._paths is None else self._paths.writable

    @property
    def min_offset(self) -> int:
        """The first offset that a file holds; 0 for an empty chain."""
        return self.segments[0].base_offset if self.segments else 0

    @property
    def max_offset(self) -> int:
        """The offset behind the last byte appended; 0 for an empty chain."""
        return self.segments[-1].end_offset if self.segments else 0

    def find(self, offset: int) -> Segment | None:
        """The segment that holds this offset, open or not."""
        segments = self.segments
        if not segments:
            return None
        index = (offset - segments[0].base_offset) // self.segment_bytes
        return segments[index] if 0 <= index < len(segments) else None

    def segment_at(self, offset: int) -> Segment | None:
        """The segment that holds this offset, opened; `OSError` if it cannot be."""
        segments = self.segments
        if not segments:
            return None
        index = (offset - segments[0].base_offset) // self.segment_bytes
        if not 0 <= index < len(segments):
            return None
        segment = segments[index]
        if segment.map is CLOSED:
            self._pool.open(segment)
        segment.is_recent = True
        return segment

    def segments_from(self, offset: int) -> Iterator[Segment]:
        """The segments that hold this offset and what follows it, open or not."""
        return (s for s in self.segments if s.base_offset + s.size > offset)

    def open_from(self, offset: int) -> Iterator[Segment]:
        """The same, each opened when its turn comes."""
        for segment in self.segments_from(offset):
            segment.open()
            yield segment

    def roll(self) -> Segment:
        """Add the next segment; the last one counts as full from here on."""
        if not self.segments:
            return self.start_at(0)
        last = self.segments[-1]
        segment = self.start_at(last.base_offset + last.size)
        last.write_position = last.size
        return segment

    def start_at(self, base_offset: int) -> Segment:
        """Add a segment that starts here: the first one, or the one that follows the last.

        `FilesBusyError` or another `OSError` if there cannot be one now; then nothing has changed.
        A path that fails is passed over if there is another one.
        """
        if self._paths is None:
            return self._start_in(self.directory, base_offset)
        failure: OSError | None = None
        for directory in self._paths.candidates(base_offset // self.segment_bytes, self.full_paths):
            try:
                return self._start_in(directory, base_offset)
            except OSError as error:
                failure = failure or error
                if self._disk.exists(directory / segment_name(base_offset)):
                    break  # half a file is left; one elsewhere would be a second of its name
        assert failure is not None
        raise failure

    def has_other_path(self) -> bool:
        """Whether the next segment may be on another disk than the last one."""
        return len(self.growing_directories) > 1

    def _start_in(self, directory: Path, base_offset: int) -> Segment:
        if self._dirty is not None:
            self._dirty.check(directory)
        self._disk.make_directory(directory)
        segment = self._segment(directory, segment_name(base_offset))
        segment.create()
        if self._dirty is not None:
            self._dirty.note(segment)
            self._dirty.note_names(directory)
            if not self.segments:
                self._dirty.note_names(directory.parent, directory.parent.parent)
        else:
            try:
                self._disk.fsync_directory(directory)
            except OSError:
                self._delete(segment)
                raise
        self.segments.append(segment)
        return segment

    def cut(self, offset: int) -> None:
        """Forget everything from `offset` on: later files go, the one it is in is zeroed."""
        while self.segments and self.segments[-1].base_offset >= offset:
            if self.segments[-1].base_offset == offset == self.min_offset:
                break  # an empty first file still tells where the chain begins
            self._delete(self.segments.pop())
        if self.segments and offset < self.max_offset:
            last = self.segments[-1]
            if self._dirty is not None:
                self._dirty.admit(last)
            last.cut(max(0, offset - last.base_offset))

    def drop_first(self) -> bool:
        """Delete the oldest file; False while a view or a sync needs it.

        `OSError` if the disk refuses; then it stays part of the chain, which must have no gap.
        """
        first = self.segments[0]
        if not first.close():
            return False
        self._disk.unlink(first.path)
        del self.segments[0]
        if self._dirty is not None:
            self._dirty.forget(first)
        return True

    def close(self) -> None:
        """Close all files; those that somebody still needs go when they are let go of."""
        for segment in self.segments + self._waiting_for_readers:
            segment.close()
        self.segments.clear()
        self._waiting_for_readers.clear()

    def destroy(self) -> None:
        """Delete all files and the directory."""
        while self.segments:
            self._delete(self.segments.pop())
        for path in self._disk.list_directory(self.directory):
            self._disk.unlink(path)
        if self._dirty is not None:
            self._dirty.forget_directory(self.directory)
        if self._disk.exists(self.directory):
            self._disk.remove_directory(self.directory)

    def _delete(self, segment: Segment) -> None:
        self._disk.unlink(segment.path)
        if not segment.close():
            self._waiting_for_readers.append(segment)
        if self._dirty is not None:
            self._dirty.forget(segment)
        self._waiting_for_readers = [s for s in self._waiting_for_readers if not s.close()]

    def _segment(self, directory: Path, name: str) -> Segment:
        form = Segment if self._dirty is None else QueueSegment
        return form(self._disk, self._pool, directory, name, self.segment_bytes, self._reservation)
