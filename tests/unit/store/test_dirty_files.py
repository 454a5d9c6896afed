"""Files with unsynced bytes: bounded, synced before they are closed, and not trusted too early."""

import errno
from contextlib import suppress
from pathlib import Path

import pytest

from downrange.store.dirty_files import DirtyFiles, FilesBusyError
from downrange.store.file_pool import FilePool
from downrange.store.mapped_file import MappedFile
from downrange.testing.faulty_disk import FaultyDisk

SIZE = 64
FILES_MAX = 4


class Files:
    """Files of topics, a pool that keeps eight open, of which four may be dirty."""

    def __init__(self, folder: Path) -> None:
        self.disk = FaultyDisk()
        self.pool = FilePool(8)
        self.dirty = DirtyFiles(self.disk, FILES_MAX)
        self._folder = folder

    def make(self, topic: str, queue_id: int) -> MappedFile:
        directory = self._folder / topic / str(queue_id)
        directory.mkdir(parents=True)
        (directory / "0").write_bytes(bytes(SIZE))
        return MappedFile(self.disk, self.pool, directory, "0", SIZE)

    def sync(self) -> None:
        batch = self.dirty.begin_sync()
        for sync in batch.syncs:
            sync()
        self.dirty.end_sync(batch)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_one_topic_takes_half_and_others_the_rest(files: Files) -> None:
    for queue_id in range(2):
        files.dirty.admit(files.make("wide", queue_id))
    with pytest.raises(FilesBusyError):
        files.dirty.admit(files.make("wide", 2))
    for topic in ("a", "b"):
        files.dirty.admit(files.make(topic, 0))
    with pytest.raises(FilesBusyError):
        files.dirty.admit(files.make("c", 0))
    before = files.dirty.needs_sync
    files.sync()
    assert (before, files.dirty.needs_sync) == (True, False)
    files.dirty.admit(files.make("wide", 3))


def test_several_wide_topics_leave_room_for_another(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.dirty.files_max = 12
    for number in range(100):
        for topic in ("wide", "wider", "widest"):
            with suppress(FilesBusyError):
                files.dirty.admit(files.make(topic, number))
    assert not files.dirty.is_full
    files.dirty.admit(files.make("ordinary", 0))


def test_a_busy_queue_of_a_wide_topic_goes_on(files: Files) -> None:
    busy = files.make("wide", 0)
    busy.open()
    for queue_id in (1, 2):
        files.dirty.admit(files.make("wide", queue_id))
    files.dirty.admit(busy)
    assert busy.is_dirty


def test_a_file_that_is_refused_was_not_touched(files: Files) -> None:
    for queue_id in range(2):
        files.dirty.admit(files.make("wide", queue_id))
    refused = files.make("wide", 2)
    before = files.disk.calls["open_file"]
    with pytest.raises(FilesBusyError):
        files.dirty.admit(refused)
    assert (files.disk.calls["open_file"], refused.is_open) == (before, False)


def test_what_is_written_during_a_sync_is_for_the_next_one(files: Files) -> None:
    file = files.make("a", 0)
    files.dirty.admit(file)
    batch = files.dirty.begin_sync()
    assert (file.is_dirty, file.close()) == (False, False)  # a thread may be syncing it
    files.dirty.admit(file)
    for sync in batch.syncs:
        sync()
    files.dirty.end_sync(batch)
    assert file.is_dirty
    assert len(files.dirty) == 1


def test_a_failed_batch_is_synced_again_with_its_names(files: Files) -> None:
    file = files.make("a", 0)
    files.dirty.admit(file)
    files.dirty.note_names(file.directory)
    files.disk.fail("sync", errno.EIO)
    batch = files.dirty.begin_sync()
    with pytest.raises(OSError, match="Input/output"):
        batch.syncs[0]()
    files.dirty.end_sync(batch)
    assert (file.is_dirty, file.is_open) == (True, True)
    again = files.dirty.begin_sync()
    assert (again.files, again.directories) == ([file], [file.directory])


def test_while_nobody_is_served_a_writer_syncs_in_line(files: Files) -> None:
    files.dirty.may_block = True
    for queue_id in range(20):
        files.dirty.admit(files.make("wide", queue_id))
    assert files.disk.calls["sync"] >= 18
    assert len(files.pool) <= 8


def test_a_directory_that_was_deleted_does_not_fail_the_batch(files: Files) -> None:
    file = files.make("gone", 0)
    files.dirty.admit(file)
    files.dirty.note_names(file.directory, file.directory.parent)
    batch = files.dirty.begin_sync()
    file.path.unlink()
    file.directory.rmdir()
    for sync in batch.syncs:
        sync()
    files.dirty.end_sync(batch)
    assert batch.is_synced


def test_files_of_a_killed_process_are_synced_without_staying_open(files: Files) -> None:
    left = [files.make("old", queue_id) for queue_id in range(600)]
    for file in left:
        files.dirty.doubt(file)
    first = files.dirty.begin_sync()
    assert (len(first.files), first.is_all) == (512, False)
    for sync in first.syncs:
        sync()
    files.dirty.end_sync(first)
    assert files.disk.calls["sync"] == 512
    second = files.dirty.begin_sync()
    assert (len(second.files), second.is_all) == (88, True)
    assert len(files.pool) == 0
