"""The log: records one after the other, a blank where one does not fit."""

from pathlib import Path

import pytest
from unit.store.building import StagedDisk, no_space, small_settings

from downrange.store.commit_log import CommitLog
from downrange.store.store_files import StoreFiles

SIZE = 200
BLANK_MAGIC = bytes.fromhex("cbd43194")


def new_log(disk: StagedDisk, root: Path) -> CommitLog:
    log = CommitLog(StoreFiles.of(disk), small_settings(root, segment_bytes=SIZE))
    log.load()
    return log


def write(log: CommitLog, data: bytes) -> int:
    offset = log.place(len(data))
    log.write(data[:4], data[4:])
    return offset


def test_record_stands_where_its_place_was_said_to_be(tmp_path: Path, disk: StagedDisk) -> None:
    log = new_log(disk, tmp_path)
    assert write(log, b"a" * 50) == 0
    assert log.place(30) == 50  # asking changes nothing
    assert write(log, b"b" * 30) == 50
    view = log.view(50, 30)
    assert view is not None
    assert view.tobytes() == b"b" * 30
    assert (log.min_offset, log.max_offset) == (0, 80)


def test_record_that_leaves_eight_bytes_stays_in_the_file(tmp_path: Path, disk: StagedDisk) -> None:
    log = new_log(disk, tmp_path)
    assert write(log, b"a" * (SIZE - 8)) == 0
    assert write(log, b"b" * 20) == SIZE
    assert log.chain.segments[0].map[-8:] == b"\0\0\0\x08" + BLANK_MAGIC


def test_record_that_leaves_seven_bytes_opens_the_next_file(
    tmp_path: Path, disk: StagedDisk
) -> None:
    log = new_log(disk, tmp_path)
    write(log, b"a" * 10)
    assert write(log, b"b" * (SIZE - 17)) == SIZE
    full = log.chain.segments[0]
    left = SIZE - 10
    assert full.map[10:] == left.to_bytes(4, "big") + BLANK_MAGIC + bytes(left - 8)
    assert log.max_offset == SIZE + SIZE - 17


def test_full_disk_at_a_new_file_changes_nothing(tmp_path: Path, disk: StagedDisk) -> None:
    log = new_log(disk, tmp_path)
    write(log, b"a" * 100)
    disk.on_allocate = no_space
    with pytest.raises(OSError, match="No space left"):
        log.place(150)
    assert log.max_offset == 100
    assert [path.name for path in log.chain.directory.iterdir()] == ["0" * 20]
    assert write(log, b"c" * 20) == 100  # what fits into the file is still taken
    disk.on_allocate = lambda: None
    assert write(log, b"b" * 150) == SIZE


def test_no_room_for_the_blank_changes_nothing_either(tmp_path: Path, disk: StagedDisk) -> None:
    log = new_log(disk, tmp_path)
    write(log, b"a" * 100)
    log.close()
    log = new_log(disk, tmp_path)
    log.cut(100)
    allocations = len(disk.allocations)

    def no_space_in_the_old_file() -> None:
        if len(disk.allocations) == allocations + 1:
            no_space()

    disk.on_allocate = no_space_in_the_old_file
    with pytest.raises(OSError, match="No space left"):
        log.place(150)
    assert log.max_offset == 100
    assert len(log.chain.segments) == 1
    assert write(log, b"b" * 150) == SIZE
    assert log.chain.segments[0].map[100:108] == b"\0\0\0\x64" + BLANK_MAGIC


def test_log_whose_last_file_was_full_goes_on_in_a_new_one(
    tmp_path: Path, disk: StagedDisk
) -> None:
    log = new_log(disk, tmp_path)
    write(log, b"a" * 100)
    log.close()
    log = new_log(disk, tmp_path)
    assert log.max_offset == SIZE  # recovery has not said yet where it ends
    assert write(log, b"b" * 20) == SIZE


def test_bytes_that_the_log_does_not_hold_cannot_be_viewed(
    tmp_path: Path, disk: StagedDisk
) -> None:
    log = new_log(disk, tmp_path)
    write(log, b"a" * 100)
    assert log.view(-1, 1) is None
    assert log.view(90, 11) is None
    assert log.view(0, -1) is None
    assert log.view(SIZE, 1) is None
    assert log.view(90, 10) is not None


def test_cut_log_goes_on_where_it_was_cut(tmp_path: Path, disk: StagedDisk) -> None:
    log = new_log(disk, tmp_path)
    write(log, b"a" * 50)
    write(log, b"b" * 50)
    write(log, b"c" * 150)
    log.cut(50)
    assert log.max_offset == 50
    assert write(log, b"d" * 10) == 50
    assert log.chain.segments[0].map[:] == b"a" * 50 + b"d" * 10 + bytes(SIZE - 60)


def test_next_file_offset(tmp_path: Path, disk: StagedDisk) -> None:
    log = new_log(disk, tmp_path)
    assert [log.next_file_offset(offset) for offset in (0, 199, 200)] == [200, 200, 400]
