"""Memory ahead of the writer is fetched in time, and only for a writer that is busy."""

from pathlib import Path

import pytest
from unit.store.building import StagedDisk, no_space, small_settings

from downrange.store.commit_log import CommitLog
from downrange.store.runway import AHEAD_BYTES, QUIET_BYTES, STRETCH_BYTES, Runway
from downrange.store.settings import MIB
from downrange.store.store_files import StoreFiles

FILE_BYTES = 64 * MIB


class FetchingDisk(StagedDisk):
    """Notes what is fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[tuple[int, int]] = []

    def fetch(self, descriptor: int, offset: int, length: int) -> None:
        super().fetch(descriptor, offset, length)
        self.fetched.append((offset, offset + length))


def write(log: CommitLog, size: int) -> None:
    log.place(size)
    log.write(b"head", bytes(size - 4))


@pytest.fixture
def disk() -> FetchingDisk:
    return FetchingDisk()


@pytest.fixture
def log(tmp_path: Path, disk: FetchingDisk) -> CommitLog:
    log = CommitLog(StoreFiles.of(disk), small_settings(tmp_path, segment_bytes=FILE_BYTES))
    log.load()
    return log


def run_all(runway: Runway) -> None:
    while (stretch := runway.next_stretch()) is not None:
        stretch()


def test_an_empty_or_quiet_log_keeps_no_memory_ready(log: CommitLog, disk: FetchingDisk) -> None:
    runway = Runway(log)
    assert runway.next_stretch() is None
    write(log, QUIET_BYTES)
    assert runway.next_stretch() is None  # it stood here when the runway first looked
    write(log, QUIET_BYTES - 1)
    assert runway.next_stretch() is None
    assert disk.fetched == []


def test_what_lies_ahead_is_fetched_once_and_in_order(log: CommitLog, disk: FetchingDisk) -> None:
    write(log, 100)
    runway = Runway(log)
    runway.next_stretch()
    write(log, QUIET_BYTES)
    position = log.max_offset
    run_all(runway)
    assert disk.fetched[0] == (position, position + STRETCH_BYTES)
    ends = [end for _, end in disk.fetched]
    assert [start for start, _ in disk.fetched[1:]] == ends[:-1]
    assert ends[-1] >= position + AHEAD_BYTES
    count = len(disk.fetched)
    write(log, STRETCH_BYTES)
    run_all(runway)
    assert len(disk.fetched) == count + 1
    assert disk.fetched[-1][0] == ends[-1]


def test_a_writer_that_was_faster_is_not_followed(log: CommitLog, disk: FetchingDisk) -> None:
    write(log, 100)
    runway = Runway(log)
    runway.next_stretch()
    write(log, 10 * MIB)
    stretch = runway.next_stretch()
    assert stretch is not None
    write(log, 20 * MIB)
    stretch()
    run_all(runway)
    assert disk.fetched[1][0] == log.max_offset


def test_nothing_is_fetched_behind_the_end_of_the_file(log: CommitLog, disk: FetchingDisk) -> None:
    write(log, 100)
    runway = Runway(log)
    runway.next_stretch()
    write(log, FILE_BYTES - 3 * MIB)
    run_all(runway)
    assert disk.fetched == [(log.max_offset, FILE_BYTES)]
    write(log, 4 * MIB)  # opens the next file, whose writer is not busy yet
    assert runway.next_stretch() is None


def test_a_full_disk_is_left_to_who_appends(log: CommitLog, disk: FetchingDisk) -> None:
    write(log, 100)
    runway = Runway(log)
    runway.next_stretch()
    write(log, 15 * MIB)
    disk.on_allocate = no_space
    assert runway.next_stretch() is None
    assert disk.fetched == []
