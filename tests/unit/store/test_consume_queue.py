"""The consume queue; the golden entries come from a RocketMQ 5.5.0 store."""

from pathlib import Path

import pytest
from unit.store.building import StagedDisk, no_space

from downrange.store.consume_queue import FILLER, HOLE_TAG, ConsumeQueue
from downrange.store.store_files import StoreFiles

PER_FILE = 10
FILE_BYTES = PER_FILE * 20
JAVA_ENTRIES = bytes.fromhex(
    "000000000000000000000093000000000027a807000000000000009300000086000000000000000000000000"
    "00000119000000780000000000000000"
)


def new_queue(disk: StagedDisk, root: Path) -> ConsumeQueue:
    return ConsumeQueue(StoreFiles.of(disk), root / "T" / "0", "T", 0, PER_FILE)


def filled(disk: StagedDisk, root: Path, count: int) -> ConsumeQueue:
    """Entries of records of 100 bytes that stand side by side; the tag is the number."""
    queue = new_queue(disk, root)
    for number in range(count):
        queue.put(number * 100, 100, number)
    return queue


def reloaded(queue: ConsumeQueue, disk: StagedDisk, root: Path) -> ConsumeQueue:
    queue.chain.close()
    again = new_queue(disk, root)
    again.load()
    return again


def bounds(queue: ConsumeQueue) -> tuple[int, int]:
    return queue.min_offset, queue.max_offset


def files(queue: ConsumeQueue) -> list[int]:
    return [segment.base_offset // 20 for segment in queue.chain.segments]


def test_entries_are_those_of_java(tmp_path: Path, disk: StagedDisk) -> None:
    queue = new_queue(disk, tmp_path)
    queue.put(0, 0x93, 2_598_919)  # "TagA".hashCode()
    queue.put(0x93, 0x86, 0)
    queue.put(0x119, 0x78, 0)
    path = tmp_path / "T" / "0" / ("0" * 20)
    assert path.read_bytes() == JAVA_ENTRIES + bytes(FILE_BYTES - len(JAVA_ENTRIES))
    again = reloaded(queue, disk, tmp_path)
    assert bounds(again) == (0, 3)
    assert again.entry(0) == (0, 0x93, 2_598_919)


def test_new_queue_has_no_files(tmp_path: Path, disk: StagedDisk) -> None:
    queue = new_queue(disk, tmp_path)
    queue.load()
    assert bounds(queue) == (0, 0)
    assert queue.entries(0, 5) == b""
    assert not (tmp_path / "T").exists()


def test_full_file_is_followed_by_the_next(tmp_path: Path, disk: StagedDisk) -> None:
    queue = filled(disk, tmp_path, 2 * PER_FILE + 1)
    assert files(queue) == [0, 10, 20]
    assert bounds(queue) == (0, 21)
    assert queue.entry(9) == (900, 100, 9)
    assert queue.entry(10) == (1000, 100, 10)
    assert queue.entry(20) == (2000, 100, 20)


def test_entries_end_with_their_file(tmp_path: Path, disk: StagedDisk) -> None:
    queue = filled(disk, tmp_path, PER_FILE + 3)
    assert len(queue.entries(7, 100)) == 3 * 20
    assert len(queue.entries(10, 2)) == 2 * 20
    assert len(queue.entries(10, 100)) == 3 * 20
    assert queue.entries(13, 1) == b""


@pytest.mark.parametrize("count", [1, 9, 10, 11, 20, 25])
def test_load_finds_the_last_entry(tmp_path: Path, disk: StagedDisk, count: int) -> None:
    queue = reloaded(filled(disk, tmp_path, count), disk, tmp_path)
    assert bounds(queue) == (0, count)
    assert queue.next_offset == count
    queue.put(7, 8, 9)
    assert queue.entry(count) == (7, 8, 9)


def test_empty_last_file_is_removed_at_load(tmp_path: Path, disk: StagedDisk) -> None:
    queue = filled(disk, tmp_path, PER_FILE)
    queue.chain.roll()
    queue = reloaded(queue, disk, tmp_path)
    assert files(queue) == [0]
    assert bounds(queue) == (0, PER_FILE)


def test_queue_that_starts_late_is_padded_with_fillers(tmp_path: Path, disk: StagedDisk) -> None:
    queue = new_queue(disk, tmp_path)
    assert queue.restore(23, 5000, 100, 7)
    assert bounds(queue) == (23, 24)
    segment = queue.chain.segments[0]
    assert segment.path.name == f"{20 * 20:020d}"
    assert segment.map[: 3 * 20] == FILLER * 3
    queue = reloaded(queue, disk, tmp_path)
    assert bounds(queue) == (23, 24)
    assert queue.entry(23) == (5000, 100, 7)


def test_filler_is_that_of_java() -> None:
    assert FILLER.hex() == "00000000000000007fffffff0000000000000000"


def test_queue_that_starts_late_at_a_file_needs_no_filler(tmp_path: Path, disk: StagedDisk) -> None:
    queue = new_queue(disk, tmp_path)
    queue.restore(20, 5000, 100, 7)
    assert bounds(reloaded(queue, disk, tmp_path)) == (20, 21)


def test_restore_says_whether_something_was_wrong(tmp_path: Path, disk: StagedDisk) -> None:
    queue = filled(disk, tmp_path, 15)
    assert not queue.restore(3, 300, 100, 3)
    assert queue.restore(3, 301, 99, 4)
    assert queue.entry(3) == (301, 99, 4)
    assert queue.restore(15, 1500, 100, 15)
    assert bounds(queue) == (0, 16)


def test_restore_of_an_entry_whose_file_is_gone_does_nothing(
    tmp_path: Path, disk: StagedDisk
) -> None:
    queue = filled(disk, tmp_path, 15)
    queue.drop_files_below(1200)
    assert not queue.restore(3, 300, 100, 3)
    assert bounds(queue) == (10, 15)


def test_restore_behind_a_gap_leaves_holes(tmp_path: Path, disk: StagedDisk) -> None:
    queue = filled(disk, tmp_path, 8)
    assert queue.restore(12, 2000, 100, 12)
    assert bounds(queue) == (0, 13)
    assert [queue.entry(offset)[2] for offset in range(8, 12)] == [HOLE_TAG] * 4
    assert queue.entry(12) == (2000, 100, 12)


def test_restore_below_the_lower_bound_lowers_it(tmp_path: Path, disk: StagedDisk) -> None:
    queue = new_queue(disk, tmp_path)
    queue.restore(23, 5000, 100, 7)
    queue.restore(22, 4900, 100, 6)
    assert bounds(queue) == (22, 24)


def test_hole_keeps_the_place_of_the_damage(tmp_path: Path, disk: StagedDisk) -> None:
    queue = filled(disk, tmp_path, 3)
    queue.make_hole(1, 100, 1 << 40)
    assert queue.entry(1) == (100, 0x7FFFFFFE, HOLE_TAG)
    assert bounds(queue) == (0, 3)


@pytest.mark.parametrize(
    ("queue_offset", "physical_offset", "possible"),
    [(15, 1500, True), (16, 1491, True), (16, 1490, False), (1 << 40, 1 << 40, False)],
)
def test_log_must_have_room_for_the_messages_between_two_entries(
    tmp_path: Path, disk: StagedDisk, queue_offset: int, physical_offset: int, possible: bool
) -> None:
    queue = filled(disk, tmp_path, 15)  # the last record stands at 1400
    assert queue.can_follow(queue_offset, physical_offset) is possible


def test_full_disk_leaves_the_queue_as_it_was(tmp_path: Path, disk: StagedDisk) -> None:
    queue = filled(disk, tmp_path, PER_FILE)
    disk.on_allocate = no_space
    with pytest.raises(OSError, match="No space left"):
        queue.put(1000, 100, 10)
    assert (files(queue), bounds(queue)) == ([0], (0, 10))
    disk.on_allocate = lambda: None
    queue.put(1000, 100, 10)
    assert queue.entry(10) == (1000, 100, 10)


@pytest.mark.parametrize(
    ("physical_offset", "expected"), [(0, 0), (1, 1), (100, 1), (2000, 20), (2001, 21), (9999, 21)]
)
def test_first_entry_at_or_behind_a_physical_offset(
    tmp_path: Path, disk: StagedDisk, physical_offset: int, expected: int
) -> None:
    assert filled(disk, tmp_path, 21).first_at_or_behind(physical_offset) == expected


def test_lower_bound_passes_messages_that_the_log_has_lost(
    tmp_path: Path, disk: StagedDisk
) -> None:
    queue = filled(disk, tmp_path, 21)
    queue.correct_min(550)
    assert bounds(queue) == (6, 21)
    queue.correct_min(300)  # never goes back
    assert bounds(queue) == (6, 21)
    queue.correct_min(99_999)
    assert bounds(queue) == (21, 21)


def test_files_go_when_their_last_message_is_gone(tmp_path: Path, disk: StagedDisk) -> None:
    queue = filled(disk, tmp_path, 25)
    assert queue.drop_files_below(900) == 0  # the tenth message stands at 900
    assert queue.drop_files_below(901) == 1
    assert (files(queue), bounds(queue)) == ([10, 20], (10, 25))
    assert queue.drop_files_below(99_999) == 1  # the newest stays
    assert (files(queue), bounds(queue)) == ([20], (20, 25))


@pytest.mark.parametrize(
    ("physical_end", "left"), [(2500, 25), (2499, 24), (2001, 20), (2000, 20), (1000, 10), (5, 0)]
)
def test_cut_forgets_messages_behind_the_end_of_the_log(
    tmp_path: Path, disk: StagedDisk, physical_end: int, left: int
) -> None:
    queue = filled(disk, tmp_path, 25)
    assert queue.cut(physical_end) == 25 - left
    assert (bounds(queue), queue.next_offset) == ((0, left), left)
    assert bounds(reloaded(queue, disk, tmp_path)) == (0, left)


def test_cut_of_everything_keeps_the_number_of_the_next_message(
    tmp_path: Path, disk: StagedDisk
) -> None:
    queue = new_queue(disk, tmp_path)
    queue.restore(23, 5000, 100, 7)
    assert queue.cut(0) == 1
    assert (bounds(queue), queue.next_offset) == ((23, 23), 23)


def test_cut_takes_zeroed_entries_at_the_end_along(tmp_path: Path, disk: StagedDisk) -> None:
    queue = filled(disk, tmp_path, 5)
    queue.chain.segments[0].map[3 * 20 : 4 * 20] = bytes(20)
    assert queue.cut(450) == 2  # the last one, and the one before it that is no entry
    assert bounds(queue) == (0, 3)


def test_a_file_that_changed_since_the_last_stop_is_noticed_when_it_is_first_read(
    tmp_path: Path, disk: StagedDisk
) -> None:
    queue = filled(disk, tmp_path, PER_FILE + 5)
    checksums = queue.file_checksums()
    queue = reloaded(queue, disk, tmp_path)
    noticed: list[tuple[int, int]] = []
    queue.on_damaged_file = lambda _, first, count: noticed.append((first, count))
    queue.checksums = dict(checksums)
    queue.put(1, 100, 7)  # what is added later does not count
    queue.entries(0, 1)
    queue.entries(PER_FILE, 1)
    assert noticed == []
    queue.checksums = dict(checksums)
    queue.chain.segments[0].map[19] ^= 1
    queue.entries(PER_FILE, 1)
    assert noticed == []
    queue.entries(0, 1)
    queue.entries(1, 1)
    assert noticed == [(0, PER_FILE)]
