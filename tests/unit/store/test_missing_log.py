"""A store whose log is not where it should be: nothing is lost by a start."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from unit.store.building import (
    SEGMENT_BYTES,
    StagedDisk,
    all_bodies,
    crash,
    fill,
    numbered,
    open_store,
)

from downrange.store.checkpoint import CheckpointFile
from downrange.store.errors import LogMissingError
from downrange.testing.clock import ManualClock

KEYS = b"KEYS\x01k\x02"


def written(root: Path, disk: StagedDisk, *, is_clean: bool = True) -> None:
    store = open_store(root, disk=disk)
    fill(store, numbered(130), properties=KEYS)
    if is_clean:
        store.close()
    else:
        job = store.begin_derived_flush()
        job.run()
        assert store.finish_derived_flush(job)
        crash(store)


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name != "lock"
    }


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("has_directory", [True, False])
def test_a_log_that_is_not_mounted_is_missed_and_nothing_is_touched(
    tmp_path: Path, disk: StagedDisk, *, is_clean: bool, has_directory: bool
) -> None:
    written(tmp_path, disk, is_clean=is_clean)
    (tmp_path / "commitlog").rename(tmp_path / "volume")
    if has_directory:
        (tmp_path / "commitlog").mkdir()
    before = tree(tmp_path)
    with pytest.raises(LogMissingError, match="its volume is mounted"):
        open_store(tmp_path, disk=disk)
    assert tree(tmp_path) == before
    shutil.rmtree(tmp_path / "commitlog", ignore_errors=True)
    (tmp_path / "volume").rename(tmp_path / "commitlog")
    store = open_store(tmp_path, disk=disk)
    assert all_bodies(store) == numbered(130)
    store.close()


def test_each_trace_of_a_log_is_enough(tmp_path: Path, disk: StagedDisk) -> None:
    written(tmp_path, disk)
    for kept in ("checkpoint", "derived.json", "consumequeue", "index"):
        root = tmp_path / f"only-{kept}"
        root.mkdir()
        source = tmp_path / kept
        if source.is_dir():
            shutil.copytree(source, root / kept)
        else:
            shutil.copy(source, root / kept)
        with pytest.raises(LogMissingError):
            open_store(root, disk=disk)


def test_a_store_that_never_had_a_message_starts_without_a_log(
    tmp_path: Path, disk: StagedDisk
) -> None:
    for _ in range(2):
        crash(open_store(tmp_path, disk=disk))
        open_store(tmp_path, disk=disk).close()


def test_on_request_what_was_derived_is_moved_aside_and_the_store_begins_anew(
    tmp_path: Path, disk: StagedDisk, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    written(tmp_path, disk)
    shutil.rmtree(tmp_path / "commitlog")
    before = tree(tmp_path)
    store = open_store(tmp_path, clock, disk, starts_without_log=True)
    assert (store.log.max_offset, len(store.queues)) == (0, 0)
    assert store.lookup.query("T", "k").records == []
    assert store.append("T", 0, b"first", b"").queue_offset == 0
    store.close()
    aside = [path.name for path in tmp_path.iterdir() if ".aside-" in path.name]
    assert sorted(name.split(".aside-")[0] for name in aside) == [
        "checkpoint", "consumequeue", "derived.json", "index",
    ]  # fmt: skip
    kept = {path.partition("/")[0].partition(".aside-")[0]: path for path in tree(tmp_path)}
    assert kept.keys() >= {"consumequeue", "index"}
    moved = {
        path.replace(f".aside-{path.split('.aside-')[1].partition('/')[0]}", ""): data
        for path, data in tree(tmp_path).items()
        if ".aside-" in path
    }
    assert moved == {path: data for path, data in before.items() if not path.startswith("config")}
    assert "was moved to" in caplog.text
    # The setting may stay for a while: nothing happens twice.
    open_store(tmp_path, clock, disk, starts_without_log=True).close()
    assert sorted(path.name for path in tmp_path.iterdir() if ".aside-" in path.name) == sorted(
        aside
    )


def test_two_moves_of_one_second_do_not_meet(
    tmp_path: Path, disk: StagedDisk, clock: ManualClock
) -> None:
    for _ in range(2):
        store = open_store(tmp_path, clock, disk, starts_without_log=True)
        fill(store, numbered(3))
        store.close()
        shutil.rmtree(tmp_path / "commitlog")
    open_store(tmp_path, clock, disk, starts_without_log=True).close()
    queues = [path.name for path in tmp_path.iterdir() if path.name.startswith("consumequeue.")]
    assert len(queues) == 2


def test_newest_files_that_are_missing_are_missed(tmp_path: Path, disk: StagedDisk) -> None:
    written(tmp_path, disk)
    newest = max((tmp_path / "commitlog").iterdir())
    newest.rename(tmp_path / "elsewhere")
    before = tree(tmp_path)
    with pytest.raises(LogMissingError, match="the newest files of the commit log are missing"):
        open_store(tmp_path, disk=disk)
    assert tree(tmp_path) == before
    store = open_store(tmp_path, disk=disk, starts_without_log=True)
    kept = all_bodies(store)
    assert kept == numbered(130)[: len(kept)]
    assert store.log.max_offset <= int(newest.name)
    store.close()


def test_newest_file_that_was_never_durable_may_be_gone(tmp_path: Path, disk: StagedDisk) -> None:
    """As after two power failures, the second one in the midst of recovery from the first."""
    written(tmp_path, disk, is_clean=False)
    newest = max((tmp_path / "commitlog").iterdir())
    newest.unlink()
    file = CheckpointFile(disk, tmp_path)
    file.save(replace(file.load(), confirmed_offset=int(newest.name)))
    store = open_store(tmp_path, disk=disk)
    kept = all_bodies(store)
    assert 0 < len(kept) < 130
    assert kept == numbered(130)[: len(kept)]
    store.close()


def test_one_damaged_entry_does_not_make_the_log_look_short(
    tmp_path: Path, disk: StagedDisk
) -> None:
    written(tmp_path, disk)
    (last,) = [max((tmp_path / "consumequeue" / "T" / "0").iterdir())]
    data = bytearray(last.read_bytes())
    position = (130 - 1) % 10 * 20
    assert int.from_bytes(data[position : position + 8], "big") > SEGMENT_BYTES
    data[position + 2] ^= 0x40  # of the offset, far beyond the log
    last.write_bytes(data)
    store = open_store(tmp_path, disk=disk)
    assert all_bodies(store) == numbered(130)
    store.close()


def test_oldest_files_that_were_not_mounted_for_a_while_are_read_again(
    tmp_path: Path, disk: StagedDisk
) -> None:
    written(tmp_path, disk)
    oldest = min((tmp_path / "commitlog").iterdir())
    oldest.rename(tmp_path / "volume")
    store = open_store(tmp_path, disk=disk)
    assert 0 < len(all_bodies(store)) < 130
    fill(store, [b"0130"], properties=KEYS)
    store.close()
    (tmp_path / "volume").rename(oldest)
    store = open_store(tmp_path, disk=disk)
    assert all_bodies(store) == numbered(131)
    assert len(store.lookup.query("T", "k", count_max=64).records) == 64
    store.close()
