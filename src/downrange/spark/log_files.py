"""The files of a commit log as a reader meets them: on this machine or behind an address.

A path is a folder of this machine, or an address that pyarrow.fs understands (file:, s3:, hdfs:,
gs:). It names a store, with the folder `commitlog` in it, or that folder itself.
"""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.fs as pafs

from downrange.store.log_paths import SEPARATOR
from downrange.store.segment import is_segment_name

COMMIT_LOG: Final = "commitlog"
_BLOCK_BYTES: Final = 8 * 1024 * 1024
Data = bytes | memoryview


class LogFileError(Exception):
    """A store that is not there or cannot be read; the text says which and why."""


class LogBytes(Protocol):
    """The bytes of one file."""

    size: int

    def view(self, start: int, end: int) -> Data:
        """The bytes from `start` to `end`."""
        ...

    def find(self, pattern: bytes, start: int, end: int) -> int:
        """Where a pattern begins that lies within these bounds; -1 if it does not."""
        ...


class LogFile:
    """A file of a log: where it is, and which offset its first byte has."""

    __slots__ = ("base_offset", "path", "size")

    def __init__(self, path: str, base_offset: int, size: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.size = size

    @property
    def name(self) -> str:
        """Its name in the folder."""
        return self.path.rsplit("/", 1)[-1]


class LogFolder:
    """The folders of a commit log; the same text finds them on the driver and in each task.

    A log that is spread over several folders (storePathCommitLog) is named with commas between.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._folders = [_resolved(part) for part in _split(path)]
        except (pa.ArrowException, OSError, ValueError) as error:
            raise LogFileError(f"path {path!r} cannot be read: {error}") from error

    def files(self) -> list[LogFile]:
        """The files in the order of their offsets."""
        found: list[LogFile] = []
        try:
            for files, root in self._folders:
                found += _listed(files, f"{root}/{COMMIT_LOG}") or _listed(files, root)
        except OSError as error:
            raise LogFileError(f"path {self._path!r} cannot be read: {error}") from error
        if found:
            return sorted(found, key=lambda file: file.base_offset)
        raise LogFileError(
            f"path {self._path!r} holds no commit log: neither it nor its folder {COMMIT_LOG!r} "
            f"has a file with a name of 20 digits"
        )

    def open(self, file: LogFile) -> LogBytes:
        """The bytes of a file."""
        files = next(one for one, root in self._folders if file.path.startswith(f"{root}/"))
        try:
            if isinstance(files, pafs.LocalFileSystem):
                return _MappedBytes(Path(file.path))
            return _RemoteBytes(files.open_input_file(file.path), file.size)
        except OSError as error:
            raise LogFileError(f"{file.path} cannot be read: {error}") from error


class _MappedBytes:
    """A file of this machine, mapped; holes in it are not looked at."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            self._extents = list(_extents(file.fileno(), self.size))
            length = self.size
            self._map = mmap.mmap(file.fileno(), length, prot=mmap.PROT_READ) if length else b""
        self._view = memoryview(self._map)

    def view(self, start: int, end: int) -> Data:
        return self._view[start:end]

    def find(self, pattern: bytes, start: int, end: int) -> int:
        for first, last in self._extents:
            if last <= start or first >= end:
                continue
            # A pattern may begin right before a hole and end in it.
            found = self._map.find(
                pattern, max(first - len(pattern), start, 0), min(last + len(pattern), end)
            )
            if found >= 0:
                return found
        return -1


class _RemoteBytes:
    """A file behind an address, read in blocks."""

    def __init__(self, file: pa.NativeFile, size: int) -> None:
        self._file = file
        self.size = size

    def view(self, start: int, end: int) -> Data:
        data: bytes = self._file.read_at(end - start, start)
        return data

    def find(self, pattern: bytes, start: int, end: int) -> int:
        position = start
        while position < end:
            stop = min(position + _BLOCK_BYTES, end)
            found = bytes(self.view(position, stop)).find(pattern)
            if found >= 0:
                return position + found
            if stop == end:
                break
            position = stop - len(pattern) + 1
        return -1


def _listed(files: pafs.FileSystem, folder: str) -> list[LogFile]:
    if files.get_file_info(folder).type != pafs.FileType.Directory:
        return []
    infos = files.get_file_info(pafs.FileSelector(folder))
    return [
        LogFile(info.path, int(info.base_name), info.size)
        for info in infos
        if info.type == pafs.FileType.File and is_segment_name(info.base_name)
    ]


def _split(path: str) -> list[str]:
    """The parts of a list of paths; a folder with a comma in its name is one."""
    if Path(path.strip()).is_dir():
        return [path]
    return [part for part in path.split(SEPARATOR) if part.strip()] or [path]


def _resolved(path: str) -> tuple[pafs.FileSystem, str]:
    text = path.strip()
    if text.startswith("file:") and not text.startswith("file://"):
        text = "file://" + text.removeprefix("file:")  # as Hadoop writes it
    if "://" in text:
        files, root = pafs.FileSystem.from_uri(text)
    else:
        files, root = pafs.LocalFileSystem(), str(Path(text).absolute())
    return files, root.rstrip("/")


def _extents(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Where a file has data, as far as the file system tells."""
    position = 0
    while position < size:
        try:
            start = os.lseek(descriptor, position, os.SEEK_DATA)
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
        except OSError:  # no data any more
            return
        yield start, end
        position = end
