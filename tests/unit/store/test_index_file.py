"""One file of the key index; the golden files come from a RocketMQ 5.5.0 store."""

from pathlib import Path

import pytest
from unit.store.building import StagedDisk, no_space

from downrange.store.index_file import IndexFile, index_file_bytes
from downrange.store.store_files import StoreFiles

SLOTS, ITEMS = 7, 5
# Four keys fill a file of five items: "TopicTest#k1", "#k2", "#T#TagA", then "#k1" again.
K1, K2, TAG = 0x29E6A8, 0x29E6A9, 0x4E293B58
FIRST_MS, SECOND_MS, THIRD_MS = 0x1A1E11B7F66, 0x1A1E11B7F84, 0x1A1E11B7F86
JAVA_FILE_1 = bytes.fromhex(
    "000001a1e11b7f66000001a1e11b7f84000000000000000000000000000000930000000200000005"
    "00000000000000040000000200000000000000000000000000000000"
    "0000000000000000000000000000000000000000"
    "0029e6a800000000000000000000000000000000"
    "0029e6a900000000000000000000000000000000"
    "4e293b5800000000000000000000000000000001"
    "0029e6a800000000000000930000000000000003"
)
JAVA_FILE_2 = bytes.fromhex(
    "000001a1e11b7f86000001a1e11b7f86000000000000019100000000000001910000000100000002"
    "00000000000000010000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000"
    "2659821500000000000001910000000000000000"
) + bytes(60)


def new_file(disk: StagedDisk, folder: Path, slots: int = SLOTS, items: int = ITEMS) -> IndexFile:
    return IndexFile(StoreFiles.of(disk), folder / "20231114221320000", slots, items, create=True)


def full_file(disk: StagedDisk, folder: Path) -> IndexFile:
    file = new_file(disk, folder)
    for key_hash in (K1, K2, TAG):
        file.put(key_hash, 0, FIRST_MS)
    file.put(K1, 0x93, SECOND_MS)
    return file


def found(file: IndexFile, key_hash: int, begin_ms: int = 0, end_ms: int = 1 << 62) -> list[int]:
    return list(file.find(key_hash, begin_ms, end_ms))


def test_file_is_that_of_java(tmp_path: Path, disk: StagedDisk) -> None:
    file = full_file(disk, tmp_path)
    assert file.path.read_bytes() == JAVA_FILE_1
    assert file.is_full


def test_following_file_is_that_of_java(tmp_path: Path, disk: StagedDisk) -> None:
    file = new_file(disk, tmp_path)
    file.begin_behind(0x93, SECOND_MS)
    file.put(0x26598215, 0x191, THIRD_MS)
    assert file.path.read_bytes() == JAVA_FILE_2


def test_java_file_can_be_read(tmp_path: Path, disk: StagedDisk) -> None:
    path = tmp_path / "20261115212718144"
    path.write_bytes(JAVA_FILE_1)
    file = IndexFile(StoreFiles.of(disk), path, SLOTS, ITEMS, create=False)
    assert file.is_sound
    assert found(file, K1) == [0x93, 0]
    assert found(file, K2) == [0]
    assert (file.begin_timestamp, file.end_timestamp) == (FIRST_MS, SECOND_MS)


def test_item_zero_is_never_used(tmp_path: Path, disk: StagedDisk) -> None:
    file = new_file(disk, tmp_path)
    assert (file.count, found(file, 0)) == (1, [])
    file.put(0, 500, FIRST_MS)  # hash 0 of slot 0
    assert (file.count, found(file, 0)) == (2, [500])
    items_start = 40 + SLOTS * 4
    assert file.path.read_bytes()[items_start : items_start + 20] == bytes(20)


def test_keys_of_one_slot_are_told_apart_by_their_hash(tmp_path: Path, disk: StagedDisk) -> None:
    file = new_file(disk, tmp_path, items=20)
    for number, key_hash in enumerate((3, 3 + SLOTS, 3, 3 + 2 * SLOTS, 3 + SLOTS)):
        file.put(key_hash, number * 100, FIRST_MS)
    assert found(file, 3) == [200, 0]
    assert found(file, 3 + SLOTS) == [400, 100]
    assert found(file, 3 + 2 * SLOTS) == [300]
    assert found(file, 3 + 3 * SLOTS) == []
    assert file.slots_used == 1


def test_time_window_is_exact_to_the_second(tmp_path: Path, disk: StagedDisk) -> None:
    file = new_file(disk, tmp_path, items=20)
    for number in range(5):
        file.put(1, number, FIRST_MS + number * 10_000)
    assert found(file, 1, FIRST_MS + 10_000, FIRST_MS + 30_000) == [3, 2, 1]
    assert found(file, 1, FIRST_MS + 10_999, FIRST_MS + 29_999) == [2, 1]
    assert found(file, 1, FIRST_MS + 11_000, FIRST_MS + 19_999) == []


def test_first_key_behind_a_pause_is_found_in_its_own_time(
    tmp_path: Path, disk: StagedDisk
) -> None:
    # Its seconds are counted from the end of the file before, as in RocketMQ.
    file = new_file(disk, tmp_path)
    file.begin_behind(100, FIRST_MS)
    later = FIRST_MS + 3_600_000
    file.put(1, 200, later)
    assert file.path.read_bytes()[40 + SLOTS * 4 + 20 + 12 :][:4] == (3600).to_bytes(4, "big")
    assert found(file, 1, later, later) == [200]
    file.put(2, 300, later + 5_000)
    file.cut(300)
    assert file.end_timestamp == later


@pytest.mark.parametrize(
    ("begin_ms", "end_ms", "expected"),
    [(0, 9, False), (0, 10, True), (12, 13, True), (20, 30, True), (21, 30, False), (0, 99, True)],
)
def test_file_overlaps_a_window(
    tmp_path: Path, disk: StagedDisk, begin_ms: int, end_ms: int, expected: bool
) -> None:
    file = new_file(disk, tmp_path)
    file.put(1, 0, 10)
    file.put(1, 1, 20)
    assert file.overlaps(begin_ms, end_ms) is expected


def test_clock_that_goes_back_counts_as_no_time(tmp_path: Path, disk: StagedDisk) -> None:
    file = new_file(disk, tmp_path)
    file.put(1, 0, FIRST_MS)
    file.put(1, 100, FIRST_MS - 60_000)
    assert found(file, 1, FIRST_MS, FIRST_MS) == [100, 0]


def test_cut_restores_the_chains(tmp_path: Path, disk: StagedDisk) -> None:
    file = new_file(disk, tmp_path, items=20)
    before = []
    for number, key_hash in enumerate((3, 4, 3, 3 + SLOTS, 4, 3)):
        file.sync()
        before.append(file.path.read_bytes())
        file.put(key_hash, number * 100, FIRST_MS + number * 1000)
    for number in reversed(range(1, 6)):
        assert file.cut(number * 100) == 1
        assert file.path.read_bytes() == before[number], number
    assert found(file, 3) == [0]
    assert file.cut(100) == 0


def test_cut_of_everything_leaves_an_empty_file(tmp_path: Path, disk: StagedDisk) -> None:
    file = full_file(disk, tmp_path)
    assert file.cut(0) == 4
    assert (file.count, file.slots_used, file.is_sound) == (1, 0, True)
    assert found(file, K1) == []
    file.put(K1, 700, SECOND_MS)
    assert found(file, K1, SECOND_MS, SECOND_MS) == [700]
    assert (file.begin_offset, file.begin_timestamp) == (700, SECOND_MS)


def test_chain_that_was_damaged_into_a_circle_ends(tmp_path: Path, disk: StagedDisk) -> None:
    file = full_file(disk, tmp_path)
    position = 40 + SLOTS * 4 + 3 * 20 + 16
    file.map[position : position + 4] = (4).to_bytes(4, "big")
    assert found(file, K1) == [0x93]


def test_slot_that_points_nowhere_is_an_empty_one(tmp_path: Path, disk: StagedDisk) -> None:
    file = new_file(disk, tmp_path)
    for value in (99, -1):
        file.map[44:48] = value.to_bytes(4, "big", signed=True)
        assert found(file, 1) == []
    file.put(1, 500, FIRST_MS)
    assert found(file, 1) == [500]


@pytest.mark.parametrize(
    ("position", "value"),
    [(36, 0x7FFFFFFF), (36, 0x80000000), (32, 0x7FFFFFFF), (0, 0x7FFFFFFF), (16, 0x7FFFFFFF)],
)
def test_header_that_cannot_be_is_noticed(
    tmp_path: Path, disk: StagedDisk, position: int, value: int
) -> None:
    data = bytearray(JAVA_FILE_1)
    data[position : position + 4] = value.to_bytes(4, "big")
    path = tmp_path / "20261115212718144"
    path.write_bytes(data)
    file = IndexFile(StoreFiles.of(disk), path, SLOTS, ITEMS, create=False)
    # A count below 1 is an empty file whose slots in use then do not agree with it.
    assert not file.is_sound


def test_checksum_covers_what_is_in_use(tmp_path: Path, disk: StagedDisk) -> None:
    file = full_file(disk, tmp_path)
    before = file.checksum()
    file.map[40 + SLOTS * 4 + 20] ^= 1
    assert file.checksum() != before


def test_full_disk_adds_nothing(tmp_path: Path, disk: StagedDisk) -> None:
    file = new_file(disk, tmp_path)
    disk.on_allocate = no_space
    with pytest.raises(OSError, match="No space left"):
        file.put(1, 100, FIRST_MS)
    assert (file.count, found(file, 1)) == (1, [])


def test_failed_creation_gives_its_descriptor_back(tmp_path: Path, disk: StagedDisk) -> None:
    disk.on_allocate = no_space
    with pytest.raises(OSError, match="No space left"):
        new_file(disk, tmp_path)
    assert disk.open_descriptors == set()


def test_length_of_the_default_file_is_that_of_java() -> None:
    assert index_file_bytes(5_000_000, 20_000_000) == 420_000_040


@pytest.mark.parametrize("written_bytes", range(5))
@pytest.mark.parametrize(("older", "count"), [(100, 600), (0, 255)])
def test_a_slot_that_a_killed_process_wrote_in_part_hides_no_older_key(
    tmp_path: Path, disk: StagedDisk, written_bytes: int, older: int, count: int
) -> None:
    file = new_file(disk, tmp_path, slots=211, items=2_000)
    hashes = [number * 7919 % 1_000_003 for number in range(count + 1)]
    hashes[count] = hashes[older]  # so that the slot has a chain
    items = [(key_hash, number, FIRST_MS) for number, key_hash in enumerate(hashes)]
    for item in items[:count]:
        file.put(*item)
    slot_at = 40 + hashes[count] % 211 * 4
    before = file.map[slot_at : slot_at + 4]
    file.put_all(items[count:])
    after = file.map[slot_at : slot_at + 4]
    assert before[3] != after[3]
    # A number is written from its last byte on.
    file.map[slot_at : slot_at + 4] = before[: 4 - written_bytes] + after[4 - written_bytes :]
    again_from = file.unsure_offset()
    file.cut(again_from)
    for item in items[again_from:]:
        file.put(*item)
    for number, key_hash in enumerate(hashes):
        assert number in found(file, key_hash)
