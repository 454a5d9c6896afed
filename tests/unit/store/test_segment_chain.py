"""Segments of equal size, one after the other."""

from pathlib import Path

import pytest
from unit.store.building import StagedDisk, no_space

from downrange.store.errors import StoreDamagedError
from downrange.store.file_pool import FilePool
from downrange.store.segment import Reservation, segment_name
from downrange.store.segment_chain import SegmentChain

SIZE = 100


def new_chain(disk: StagedDisk, folder: Path) -> SegmentChain:
    return chain_of(disk, folder / "chain", SIZE)


def chain_of(disk: StagedDisk, directory: Path, size: int) -> SegmentChain:
    return SegmentChain(
        disk, directory, size, reservation=Reservation(size, size), pool=FilePool(100)
    )


def filled_chain(disk: StagedDisk, folder: Path, offset: int, first: int = 0) -> SegmentChain:
    chain = new_chain(disk, folder)
    chain.start_at(first)
    while chain.max_offset < offset:
        if chain.segments[-1].write_position == SIZE:
            chain.roll()
        segment = chain.segments[-1]
        segment.append(b"x" * min(SIZE, offset - segment.base_offset))
    return chain


def names(chain: SegmentChain) -> list[int]:
    return sorted(int(path.name) for path in chain.directory.iterdir())


def test_empty_chain_begins_and_ends_at_zero(tmp_path: Path, disk: StagedDisk) -> None:
    chain = new_chain(disk, tmp_path)
    chain.load()
    assert (chain.min_offset, chain.max_offset, chain.segment_at(0)) == (0, 0, None)


def test_roll_adds_files_named_by_their_first_offset(tmp_path: Path, disk: StagedDisk) -> None:
    chain = new_chain(disk, tmp_path)
    chain.roll()
    chain.roll()
    assert names(chain) == [0, 100]
    assert (chain.min_offset, chain.max_offset) == (0, 100)


def test_load_takes_all_files_as_full(tmp_path: Path, disk: StagedDisk) -> None:
    filled_chain(disk, tmp_path, 330, first=100).close()
    chain = new_chain(disk, tmp_path)
    (chain.directory / "notes.txt").write_text("not ours")
    chain.load()
    assert [segment.base_offset for segment in chain.segments] == [100, 200, 300]
    assert (chain.min_offset, chain.max_offset) == (100, 400)


def test_gap_between_files_is_damage(tmp_path: Path, disk: StagedDisk) -> None:
    chain = filled_chain(disk, tmp_path, 250)
    chain.close()
    (chain.directory / segment_name(100)).unlink()
    with pytest.raises(StoreDamagedError, match=r"00200 does not follow on .*: 0+100 is"):
        new_chain(disk, tmp_path).load()


def test_other_file_size_is_noticed(tmp_path: Path, disk: StagedDisk) -> None:
    filled_chain(disk, tmp_path, 250).close()
    smaller = chain_of(disk, tmp_path / "chain", 50)
    with pytest.raises(StoreDamagedError, match="longer than the configured file size of 50"):
        smaller.load()
    larger = chain_of(disk, tmp_path / "chain", 300)
    with pytest.raises(StoreDamagedError, match="configure that size"):
        larger.load()


@pytest.mark.parametrize(
    ("offset", "base"), [(99, None), (100, 100), (199, 100), (200, 200), (299, 200), (300, None)]
)
def test_segment_of_an_offset(
    tmp_path: Path, disk: StagedDisk, offset: int, base: int | None
) -> None:
    chain = filled_chain(disk, tmp_path, 250, first=100)
    segment = chain.segment_at(offset)
    assert (segment.base_offset if segment else None) == base


def test_segments_from_an_offset(tmp_path: Path, disk: StagedDisk) -> None:
    chain = filled_chain(disk, tmp_path, 250)
    assert [segment.base_offset for segment in chain.segments_from(100)] == [100, 200]
    assert [segment.base_offset for segment in chain.segments_from(300)] == []


def test_failed_creation_leaves_no_file_behind(tmp_path: Path, disk: StagedDisk) -> None:
    chain = filled_chain(disk, tmp_path, 100)
    disk.on_allocate = no_space
    with pytest.raises(OSError, match="No space left"):
        chain.roll()
    assert names(chain) == [0]
    assert len(chain.segments) == 1


@pytest.mark.parametrize(
    ("offset", "files", "end"),
    [
        (350, [100, 200, 300], 350),
        (349, [100, 200, 300], 349),
        (300, [100, 200], 300),
        (299, [100, 200], 299),
        (201, [100, 200], 201),
        (100, [100], 100),
        (50, [], 0),
    ],
)
def test_cut_forgets_everything_behind_an_offset(
    tmp_path: Path, disk: StagedDisk, offset: int, files: list[int], end: int
) -> None:
    chain = filled_chain(disk, tmp_path, 350, first=100)
    chain.cut(offset)
    assert names(chain) == files
    assert chain.max_offset == end
    if chain.segments:
        last = chain.segments[-1]
        assert last.map[last.write_position :] == bytes(SIZE - last.write_position)


def test_oldest_file_stays_while_somebody_reads_it(tmp_path: Path, disk: StagedDisk) -> None:
    chain = filled_chain(disk, tmp_path, 250)
    view = memoryview(chain.segments[0].map)[:1]
    assert not chain.drop_first()
    assert chain.min_offset == 0
    view.release()
    del view
    assert chain.drop_first()
    assert names(chain) == [100, 200]
    assert chain.min_offset == 100


def test_file_that_is_cut_off_can_be_read_to_the_end(tmp_path: Path, disk: StagedDisk) -> None:
    chain = filled_chain(disk, tmp_path, 250)
    view = memoryview(chain.segments[2].map)[:3]
    chain.cut(150)
    assert view.tobytes() == b"xxx"
    assert names(chain) == [0, 100]
    view.release()
    del view
    chain.close()
    assert disk.open_descriptors == set()


def test_destroy_removes_files_and_directory(tmp_path: Path, disk: StagedDisk) -> None:
    chain = filled_chain(disk, tmp_path, 250)
    chain.destroy()
    assert not chain.directory.exists()
    assert chain.segments == []
    assert disk.open_descriptors == set()
