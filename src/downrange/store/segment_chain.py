"""Segments of equal size in one directory, addressed by one running offset."""

from collections.abc import Iterator
from pathlib import Path

from downrange.runtime.disk import Disk
from downrange.store.errors import SegmentMissingError, StoreDamagedError
from downrange.store.log_paths import LogPaths
from downrange.store.segment import Segment, is_segment_name, segment_name


class SegmentChain:
    """The files of a log or of a queue, in order and without a gap.

    Owned by one thread. Only the last segment is written; the others are full.
    """

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        segment_bytes: int,
        *,
        reserve_bytes: int,
        paths: LogPaths | None = None,
    ) -> None:
        self._disk = disk
        self._paths = paths  # where the files are if not all are in `directory`
        self.full_paths: frozenset[Path] = frozenset()  # those that should get no more files
        self.directory = directory
        self.segment_bytes = segment_bytes
        self._reserve_bytes = reserve_bytes
        self.segments: list[Segment] = []
        self.has_short_file = False  # before the last one: somebody has cut it
        # Segments that were removed from the chain while a reader still held a view of them.
        self._waiting_for_readers: list[Segment] = []

    def load(self) -> None:
        """Map the files that are there; `StoreDamagedError` if they cannot be one chain."""
        found = [path for at in self.directories for path in self._disk.list_directory(at)]
        paths = sorted((p for p in found if is_segment_name(p.name)), key=lambda path: path.name)
        # All of them before the first is opened, which may change its length.
        self._check(paths)
        for path in paths:
            self.segments.append(self._open(path, create=False))
            self.segments[-1].write_position = self.segment_bytes

    def _check(self, paths: list[Path]) -> None:
        expected = int(paths[0].name) if paths else 0
        for path in paths:
            base_offset = int(path.name)
            if base_offset % self.segment_bytes:
                raise StoreDamagedError(
                    f"{path} does not continue the files before it with a size of "
                    f"{self.segment_bytes} bytes; if the store was written with another file size, "
                    f"configure that size"
                )
            if self._disk.size(path) > self.segment_bytes:
                raise StoreDamagedError(
                    f"{path} is longer than the configured file size of {self.segment_bytes} bytes;"
                    f" configure the size that the store was written with"
                )
            if base_offset < expected:
                raise StoreDamagedError(
                    f"{path} is there twice: {paths[paths.index(path) - 1]} has the same name; find"
                    " out which of the two is a copy, and move that one away"
                )
            if base_offset != expected:
                raise SegmentMissingError(
                    f"{path} does not follow on the file before it: {segment_name(expected)} is"
                    " missing"
                )
            expected += self.segment_bytes
            is_short = self._disk.size(path) < self.segment_bytes
            self.has_short_file |= is_short and path != paths[-1]

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

    def segment_at(self, offset: int) -> Segment | None:
        """The segment that holds this offset."""
        segments = self.segments
        if not segments:
            return None
        index = (offset - segments[0].base_offset) // self.segment_bytes
        return segments[index] if 0 <= index < len(segments) else None

    def segments_from(self, offset: int) -> Iterator[Segment]:
        """The segments that hold this offset and what follows it."""
        return (s for s in self.segments if s.base_offset + s.size > offset)

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
        self._disk.make_directory(directory)
        path = directory / segment_name(base_offset)
        try:
            segment = self._open(path, create=True)
        except OSError:
            self._disk.unlink(path)  # an empty file of full length would look like a segment
            raise
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
            self.segments[-1].cut(max(0, offset - self.segments[-1].base_offset))

    def drop_first(self) -> bool:
        """Delete the oldest file; False while a reader holds a view of it.

        `OSError` if the disk refuses; then it stays part of the chain, which must have no gap.
        """
        path = self.segments[0].path
        if not self.segments[0].close():
            return False
        try:
            self._disk.unlink(path)
        except OSError:
            self.segments[0] = self._open(path, create=False)
            self.segments[0].write_position = self.segment_bytes
            raise
        del self.segments[0]
        return True

    def close(self) -> None:
        """Unmap all files; those that a reader still holds go when it lets go."""
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
        if self._disk.exists(self.directory):
            self._disk.remove_directory(self.directory)

    def _delete(self, segment: Segment) -> None:
        self._disk.unlink(segment.path)
        if not segment.close():
            self._waiting_for_readers.append(segment)
        self._waiting_for_readers = [s for s in self._waiting_for_readers if not s.close()]

    def _open(self, path: Path, *, create: bool) -> Segment:
        return Segment(
            self._disk,
            path,
            self.segment_bytes,
            reserve_bytes=self._reserve_bytes,
            create=create,
        )
