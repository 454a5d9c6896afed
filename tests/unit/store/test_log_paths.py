"""A commit log that is spread over several directories."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.store.building import (
    SEGMENT_BYTES,
    StagedDisk,
    all_bodies,
    fill,
    no_space,
    numbered,
    open_store,
)

from downrange.runtime.disk import DiskUsage
from downrange.store.errors import AppendRefusedError, StoreDamagedError
from downrange.store.log_paths import LogPaths, LogPathsError
from downrange.store.message_store import MessageStore
from downrange.store.settings import RetentionSettings
from downrange.testing.clock import ManualClock

A, B, C = Path("/a"), Path("/b"), Path("/c")
PER_FILE = 42  # messages of `numbered` in a file of the log


def test_files_take_turns_in_the_order_of_the_names_of_their_directories() -> None:
    paths = LogPaths.parse(Path("/default"), " /c, /a ,,/b ")
    assert paths.writable == (A, B, C)
    assert [paths.candidates(number)[0] for number in range(4)] == [A, B, C, A]
    assert LogPaths.parse(Path("/default"), " ").everywhere == (Path("/default"),)


def test_read_only_paths_are_read_and_get_no_new_files() -> None:
    paths = LogPaths.parse(Path("/default"), "/a,/b", "/b,/c")
    assert (paths.everywhere, paths.writable) == ((A, B, C), (A,))


def test_full_paths_come_last_and_if_all_are_full_all_take_turns() -> None:
    paths = LogPaths((A, B, C))
    assert [paths.candidates(number, {B}) for number in (0, 1)] == [(A, C, B), (C, A, B)]
    assert paths.candidates(1, {A, B, C}) == (B, C, A)


@pytest.mark.parametrize(
    ("paths", "read_only", "problem"),
    [
        ("/a,/b", "/b,/a", "no path is left for new files"),
        ("/a,/b,/a", "", "/a is listed twice"),
    ],
)
def test_paths_that_cannot_be(paths: str, read_only: str, problem: str) -> None:
    with pytest.raises(LogPathsError, match=problem):
        LogPaths.parse(Path("/default"), paths, read_only)


class SeveralDisks(StagedDisk):
    """Each directory below the root is a disk of its own, which may be full or gone."""

    def __init__(self) -> None:
        super().__init__()
        self.ratios: dict[str, float] = {}
        self.without_space: set[str] = set()
        self.paths: dict[int, Path] = {}

    def usage(self, path: Path) -> DiskUsage:
        ratio = self.ratios.get(path.name, 0.1)
        if ratio < 0:
            raise OSError(errno.ENOENT, "no such volume")
        return DiskUsage(total_bytes=1000, free_bytes=round(1000 - 1000 * ratio))

    def open_file(self, path: Path, *, create: bool, writable: bool = True) -> int:
        descriptor = super().open_file(path, create=create, writable=writable)
        self.paths[descriptor] = path
        return descriptor

    def allocate(self, descriptor: int, offset: int, length: int) -> None:
        if self.paths[descriptor].parent.name in self.without_space:
            no_space()
        super().allocate(descriptor, offset, length)


@pytest.fixture
def disks() -> SeveralDisks:
    return SeveralDisks()


def two(root: Path, read_only: str = "") -> LogPaths:
    return LogPaths.parse(root, f"{root / 'one'},{root / 'two'}", read_only)


@pytest.fixture
def spread(tmp_path: Path, disks: SeveralDisks, clock: ManualClock) -> Iterator[MessageStore]:
    store = open_store(tmp_path, clock, disks, commit_log=two(tmp_path))
    yield store
    store.close()


def files(root: Path, name: str) -> list[int]:
    return sorted(int(path.name) // SEGMENT_BYTES for path in (root / name).iterdir())


def test_a_log_over_two_directories_is_one_log(tmp_path: Path, spread: MessageStore) -> None:
    fill(spread, numbered(130))
    assert (files(tmp_path, "one"), files(tmp_path, "two")) == ([0, 2], [1, 3])
    assert not (tmp_path / "commitlog").exists()
    spread.close()
    again = open_store(tmp_path, disk=StagedDisk(), commit_log=two(tmp_path))
    assert all_bodies(again) == numbered(130)
    again.close()


def test_a_nearly_full_disk_gets_no_new_file_while_another_has_room(
    tmp_path: Path, spread: MessageStore, disks: SeveralDisks
) -> None:
    disks.ratios["one"] = 0.86
    assert spread.expire_some() == 0
    assert spread.refusal is None
    fill(spread, numbered(130))
    assert files(tmp_path, "two") == [0, 1, 2, 3]
    disks.ratios["two"] = 0.91
    spread.expire_some()
    assert spread.refusal is None, "the other one still takes messages"
    disks.ratios["one"] = 0.91
    spread.expire_some()
    assert spread.refusal is not None


def test_a_disk_without_space_is_passed_over_in_the_middle_of_a_file(
    tmp_path: Path, spread: MessageStore, disks: SeveralDisks
) -> None:
    fill(spread, numbered(10))
    disks.without_space.add("one")
    spread.log.chain.segments[-1].reserved = spread.log.max_offset + 8  # of the test's own making
    fill(spread, numbered(20)[10:])
    assert (files(tmp_path, "one"), files(tmp_path, "two")) == ([0], [1])
    assert all_bodies(spread) == numbered(20)
    disks.without_space.add("two")
    with pytest.raises(AppendRefusedError, match="no room"):
        fill(spread, numbered(200))


def test_the_disk_of_the_queues_counts_too(spread: MessageStore, disks: SeveralDisks) -> None:
    disks.ratios["consumequeue"] = 0.95
    spread.expire_some()
    assert spread.refusal is not None
    assert "consumequeue is 95.0% full" in spread.refusal.remark


def test_a_volume_that_vanishes_counts_as_full(spread: MessageStore, disks: SeveralDisks) -> None:
    disks.ratios["two"] = -1
    spread.expire_some()
    assert spread.refusal is None
    assert spread.log.chain.full_paths == {spread.settings.log_paths.writable[1]}


def test_retention_deletes_from_all_directories(
    tmp_path: Path, disks: SeveralDisks, clock: ManualClock
) -> None:
    store = open_store(tmp_path, clock, disks, commit_log=two(tmp_path))
    fill(store, numbered(130))
    store.close()
    read_only = two(tmp_path, str(tmp_path / "one"))
    at_once = RetentionSettings(clean_ratio=0.01, force_ratio=0.02)
    store = open_store(tmp_path, clock, disks, commit_log=read_only, retention=at_once)
    assert store.expire_some() == 3
    assert (files(tmp_path, "one"), files(tmp_path, "two")) == ([], [3])
    fill(store, numbered(130))
    assert files(tmp_path, "one") == []
    store.close()


def test_a_file_that_cannot_be_deleted_stops_nothing(
    spread: MessageStore,
    monkeypatch: pytest.MonkeyPatch,
    disks: SeveralDisks,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(path: Path) -> None:
        assert path.parent.name == "two", "files go in their order"
        raise OSError(errno.EROFS, "Read-only file system")

    fill(spread, numbered(130))
    disks.ratios = {"one": 0.88, "two": 0.88}
    assert spread.log.chain.drop_first()
    monkeypatch.setattr(disks, "unlink", refuse)
    for _ in range(3):
        assert spread.expire_some() == 0
    assert spread.log.min_offset == SEGMENT_BYTES, "a log has no gap"
    assert len([one for one in caplog.records if "cannot be deleted" in one.message]) == 1
    assert spread.read("T", 0, PER_FILE + 1, 1).views
    monkeypatch.undo()
    assert spread.expire_some() == 2


def test_a_file_that_is_in_two_directories_is_named_with_both(
    tmp_path: Path, spread: MessageStore
) -> None:
    fill(spread, numbered(130))
    spread.close()
    name = f"{SEGMENT_BYTES:020d}"
    (tmp_path / "one" / name).write_bytes((tmp_path / "two" / name).read_bytes())
    with pytest.raises(StoreDamagedError, match=f"one/{name}.* is there twice|{name} has the same"):
        open_store(tmp_path, disk=StagedDisk(), commit_log=two(tmp_path))


def test_a_directory_that_is_not_mounted_is_noticed(tmp_path: Path, spread: MessageStore) -> None:
    fill(spread, numbered(130))
    spread.close()
    (tmp_path / "two").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreDamagedError, match=f"{SEGMENT_BYTES:020d} is missing"):
        open_store(tmp_path, disk=StagedDisk(), commit_log=two(tmp_path))
