"""One mapped file of a chain."""

from pathlib import Path

import pytest
from unit.store.building import StagedDisk, no_space

from downrange.runtime.disk import Disk
from downrange.store.file_pool import FilePool
from downrange.store.read_only_disk import ReadOnlyDisk
from downrange.store.segment import Reservation, Segment, is_segment_name, segment_name

SIZE = 4096


def create(disk: StagedDisk, folder: Path, reserve_bytes: int = 1000) -> Segment:
    segment = closed_segment(disk, folder / segment_name(SIZE), reserve_bytes=reserve_bytes)
    segment.create()
    return segment


def closed_segment(
    disk: Disk, path: Path, size: int = SIZE, *, reserve_bytes: int = 1000
) -> Segment:
    return Segment(
        disk, FilePool(4), path.parent, path.name, size, Reservation(reserve_bytes, reserve_bytes)
    )


def test_name_is_the_first_offset_in_twenty_digits() -> None:
    assert segment_name(1 << 30) == "00000000001073741824"
    assert is_segment_name("00000000001073741824")


@pytest.mark.parametrize(
    "name", ["1073741824", "0000000000107374182x", "", "0" * 21, "\u0660" * 20]
)
def test_other_names_are_not_those_of_segments(name: str) -> None:
    assert not is_segment_name(name)


def test_new_file_has_its_full_length_and_is_empty(tmp_path: Path, disk: StagedDisk) -> None:
    segment = create(disk, tmp_path)
    assert segment.path.stat().st_size == SIZE
    assert (segment.base_offset, segment.end_offset, segment.write_position) == (SIZE, SIZE, 0)
    assert segment.map[:] == bytes(SIZE)


def test_append_moves_the_end(tmp_path: Path, disk: StagedDisk) -> None:
    segment = create(disk, tmp_path)
    segment.append(b"abc")
    segment.append(b"de")
    assert segment.map[:5] == b"abcde"
    assert (segment.write_position, segment.end_offset) == (5, SIZE + 5)


def test_blocks_are_reserved_in_steps_and_never_beyond_the_file(
    tmp_path: Path, disk: StagedDisk
) -> None:
    segment = create(disk, tmp_path)
    segment.append(bytes(1001))
    segment.append(bytes(100))  # has been reserved with the one before
    segment.append(bytes(2900))
    assert disk.allocations == [(0, 1000), (1000, 1000), (2000, 2001)]
    segment.append(bytes(95))
    assert disk.allocations[3:] == [(4001, 95)]
    assert segment.reserved == SIZE


def test_full_disk_is_an_error_before_anything_is_written(tmp_path: Path, disk: StagedDisk) -> None:
    segment = create(disk, tmp_path)
    disk.on_allocate = no_space
    with pytest.raises(OSError, match="No space left"):
        segment.append(b"x" * 1001)
    assert (segment.write_position, segment.reserved) == (0, 1000)
    assert segment.map[:] == bytes(SIZE)


def test_failed_creation_gives_its_descriptor_back(tmp_path: Path, disk: StagedDisk) -> None:
    disk.on_allocate = no_space
    with pytest.raises(OSError, match="No space left"):
        create(disk, tmp_path)
    assert disk.open_descriptors == set()


def test_file_that_is_too_short_is_extended_with_zeros(tmp_path: Path, disk: StagedDisk) -> None:
    path = tmp_path / segment_name(0)
    path.write_bytes(b"abc")
    segment = closed_segment(disk, path)
    segment.open()
    assert segment.map[:] == b"abc" + bytes(SIZE - 3)


def test_cut_erases_what_is_behind_it(tmp_path: Path, disk: StagedDisk) -> None:
    segment = create(disk, tmp_path, SIZE)
    segment.append(b"x" * 3000)
    segment.cut(5)
    assert segment.map[:] == b"xxxxx" + bytes(SIZE - 5)
    assert (segment.write_position, segment.reserved) == (5, 5)
    segment.append(b"y")
    assert segment.map[:7] == b"xxxxxy\0"


def test_close_waits_for_who_looks_at_it(tmp_path: Path, disk: StagedDisk) -> None:
    segment = create(disk, tmp_path)
    view = memoryview(segment.map)[:4]
    assert not segment.close()
    assert view.tobytes() == bytes(4)
    view.release()
    del view
    assert segment.close()
    assert disk.open_descriptors == set()


def test_extents_cover_what_was_written(tmp_path: Path, disk: StagedDisk) -> None:
    path = tmp_path / segment_name(0)
    size = 1 << 22
    segment = closed_segment(disk, path, size)
    segment.create()
    segment.map[3 << 20] = 1
    extents = segment.data_extents(1)
    assert any(start <= 3 << 20 < stop for start, stop in extents)
    assert all(1 <= start < stop <= size for start, stop in extents)


def test_read_only_segment_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / segment_name(0)
    path.write_bytes(bytes(SIZE))
    segment = closed_segment(ReadOnlyDisk(), path)
    segment.open()
    with pytest.raises(TypeError):
        segment.map[0] = 1
