"""When the log becomes durable and who is told."""

from pathlib import Path

import pytest
from unit.store.building import StagedDisk, fill, input_output_error, numbered, open_store

from downrange.store.checkpoint import decode_checkpoint
from downrange.store.errors import PutStatus
from downrange.store.flush import PAGE_BYTES, FlushWaiters
from downrange.store.message_store import MessageStore
from downrange.store.settings import FlushMode, FlushSettings
from downrange.testing.clock import ManualClock


@pytest.fixture
def sync_store(tmp_path: Path, clock: ManualClock, disk: StagedDisk) -> MessageStore:
    return open_store(tmp_path, clock, disk, flush=FlushSettings(mode=FlushMode.SYNC))


def append_pages(store: MessageStore, pages: int) -> None:
    while store.log.max_offset - store.durable_offset < pages * PAGE_BYTES:
        store.append("T", 0, bytes(400), b"")


def test_nothing_is_due_without_appended_bytes(store: MessageStore, clock: ManualClock) -> None:
    clock.advance(60_000)
    assert not store.flush_is_due()
    assert store.begin_flush() is None


def test_few_pages_wait_for_the_thorough_interval(store: MessageStore, clock: ManualClock) -> None:
    fill(store, [b"x"])
    store.append("T", 0, b"x", b"")
    assert not store.flush_is_due()
    clock.advance(9_999)
    assert not store.flush_is_due()
    clock.advance(1)
    assert store.flush_is_due()


def test_four_pages_are_due_at_once(store: MessageStore) -> None:
    fill(store, [b"x"])
    append_pages(store, 3)
    assert not store.flush_is_due()
    append_pages(store, 4)
    assert store.flush_is_due()


def test_flush_under_way_is_not_due_again(store: MessageStore, clock: ManualClock) -> None:
    append_pages(store, 4)
    job = store.begin_flush()
    assert job is not None
    append_pages(store, 9)
    clock.advance(60_000)
    assert not store.flush_is_due()
    assert store.begin_flush() is None
    job.run()
    store.finish_flush(job)
    assert store.flush_is_due()


def test_job_promises_what_was_appended_before_it_began(store: MessageStore) -> None:
    store.append("T", 0, b"x", b"")
    end_offset = store.log.max_offset
    job = store.begin_flush()
    assert job is not None
    store.append("T", 0, b"y", b"")
    assert store.durable_offset == 0
    job.run()
    store.finish_flush(job)
    assert store.durable_offset == end_offset
    assert store.flush_now()
    assert store.durable_offset == store.log.max_offset


def test_job_syncs_each_file_that_has_new_bytes(store: MessageStore, disk: StagedDisk) -> None:
    syncs: list[int] = []
    disk.on_sync = lambda: syncs.append(1)
    append_pages(store, 3)
    files = len(store.log.chain.segments)
    assert files >= 3
    store.flush_now()
    assert len(syncs) == files
    store.append("T", 0, b"x", b"")
    store.flush_now()
    assert len(syncs) == files + 1


def test_one_sync_frees_all_that_wait_for_it(sync_store: MessageStore) -> None:
    answers: list[tuple[int, PutStatus]] = []

    def wait(number: int) -> None:
        appended = sync_store.append("T", 0, b"x", b"")
        sync_store.wait_durable(appended.end_offset, lambda s: answers.append((number, s)))

    wait(1)
    wait(2)
    job = sync_store.begin_flush()
    wait(3)
    assert job is not None
    job.run()
    assert answers == []
    sync_store.finish_flush(job)
    assert answers == [(1, PutStatus.PUT_OK), (2, PutStatus.PUT_OK)]
    sync_store.flush_now()
    assert answers[2:] == [(3, PutStatus.PUT_OK)]
    sync_store.close()


def test_who_asks_for_what_is_durable_is_answered_at_once(sync_store: MessageStore) -> None:
    answers: list[PutStatus] = []
    appended = sync_store.append("T", 0, b"x", b"")
    sync_store.flush_now()
    sync_store.wait_durable(appended.end_offset, answers.append)
    assert answers == [PutStatus.PUT_OK]
    sync_store.close()


def test_deadline_frees_with_a_timeout_and_once(
    sync_store: MessageStore, clock: ManualClock
) -> None:
    answers: list[PutStatus] = []
    appended = sync_store.append("T", 0, b"x", b"")
    sync_store.wait_durable(appended.end_offset, answers.append)
    clock.advance(4_999)
    assert sync_store.expire_waiters() == 0
    clock.advance(1)
    assert sync_store.expire_waiters() == 1
    sync_store.flush_now()
    assert answers == [PutStatus.FLUSH_DISK_TIMEOUT]
    sync_store.close()


def test_failed_sync_is_final(sync_store: MessageStore, disk: StagedDisk) -> None:
    answers: list[PutStatus] = []
    appended = sync_store.append("T", 0, b"x", b"")
    sync_store.wait_durable(appended.end_offset, answers.append)
    disk.on_sync = input_output_error
    assert not sync_store.flush_now()
    assert answers == [PutStatus.NOT_WRITABLE]
    disk.on_sync = lambda: None  # a later success proves nothing about the earlier bytes
    assert sync_store.begin_flush() is None
    assert not sync_store.flush_now()
    assert sync_store.durable_offset == 0
    sync_store.wait_durable(appended.end_offset, answers.append)
    assert answers == [PutStatus.NOT_WRITABLE] * 2
    assert sync_store.dispatch_some() == 0
    sync_store.close()


def test_after_a_failed_sync_a_close_is_no_clean_stop(
    sync_store: MessageStore, disk: StagedDisk, tmp_path: Path
) -> None:
    sync_store.append("T", 0, b"x", b"")
    disk.on_sync = input_output_error
    sync_store.close()
    assert (tmp_path / "abort").exists()


def test_close_frees_who_still_waits(sync_store: MessageStore) -> None:
    answers: list[PutStatus] = []
    sync_store.wait_durable(sync_store.log.max_offset + 100, answers.append)
    sync_store.close()
    assert answers == [PutStatus.SHUT_DOWN]


def test_waiters_come_in_the_order_of_the_log() -> None:
    waiters = FlushWaiters()
    waiters.add(10, 0, lambda _status: None)
    waiters.add(10, 0, lambda _status: None)
    with pytest.raises(AssertionError, match="order"):
        waiters.add(9, 0, lambda _status: None)
    assert len(waiters) == 2


def test_checkpoint_follows_log_and_queues(
    store: MessageStore, clock: ManualClock, tmp_path: Path
) -> None:
    start_ms = clock.wall_ms()
    store.append("T", 0, b"x", b"")
    clock.advance(10)
    store.append("T", 0, b"y", b"")
    store.flush_now()
    store.dispatch_some(1)
    job = store.begin_derived_flush()
    store.dispatch_some()
    job.run()  # writes the file, too: who calls `finish` does not wait for the disk
    written = decode_checkpoint((tmp_path / "checkpoint").read_bytes())
    assert store.finish_derived_flush(job)
    assert store.checkpoint == written
    assert store.checkpoint.commit_log_timestamp == start_ms + 10
    assert store.checkpoint.queue_timestamp == start_ms  # what was dispatched when it began
    assert store.checkpoint.queue_offset == job.end_offset > 0
    assert (tmp_path / "checkpoint").stat().st_size == 4096


def test_checkpoint_of_queues_does_not_pass_the_last_finished_index_file(
    store: MessageStore, clock: ManualClock
) -> None:
    def flush() -> None:
        store.dispatch_some()
        job = store.begin_derived_flush()
        job.run()
        assert store.finish_derived_flush(job)

    store.append("T", 0, b"x", b"KEYS\x01k\x02")
    flush()
    assert (store.checkpoint.queue_timestamp, store.checkpoint.queue_offset) == (0, 0)
    assert store.index is not None
    while len(store.index.files) < 2:
        clock.advance(1)
        store.append("T", 0, b"x", b"KEYS\x01k\x02")
        store.dispatch_some()
    flush()
    finished = store.index.files[0]
    checkpoint = store.checkpoint
    assert checkpoint.index_timestamp == checkpoint.queue_timestamp == finished.end_timestamp
    assert checkpoint.queue_offset == finished.end_offset


def test_queues_that_did_not_change_are_not_synced_again(
    store: MessageStore, disk: StagedDisk
) -> None:
    syncs: list[int] = []
    fill(store, numbered(25))  # three files of a queue
    fill(store, numbered(1), queue_id=1)
    disk.on_sync = lambda: syncs.append(1)
    for expected in (4, 0):
        syncs.clear()
        job = store.begin_derived_flush()
        job.run()
        store.finish_derived_flush(job)
        assert len(syncs) == expected
    fill(store, numbered(1))
    syncs.clear()
    store.begin_derived_flush().run()
    assert len(syncs) == 1


def test_failed_sync_of_queues_is_tried_again(store: MessageStore, disk: StagedDisk) -> None:
    syncs: list[int] = []
    fill(store, numbered(1))
    job = store.begin_derived_flush()
    assert not store.finish_derived_flush(job, OSError("broken"))
    disk.on_sync = lambda: syncs.append(1)
    store.begin_derived_flush().run()
    assert syncs == [1]
    store.append("T", 0, b"x", b"")  # the log is sound, so messages are still taken


def test_queue_that_takes_the_place_of_a_deleted_one_is_synced(
    store: MessageStore, disk: StagedDisk
) -> None:
    syncs: list[int] = []
    fill(store, numbered(2))
    job = store.begin_derived_flush()
    job.run()
    store.finish_derived_flush(job)
    store.delete_topic("T")
    fill(store, numbered(2))  # as many entries as were synced of the old one
    disk.on_sync = lambda: syncs.append(1)
    store.begin_derived_flush().run()
    assert syncs == [1]


# --- steps of the wall clock --------------------------------------------------------------

HOUR_MS = 3_600_000


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
def test_step_of_the_wall_clock_neither_stops_nor_hastens_async_flushing(
    store: MessageStore, clock: ManualClock, step_ms: int
) -> None:
    fill(store, [b"x"])
    store.append("T", 0, b"x", b"")
    clock.jump_to(clock.wall_ms() + step_ms)
    assert not store.flush_is_due()
    clock.advance(9_999)
    assert not store.flush_is_due()
    clock.advance(1)
    assert store.flush_is_due()


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
def test_step_of_the_wall_clock_moves_no_deadline(
    sync_store: MessageStore, clock: ManualClock, step_ms: int
) -> None:
    answers: list[PutStatus] = []
    appended = sync_store.append("T", 0, b"x", b"")
    sync_store.wait_durable(appended.end_offset, answers.append)
    clock.jump_to(clock.wall_ms() + step_ms)
    clock.advance(4_999)
    assert sync_store.expire_waiters() == 0
    clock.advance(1)
    assert sync_store.expire_waiters() == 1
    assert answers == [PutStatus.FLUSH_DISK_TIMEOUT]
    sync_store.close()
