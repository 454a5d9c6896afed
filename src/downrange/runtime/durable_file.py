"""A small file that is always whole: replaced in one step, with its predecessor as a backup.

    name        the current content
    name.bak    the content before it, which RocketMQ also reads when `name` is missing or empty
    name.tmp    the next content while it is being written; left over only after a crash

Replacing: write `.tmp` and sync it, move the current file to `.bak`, move `.tmp` to its place, sync
the directory. After a crash at any point `name` or `.bak` is whole, and nothing that `replace` has
returned for is lost.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from downrange.runtime.disk import Disk

_log = logging.getLogger(__name__)

Content = TypeVar("Content")

BACKUP_SUFFIX = ".bak"
TEMPORARY_SUFFIX = ".tmp"


class DurableFileError(Exception):
    """Neither the file nor its backup can be read; the text names both and says why."""


class DurableFile(Generic[Content]):
    """One file, read through `parse`, which raises one of `parse_errors` for damaged content.

    Owned by one part; `load` and `replace` must not run at the same time. When `replace` returns
    the new content is durable; when it raises an `OSError` the file holds the old or the new
    content, in `name` or in `.bak`, and `replace` may be called again.
    """

    def __init__(
        self,
        disk: Disk,
        path: Path,
        parse: Callable[[bytes], Content],
        parse_errors: tuple[type[Exception], ...] = (ValueError,),
    ) -> None:
        self._disk = disk
        self._parse = parse
        self._parse_errors = parse_errors
        self._is_sound = False  # whether the current file is known to be worth a backup
        self.path = path
        self.backup_path = path.with_name(path.name + BACKUP_SUFFIX)
        self._temporary_path = path.with_name(path.name + TEMPORARY_SUFFIX)

    def load(self) -> Content | None:
        """The content, from the backup if need be; None if there is nothing to read in either.

        Damage without a sound backup is a `DurableFileError`, and a file that cannot be read an
        `OSError`, unlike in RocketMQ, which then starts with empty tables and overwrites what could
        still have been saved. What the backup has to replace, and an empty file, are logged.
        """
        problems: list[str] = []
        for path in (self.path, self.backup_path):
            if not self._disk.exists(path):
                continue
            data = self._disk.read(path)
            if not data:
                _log.warning("%s is empty: taken as missing", path)
                continue
            try:
                content = self._parse(data)
            except self._parse_errors as error:
                problems.append(f"{path}: {error}")
                continue
            self._is_sound = path == self.path
            if not self._is_sound:
                reason = "; ".join(problems) or f"{self.path} is missing or empty"
                level = logging.ERROR if problems else logging.WARNING
                _log.log(level, "%s is used, it may be out of date: %s", path, reason)
            return content
        if problems:
            raise DurableFileError("; ".join(problems))
        return None

    def replace(self, data: bytes) -> None:
        """Make `data` the content; durable when this returns."""
        if not data:
            raise ValueError(f"{self.path} cannot become empty: an empty file counts as missing")
        self._disk.write(self._temporary_path, data)
        # A damaged file must not take the place of the last good backup.
        if self._disk.exists(self.path) and (self._is_sound or self._can_be_parsed()):
            self._disk.rename(self.path, self.backup_path)
        self._disk.rename(self._temporary_path, self.path)
        self._disk.fsync_directory(self.path.parent)
        self._is_sound = True

    def _can_be_parsed(self) -> bool:
        data = self._disk.read(self.path)
        try:
            self._parse(data)
        except self._parse_errors:
            return False
        return bool(data)
