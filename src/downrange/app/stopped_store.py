"""The files of a broker that does not run, opened to look at; ours or Apache's.

File sizes are read off the files, so that no property file is needed. Only those of an index cannot
be: a file's length does not say how many of its bytes are slots.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

from downrange.broker.settings import BrokerSettings, StoreFileSettings
from downrange.runtime.disk import Disk
from downrange.runtime.settings import SettingsSource
from downrange.store.checkpoint import CheckpointFile
from downrange.store.commit_log import CommitLog
from downrange.store.consume_queue import ENTRY_BYTES
from downrange.store.index_file import index_file_bytes
from downrange.store.json_tables import groups_file, topics_file
from downrange.store.log_paths import SEPARATOR, LogPaths, LogPathsError
from downrange.store.queue_table import QueueTable
from downrange.store.read_only_disk import ReadOnlyDisk
from downrange.store.recovery import dispatched_end
from downrange.store.scanner import Damage, LogScanner, Scanned
from downrange.store.settings import COMMIT_LOG_NAME, StoreSettings
from downrange.store.store_files import StoreFiles
from downrange.store.verify import VerifyReport, verify_stopped


class NoStoreError(Exception):
    """The directory holds no store; the text says what is missing."""


class StoreInUseError(Exception):
    """A broker runs on the store, so what is in its files changes while they are read."""


class StoppedStore:
    """A store for reading. `open` maps its log and queues, `close` lets go; for `with`."""

    def __init__(
        self, directory: Path, config: Path | None = None, commit_log: str | None = None
    ) -> None:
        try:
            self.settings = _settings(directory, config, commit_log)
        except LogPathsError as error:
            raise NoStoreError(f"--commit-log: {error}") from None
        paths = self.settings.log_paths
        if not any(path.is_dir() for path in paths.everywhere):
            names = ", ".join(map(str, paths.everywhere))
            raise NoStoreError(
                f"{directory} is not a store: its commit log is not in {names}; give"
                " storePathRootDir of the broker, and storePathCommitLog with --commit-log if the"
                " log is elsewhere"
            )
        _check_unused(directory / "lock")
        self.damages: list[Damage] = []
        files = StoreFiles.of(ReadOnlyDisk(), self.settings.open_files_max)
        self._log = CommitLog(files, self.settings)
        self.queues = QueueTable(files, self.settings)

    def open(self) -> None:
        """Map the files; a `StoreError` if they cannot be a store."""
        try:
            self._log.load()
            self.queues.load()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the files."""
        self._log.close()
        self.queues.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def facts(self) -> dict[str, str | int | bool | None]:
        """What can be said without reading the log."""
        root, disk = self.settings.root, Disk()
        checkpoint = CheckpointFile(disk, root).load()
        topics = topics_file(disk, self.settings.config_path).load()
        groups = groups_file(disk, self.settings.config_path).load()
        return {
            "directory": str(root),
            "commit_log": SEPARATOR.join(map(str, self.settings.log_paths.everywhere)),
            "stopped_cleanly": not (root / "abort").exists(),
            "log_files": len(self._log.chain.segments),
            "log_file_bytes": self.settings.segment_bytes,
            "min_offset": self._log.min_offset,
            "queue_files_bytes": self.settings.queue_entries * ENTRY_BYTES,
            "index_files": len(_files(self.settings.index_path)),
            "topics": len(topics.topics) if topics is not None else None,
            "groups": len(groups.groups) if groups is not None else None,
            "log_flushed_ms": checkpoint.commit_log_timestamp,
            "queues_flushed_ms": checkpoint.queue_timestamp,
            "index_flushed_ms": checkpoint.index_timestamp,
        }

    def records(self, start: int = 0) -> Iterator[tuple[Scanned, bytes]]:
        """The records of the log from the one at a physical offset on; damage is noted."""
        scanner = LogScanner(
            self._log,
            lambda damage, _: self.damages.append(damage),
            whole_below=dispatched_end(self.queues),
        )
        for scanned in scanner.scan(max(start, self._log.min_offset)):
            view = self._log.view(scanned[0], scanned[1])
            assert view is not None
            with view:
                record = bytes(view)
            yield scanned, record

    def verify(self) -> VerifyReport:
        """Compare everything that is derived from the log with it."""
        return verify_stopped(self.settings)


def _check_unused(lock: Path) -> None:
    """A broker, ours or Apache's, holds a lock on this file for as long as it runs."""
    disk = Disk()
    try:
        descriptor = disk.open_file(lock, create=False)
    except OSError:
        return  # no such file, or not ours to write: nobody can tell
    try:
        disk.lock(descriptor)
    except (BlockingIOError, PermissionError):
        raise StoreInUseError(
            f"{lock.parent} is in use by a broker; stop it first, or look at a copy of the files"
        ) from None
    finally:
        disk.close_file(descriptor)


def _settings(directory: Path, config: Path | None, commit_log: str | None) -> StoreSettings:
    if config is not None:
        source = SettingsSource.from_file(config)
        # Where the broker is reached does not matter to its files.
        files = replace(source.read(StoreFileSettings), root=str(directory))
        if commit_log is not None:
            files = replace(files, commit_log=commit_log)
        return files.store_settings(BrokerSettings(address="127.0.0.1"), 0)
    paths = LogPaths.parse(directory / COMMIT_LOG_NAME, commit_log or "")
    settings = StoreSettings(root=directory, commit_log=paths)
    log = [file for path in paths.everywhere for file in _files(path)]
    queues = sorted(settings.consume_queue_path.glob("*/*/[0-9]*"))
    index = _files(settings.index_path)
    is_usual = index_file_bytes(settings.index_slots, settings.index_items)
    return replace(
        settings,
        segment_bytes=log[0].stat().st_size if log else settings.segment_bytes,
        queue_entries=(
            max(queues[0].stat().st_size // ENTRY_BYTES, 1) if queues else settings.queue_entries
        ),
        index_enabled=all(path.stat().st_size == is_usual for path in index),
    )


def _files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if path.name.isdecimal())
