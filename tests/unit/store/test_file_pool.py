"""Files are open while they are used, and not many at a time."""

import errno
from pathlib import Path

import pytest

from downrange.store.file_pool import FilePool
from downrange.store.mapped_file import MappedFile
from downrange.testing.faulty_disk import FaultyDisk

SIZE = 64


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


def files(disk: FaultyDisk, pool: FilePool, folder: Path, count: int) -> list[MappedFile]:
    made = [MappedFile(disk, pool, folder, f"file-{number}", SIZE) for number in range(count)]
    for file in made:
        file.path.write_bytes(bytes(SIZE))
    return made


def open_names(made: list[MappedFile]) -> list[int]:
    return [number for number, file in enumerate(made) if file.is_open]


def test_no_more_files_are_open_than_the_limit(tmp_path: Path, disk: FaultyDisk) -> None:
    pool = FilePool(3)
    made = files(disk, pool, tmp_path, 10)
    for file in made:
        file.open()
        assert file.map[:] == bytes(SIZE)
        assert len(pool) <= 3
    assert disk.calls["open_file"] - disk.calls["close_file"] == 3
    pool.close()
    assert disk.calls["open_file"] == disk.calls["close_file"]


def test_the_file_that_is_used_again_and_again_stays_open(tmp_path: Path, disk: FaultyDisk) -> None:
    pool = FilePool(3)
    made = files(disk, pool, tmp_path, 30)
    opens = 0
    for file in made[1:]:
        opens += not made[0].is_open
        made[0].open()
        file.open()
    assert opens <= 2  # at first all files look alike


def test_a_closed_file_raises_instead_of_crashing(tmp_path: Path, disk: FaultyDisk) -> None:
    (file,) = files(disk, FilePool(3), tmp_path, 1)
    file.open()
    assert file.close()
    with pytest.raises(ValueError, match="closed"):
        file.map[0]


def test_files_with_unsynced_bytes_views_or_a_sync_in_flight_stay_open(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    pool = FilePool(3)
    made = files(disk, pool, tmp_path, 8)
    for file in made[:3]:
        file.open()
    made[0].is_dirty = True
    made[1].pins = 1
    view = memoryview(made[2].map)
    for file in made[3:]:
        file.open()
    assert open_names(made) == [0, 1, 2, 7]
    made[0].is_dirty = False
    made[1].pins = 0
    view.release()
    for file in made[3:6]:
        file.open()
    assert len(pool) == 3


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_without_descriptors_idle_files_are_closed_and_the_open_is_tried_again(
    tmp_path: Path, disk: FaultyDisk, error: int
) -> None:
    pool = FilePool(100)
    made = files(disk, pool, tmp_path, 40)
    for file in made[:39]:
        file.open()
    made[0].is_dirty = True
    disk.fail("open_file", error, times=1)
    made[39].open()
    assert made[39].is_open
    assert made[0].is_open
    assert len(pool) <= 100 - 16


def test_other_errors_of_an_open_are_the_callers(tmp_path: Path, disk: FaultyDisk) -> None:
    pool = FilePool(100)
    made = files(disk, pool, tmp_path, 3)
    made[0].open()
    disk.fail("map", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        made[1].open()
    assert open_names(made) == [0]
    assert disk.calls["open_file"] - disk.calls["close_file"] == 1
