"""What a start makes of the files that it finds."""

import shutil
from pathlib import Path

import pytest
from unit.store.building import (
    KEYS,
    RECORD_BYTES,
    StagedDisk,
    all_bodies,
    crash,
    damage,
    log_file,
    numbered,
    open_store,
    reopen,
    written,
)

from downrange.store.checkpoint import Checkpoint, CheckpointFile
from downrange.store.message_store import MessageStore
from downrange.store.ownership import LastStop
from downrange.testing.clock import ManualClock


def keys_found(store: MessageStore) -> int:
    return len(store.lookup.query("T", "k").records)


# --- clean --------------------------------------------------------------------------------


def test_empty_directory_becomes_a_store(tmp_path: Path, disk: StagedDisk) -> None:
    store, report = reopen(tmp_path, disk)
    assert (store.last_stop, report.record_count, report.end_offset) == (LastStop.CLEAN, 0, 0)
    store.close()


def test_after_a_clean_stop_only_the_newest_file_is_read(tmp_path: Path, disk: StagedDisk) -> None:
    written(tmp_path, disk, 100)
    store, report = reopen(tmp_path, disk)
    assert store.last_stop is LastStop.CLEAN
    assert report.start_offset == store.log.chain.segments[-1].base_offset > 0
    assert (report.entries_restored, report.entries_cut, report.torn_bytes) == (0, 0, 0)
    assert report.damages == []
    assert all_bodies(store) == numbered(100)
    store.close()


def test_store_goes_on_where_it_was_left(tmp_path: Path, disk: StagedDisk) -> None:
    written(tmp_path, disk, 15)
    store, _ = reopen(tmp_path, disk)
    appended = store.append("T", 0, b"next", b"")
    assert (appended.physical_offset, appended.queue_offset) == (15 * RECORD_BYTES, 15)
    store.dispatch_some()
    assert all_bodies(store) == [*numbered(15), b"next"]
    store.close()


def test_prepared_records_do_not_move_the_queue(tmp_path: Path, disk: StagedDisk) -> None:
    store = open_store(tmp_path, disk=disk)
    store.append("T", 0, b"a", b"")
    store.append("T", 0, b"half", b"", 4)
    crash(store)
    store, report = reopen(tmp_path, disk)
    assert (report.record_count, report.entries_restored) == (2, 1)
    assert store.append("T", 0, b"b", b"").queue_offset == 1
    store.close()


# --- crash --------------------------------------------------------------------------------


def test_killed_process_loses_nothing_that_was_appended(tmp_path: Path, disk: StagedDisk) -> None:
    store = open_store(tmp_path, disk=disk)
    for number, body in enumerate(numbered(60)):
        store.append("T", number % 3, body, KEYS)
    store.dispatch_some(20)
    crash(store)
    store, report = reopen(tmp_path, disk)
    assert store.last_stop is LastStop.PROCESS_DIED
    assert (report.record_count, report.entries_restored) == (60, 40)
    assert [len(all_bodies(store, queue_id=queue)) for queue in range(3)] == [20, 20, 20]
    assert keys_found(store) == 60
    store.close()


def test_key_is_indexed_once_however_often_the_process_dies(
    tmp_path: Path, disk: StagedDisk
) -> None:
    for number in range(4):
        store, _ = reopen(tmp_path, disk)
        store.append("T", 0, b"%d" % number, KEYS + b"UNIQ_KEY\x01%d\x02" % number)
        store.dispatch_some()
        crash(store)
    store, _ = reopen(tmp_path, disk)
    index = store.index
    assert index is not None
    assert sum(file.count - 1 for file in index.files) == 8
    assert keys_found(store) == 4
    store.close()


@pytest.mark.parametrize("kept", [0, 1, 40, 91])
def test_torn_record_at_the_tail_is_cut_off(tmp_path: Path, disk: StagedDisk, kept: int) -> None:
    written(tmp_path, disk, 10)
    tear = 9 * RECORD_BYTES + kept
    damage(log_file(tmp_path), tear, bytes(RECORD_BYTES - kept))
    store, report = reopen(tmp_path, disk)
    assert report.end_offset == store.log.max_offset == 9 * RECORD_BYTES
    assert report.torn_bytes <= kept
    assert report.entries_cut == 1
    assert all_bodies(store) == numbered(9)
    assert keys_found(store) == 9
    assert store.append("T", 0, b"new", b"").queue_offset == 9
    store.close()


def test_file_that_holds_nothing_sound_is_removed(tmp_path: Path, disk: StagedDisk) -> None:
    written(tmp_path, disk, 60)
    last = log_file(tmp_path, -1)
    last.write_bytes(bytes(4096))
    store, report = reopen(tmp_path, disk)
    assert not last.exists()
    assert report.end_offset < int(last.name)
    assert len(all_bodies(store)) == report.end_offset // RECORD_BYTES
    store.append("T", 0, b"new", b"")
    store.close()


def test_after_a_crash_of_the_machine_the_checkpoint_says_from_where_to_read(
    tmp_path: Path, disk: StagedDisk, clock: ManualClock
) -> None:
    store = open_store(tmp_path, clock, disk)
    for body in numbered(100):
        store.append("T", 0, body, KEYS)
        clock.advance(1000)
    store.flush_now()
    store.dispatch_some()
    job = store.begin_derived_flush()
    job.run()
    store.finish_derived_flush(job)
    starts = [segment.base_offset for segment in store.log.chain.segments]
    crash(store)
    assert len(starts) >= 3
    file = CheckpointFile(disk, tmp_path)
    index_ms = file.load().index_timestamp
    per_file = 4088 // RECORD_BYTES
    first_times = [1_700_000_000_000 + 1000 * per_file * number for number in range(len(starts))]

    def started_at(log_ms: int, queue_ms: int) -> int:
        file.save(Checkpoint(log_ms, queue_ms, index_ms))
        disk.boot += "x"
        store, report = reopen(tmp_path, disk, clock)
        assert store.last_stop is LastStop.UNKNOWN
        assert all_bodies(store) == numbered(100)
        crash(store)
        return report.start_offset

    late = first_times[-1] + 60_000
    assert started_at(late, late) == starts[-1]
    assert started_at(first_times[1] + 3_000, late) == starts[1]
    assert started_at(late, first_times[1] + 2_999) == starts[0]
    assert started_at(0, 0) == starts[0]


def test_checkpoint_that_promises_too_much_is_not_believed(
    tmp_path: Path, disk: StagedDisk, clock: ManualClock
) -> None:
    store = open_store(tmp_path, clock, disk)
    for body in numbered(100):
        store.append("T", 0, body, KEYS)
    store.dispatch_some(10)
    crash(store)
    CheckpointFile(disk, tmp_path).save(Checkpoint(1 << 60, 1 << 60, 1 << 60))
    disk.boot = "boot-2"
    store, report = reopen(tmp_path, disk)
    assert report.start_offset == 0
    assert all_bodies(store) == numbered(100)
    store.close()


# --- derived files that are missing or wrong -----------------------------------------------


def test_missing_queue_is_built_again(tmp_path: Path, disk: StagedDisk) -> None:
    written(tmp_path, disk, 100)
    shutil.rmtree(tmp_path / "consumequeue" / "T")
    store, report = reopen(tmp_path, disk)
    assert report.entries_restored == 100
    assert all_bodies(store) == numbered(100)
    store.close()


def test_missing_file_of_a_queue_is_built_again(tmp_path: Path, disk: StagedDisk) -> None:
    written(tmp_path, disk, 100)
    (tmp_path / "consumequeue" / "T" / "0" / f"{9 * 200:020d}").unlink()
    store, report = reopen(tmp_path, disk)
    assert report.entries_restored == 10
    assert all_bodies(store) == numbered(100)
    store.close()


def test_missing_index_is_built_again(tmp_path: Path, disk: StagedDisk) -> None:
    written(tmp_path, disk, 50)
    shutil.rmtree(tmp_path / "index")
    store, report = reopen(tmp_path, disk)
    assert report.start_offset == 0
    assert keys_found(store) == 50
    store.close()


def test_index_file_that_was_changed_is_built_again(tmp_path: Path, disk: StagedDisk) -> None:
    written(tmp_path, disk, 5)
    path = next((tmp_path / "index").iterdir())
    damage(path, 45, b"\xff")
    store, _ = reopen(tmp_path, disk)
    assert keys_found(store) == 5
    store.close()


def test_wrong_entry_in_the_newest_part_is_set_right(tmp_path: Path, disk: StagedDisk) -> None:
    written(tmp_path, disk, 5)
    damage(tmp_path / "consumequeue" / "T" / "0" / ("0" * 20), 2 * 20 + 7, b"\xff")
    store, report = reopen(tmp_path, disk)
    assert report.entries_restored == 1
    assert all_bodies(store) == numbered(5)
    store.close()


def test_queue_whose_first_messages_are_gone_starts_with_fillers(
    tmp_path: Path, disk: StagedDisk
) -> None:
    written(tmp_path, disk, 100)
    log_file(tmp_path).unlink()
    shutil.rmtree(tmp_path / "consumequeue" / "T")
    store, _ = reopen(tmp_path, disk)
    first = 4088 // RECORD_BYTES  # so many stood in the file that is gone
    result = store.read("T", 0, first, 32)
    assert (result.min_offset, result.max_offset) == (first, 100)
    assert all_bodies(store) == numbered(100)[first:]
    store.close()
