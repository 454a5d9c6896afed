"""The faulty disk fails exactly the calls that it was told to, and is a disk otherwise."""

import errno
import inspect
from pathlib import Path

import pytest

from downrange.runtime.disk import Disk, DiskUsage
from downrange.testing.clock import ManualClock
from downrange.testing.faulty_disk import FaultyDisk


def test_without_faults_it_is_a_disk(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.make_directory(tmp_path / "a")
    disk.write(tmp_path / "a" / "new", b"content")
    disk.rename(tmp_path / "a" / "new", tmp_path / "a" / "old")
    descriptor = disk.open_file(tmp_path / "a" / "old", create=False)
    disk.truncate(descriptor, 4096)
    disk.allocate(descriptor, 0, 4096)
    disk.lock(descriptor)
    with disk.map(descriptor, 4096) as view:
        assert view[:7] == b"content"
    disk.sync(descriptor)
    assert disk.data_extents(descriptor, 0, 4096) == [(0, 4096)]
    disk.close_file(descriptor)
    disk.fsync_directory(tmp_path / "a")
    assert disk.size(tmp_path / "a" / "old") == 4096
    assert disk.read(tmp_path / "a" / "old")[:7] == b"content"
    assert disk.modified_ms(tmp_path / "a" / "old") > 0
    assert disk.list_directory(tmp_path / "a") == [tmp_path / "a" / "old"]
    assert disk.usage(tmp_path).total_bytes > 0
    disk.unlink(tmp_path / "a" / "old")
    disk.remove_directory(tmp_path / "a")
    assert not disk.exists(tmp_path / "a")


def test_every_operation_that_touches_files_can_fail(tmp_path: Path) -> None:
    operations = {name for name, _ in inspect.getmembers(Disk, inspect.isfunction)} - {"boot_id"}
    assert operations <= set(vars(FaultyDisk)), operations - set(vars(FaultyDisk))
    disk = FaultyDisk()
    disk.fail("exists", errno.EIO)
    with pytest.raises(OSError, match="Input/output error") as caught:
        disk.exists(tmp_path)
    assert caught.value.errno == errno.EIO
    assert caught.value.filename == str(tmp_path)


def test_a_fault_strikes_at_the_named_call_and_so_many_times(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.fail("exists", errno.EIO, at_call=2, times=2)
    outcomes = []
    for _ in range(5):
        try:
            disk.exists(tmp_path)
            outcomes.append("ok")
        except OSError:
            outcomes.append("failed")
    assert outcomes == ["ok", "failed", "failed", "ok", "ok"]
    assert disk.calls["exists"] == 5


def test_a_fault_strikes_only_matching_paths_also_by_descriptor(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.fail("sync", errno.EIO, path_contains="commitlog")
    sound = disk.open_file(tmp_path / "index", create=True)
    faulty = disk.open_file(tmp_path / "commitlog", create=True)
    disk.sync(sound)
    with pytest.raises(OSError, match="commitlog"):
        disk.sync(faulty)
    disk.heal()
    disk.sync(faulty)
    assert disk.open_paths == [tmp_path / "commitlog", tmp_path / "index"]
    disk.close_file(sound)
    disk.close_file(faulty)
    assert disk.open_paths == []


def test_a_failing_write_leaves_half_of_the_bytes(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.fail("write", errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        disk.write(tmp_path / "table", b"12345678")
    assert (tmp_path / "table").read_bytes() == b"1234"


def test_it_reports_the_usage_that_it_was_told(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.reported_usage = DiskUsage(total_bytes=100, free_bytes=5)
    assert disk.usage(tmp_path).used_ratio == pytest.approx(0.95)
    disk.heal()
    assert disk.usage(tmp_path).total_bytes != 100


def test_a_hook_on_sync_makes_the_disk_slow_by_a_manual_clock(tmp_path: Path) -> None:
    disk, clock = FaultyDisk(), ManualClock(1_000)
    disk.on_sync = lambda _path: clock.advance(6_000)
    descriptor = disk.open_file(tmp_path / "file", create=True)
    disk.sync(descriptor)
    disk.close_file(descriptor)
    assert clock.wall_ms() == 7_000


def test_an_unknown_operation_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="no operation 'fsink'"):
        FaultyDisk().fail("fsink", errno.EIO)
