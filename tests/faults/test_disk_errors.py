"""A disk that fails, fills up or is slow: nothing acknowledged is lost, and the status is clear."""

import errno
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
from faults.stores import (
    Sender,
    abandon,
    check_all,
    open_store,
    reopen,
    small_settings,
    sync_settings,
    the_seed,
    trial,
)

from downrange.runtime.disk import DiskUsage
from downrange.store.errors import (
    AppendRefusedError,
    PutStatus,
    StoreDamagedError,
    StoreLockedError,
    StoreUnavailableError,
)
from downrange.store.message_store import MessageStore
from downrange.store.settings import KIB, StoreSettings
from downrange.testing.clock import ManualClock
from downrange.testing.faulty_disk import FaultyDisk

FULL = DiskUsage(total_bytes=1_000, free_bytes=80)
ROOMY = DiskUsage(total_bytes=1_000, free_bytes=800)


def random_source(name: str) -> random.Random:
    return random.Random(f"{the_seed()} {name}")


def put(store: MessageStore, size: int = 100) -> int:
    return store.append("orders", 0, b"x" * size, b"KEYS\x01k1").end_offset


def fill_segment(store: MessageStore) -> int:
    """Append until the next message of that size needs a new file; returns how many."""
    count = 0
    size = store.settings.segment_bytes
    while store.log.max_offset % size + 2 * 10_000 < size:
        put(store, 9_000)
        count += 1
    return count


def dispatch_error(store: MessageStore) -> int | None:
    return store.dispatch_failure.errno if store.dispatch_failure is not None else None


def refusal(store: MessageStore, size: int = 100) -> AppendRefusedError:
    with pytest.raises(AppendRefusedError) as caught:
        put(store, size)
    return caught.value


@pytest.mark.parametrize(
    "operation", ["open_file", "truncate", "allocate", "map", "make_directory"]
)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_segment_that_cannot_be_made_refuses_the_message_and_nothing_else(
    scratch: Path, operation: str, number: int
) -> None:
    with trial("test_a_segment_that_cannot_be_made_refuses_the_message_and_nothing_else"):
        disk = FaultyDisk()
        store = open_store(small_settings(scratch), disk)
        count = fill_segment(store)
        disk.fail(operation, number, path_contains="commitlog")
        for _ in range(3):
            refused = refusal(store, 30_000)
            assert refused.status is PutStatus.SEGMENT_FAILED
            assert str(scratch / "commitlog") in refused.remark
            assert os.strerror(number) in refused.remark
        put(store)  # there is still room for a small one
        assert len(list((scratch / "commitlog").iterdir())) == 1
        disk.heal()
        put(store, 30_000)
        store.dispatch_some()
        store.close()
        store, report = reopen(small_settings(scratch))
        assert report.damages == []
        queue = store.queues.get("orders", 0)
        assert queue is not None
        assert queue.max_offset == count + 2
        store.close()


def test_no_space_for_the_blank_record_after_a_restart_changes_nothing(scratch: Path) -> None:
    with trial("test_no_space_for_the_blank_record_after_a_restart_changes_nothing"):
        disk = FaultyDisk()
        store = open_store(small_settings(scratch), disk)
        count = fill_segment(store)
        store.close()
        store = open_store(small_settings(scratch), disk)
        for at_call in (1, 2):
            disk.fail("allocate", errno.ENOSPC, path_contains="commitlog", at_call=at_call)
            assert refusal(store, 30_000).status is PutStatus.SEGMENT_FAILED
            disk.heal()
        put(store, 30_000)
        store.close()
        store, report = reopen(small_settings(scratch))
        queue = store.queues.get("orders", 0)
        assert queue is not None
        assert queue.max_offset == count + 1
        assert report.damages == []
        store.close()


@pytest.mark.parametrize("place", ["consumequeue", "index"])
def test_a_message_that_cannot_be_dispatched_waits_and_is_not_lost(
    scratch: Path, place: str
) -> None:
    with trial("test_a_message_that_cannot_be_dispatched_waits_and_is_not_lost"):
        disk = FaultyDisk()
        settings = small_settings(scratch)
        store = open_store(settings, disk)
        sender = Sender(store, random_source(place), body_max=100)
        sender.send(60)
        heard: list[tuple[str, int, int]] = []
        store.add_listener(
            lambda topic, queue_id, offset, *_: heard.append((topic, queue_id, offset))
        )
        for operation in ("open_file", "allocate"):
            disk.fail(operation, errno.ENOSPC, path_contains=place)
        more = sender.send(400)
        assert dispatch_error(store) == errno.ENOSPC
        for _ in range(20):
            assert store.dispatch_some() == 0
        disk.heal()
        while store.dispatch_some():
            pass
        assert dispatch_error(store) is None
        check_all(store, sender.sent)
        assert sorted(heard) == sorted(m.place for m in more if m.queued), "each once"
        store.close()
        store, report = reopen(settings)
        assert report.entries_restored == 0
        check_all(store, sender.sent)
        store.close()


def test_a_failed_sync_acknowledges_nothing_and_stays_so(scratch: Path) -> None:
    with trial("test_a_failed_sync_acknowledges_nothing_and_stays_so"):
        disk = FaultyDisk()
        settings = sync_settings(scratch)
        store = open_store(settings, disk)
        sender = Sender(store, random_source("sync"))
        sender.send(20)
        durable = store.durable_offset
        statuses: list[PutStatus] = []
        store.wait_durable(put(store), statuses.append)
        store.wait_durable(put(store), statuses.append)
        disk.fail("sync", errno.EIO, path_contains="commitlog", times=1)
        assert not store.flush_now()
        assert statuses == [PutStatus.NOT_WRITABLE] * 2
        # The kernel may have dropped the pages: a sync that succeeds now proves nothing.
        assert not store.flush_now()
        assert store.durable_offset == durable
        assert store.dispatch_some() == 0
        refused = refusal(store)
        assert refused.status is PutStatus.NOT_WRITABLE
        assert "Input/output error" in refused.remark
        store.wait_durable(durable + 1, statuses.append)
        assert statuses[-1] is PutStatus.NOT_WRITABLE
        check_all(store, sender.sent)
        store.close()
        assert (scratch / "abort").exists()
        store, _ = reopen(settings, disk)
        for message in sender.sent:
            assert store.lookup.record_at(message.physical_offset) is not None
        put(store)
        assert store.flush_now()
        store.close()
        assert not (scratch / "abort").exists()


def test_a_sync_that_fails_while_another_thread_runs_it_fails_who_came_meanwhile(
    scratch: Path,
) -> None:
    with trial("test_a_sync_that_fails_while_another_thread_runs_it_fails_who_came_meanwhile"):
        store = open_store(sync_settings(scratch), FaultyDisk())
        statuses: list[PutStatus] = []
        store.wait_durable(put(store), statuses.append)
        job = store.begin_flush()
        assert job is not None
        store.wait_durable(put(store), statuses.append)
        assert not store.flush_now(), "a job that is under way has proved nothing"
        store.finish_flush(job, OSError(errno.EIO, "Input/output error"))
        assert statuses == [PutStatus.NOT_WRITABLE] * 2
        store.close()
        assert (scratch / "abort").exists()


def test_a_slow_sync_is_reported_as_a_timeout_and_loses_nothing(scratch: Path) -> None:
    with trial("test_a_slow_sync_is_reported_as_a_timeout_and_loses_nothing"):
        disk, clock = FaultyDisk(), ManualClock()
        store = MessageStore(sync_settings(scratch), disk, clock)
        store.open()
        statuses: list[PutStatus] = []
        store.wait_durable(put(store), statuses.append)
        disk.on_sync = lambda _path: clock.advance(store.settings.flush.sync_timeout_ms)
        job = store.begin_flush()
        assert job is not None
        job.run()
        assert store.expire_waiters() == 1
        assert statuses == [PutStatus.FLUSH_DISK_TIMEOUT]
        store.finish_flush(job)
        assert statuses == [PutStatus.FLUSH_DISK_TIMEOUT], "told once"
        assert store.dispatch_some() == 1
        disk.heal()
        store.wait_durable(put(store), statuses.append)
        assert store.flush_now()
        assert statuses[1:] == [PutStatus.PUT_OK]
        store.close()


def test_derived_files_that_cannot_be_synced_leave_the_old_checkpoint(scratch: Path) -> None:
    with trial("test_derived_files_that_cannot_be_synced_leave_the_old_checkpoint"):
        disk = FaultyDisk()
        settings = small_settings(scratch)
        store = open_store(settings, disk)
        sender = Sender(store, random_source("derived"))
        sender.send(30)
        job = store.begin_derived_flush()
        job.run()
        assert store.finish_derived_flush(job)
        before = (scratch / "checkpoint").read_bytes()
        sender.send(30)
        disk.fail("sync", errno.EIO, path_contains="consumequeue")
        job = store.begin_derived_flush()
        with pytest.raises(OSError, match="consumequeue") as caught:
            job.run()
        assert not store.finish_derived_flush(job, caught.value)
        disk.heal()
        disk.fail("write", errno.ENOSPC, path_contains="checkpoint")
        job = store.begin_derived_flush()
        with pytest.raises(OSError, match="checkpoint") as caught:
            job.run()
        assert not store.finish_derived_flush(job, caught.value)
        assert (scratch / "checkpoint").read_bytes() == before
        sender.send(5)  # messages are taken all the same: the log is sound
        abandon(store)
        store, _ = reopen(settings)
        check_all(store, sender.sent)
        store.close()


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        ("sync", "commitlog"),
        ("sync", "index"),
        ("sync", "consumequeue"),
        ("write", "checkpoint"),
        ("rename", "checkpoint"),
        ("write", "derived.json"),
        ("rename", "derived.json"),
        ("unlink", "abort"),
    ],
)
def test_a_failing_close_leaves_the_abort_file(scratch: Path, operation: str, path: str) -> None:
    with trial("test_a_failing_close_leaves_the_abort_file"):
        disk = FaultyDisk()
        settings = small_settings(scratch)
        store = open_store(settings, disk)
        sender = Sender(store, random_source("close"))
        sender.send(50)
        put(store)
        disk.fail(operation, errno.EIO, path_contains=path)
        store.close()
        assert (scratch / "abort").exists()
        assert disk.open_paths == []
        store, _ = reopen(settings)
        for message in sender.sent:
            assert store.lookup.record_at(message.physical_offset) is not None
        store.close()
        assert not (scratch / "abort").exists()


@pytest.mark.parametrize(
    ("operation", "number"),
    [
        ("make_directory", errno.EROFS),
        ("open_file", errno.EACCES),
        ("map", errno.ENOMEM),
        ("read", errno.EIO),
        ("list_directory", errno.EIO),
        ("write", errno.EROFS),
        ("sync", errno.EIO),
        ("usage", errno.EIO),
    ],
)
def test_a_store_that_cannot_be_opened_says_which_directory_and_why(
    scratch: Path, operation: str, number: int
) -> None:
    with trial("test_a_store_that_cannot_be_opened_says_which_directory_and_why"):
        disk = FaultyDisk()
        settings = small_settings(scratch)
        store = open_store(settings, disk)
        sent = Sender(store, random_source("open")).send(20)
        store.close()
        disk.fail(operation, number)
        failing = MessageStore(settings, disk, ManualClock())
        with pytest.raises(StoreUnavailableError) as caught:
            failing.open()
        assert str(scratch) in str(caught.value)
        assert os.strerror(number) in str(caught.value)
        assert refusal(failing).status is PutStatus.SHUT_DOWN
        disk.heal()
        assert disk.open_paths == []
        store, _ = reopen(settings, disk)
        check_all(store, sent)
        store.close()


def test_a_full_disk_refuses_messages_and_takes_them_again_by_itself(scratch: Path) -> None:
    with trial("test_a_full_disk_refuses_messages_and_takes_them_again_by_itself"):
        disk = FaultyDisk()
        store = open_store(small_settings(scratch), disk)
        put(store)
        disk.reported_usage = FULL
        put(store)  # nobody has looked yet
        store.expire_some()
        refused = refusal(store)
        assert refused.status is PutStatus.DISK_FULL
        for word in (str(scratch / "commitlog"), "92.0%", "90%"):
            assert word in refused.remark
        disk.reported_usage = ROOMY
        store.expire_some()
        put(store)
        store.close()
        disk.reported_usage = FULL
        store = open_store(small_settings(scratch), disk)
        assert refusal(store).status is PutStatus.DISK_FULL
        store.close()


def test_a_store_that_is_open_cannot_be_opened_again(scratch: Path) -> None:
    with trial("test_a_store_that_is_open_cannot_be_opened_again"):
        settings = small_settings(scratch)
        store = open_store(settings)
        sent = Sender(store, random_source("twice")).send(10)
        with pytest.raises(StoreLockedError, match="in use by another broker"):
            open_store(settings)
        check_all(store, sent)
        store.close()
        open_store(settings).close()


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("segment_bytes", [16 * KIB, 32 * KIB, 128 * KIB, 96 * KIB])
def test_another_segment_size_is_refused_and_nothing_is_changed(
    scratch: Path, segment_bytes: int
) -> None:
    with trial("test_another_segment_size_is_refused_and_nothing_is_changed"):
        settings = small_settings(scratch)
        store = open_store(settings)
        sent = Sender(store, random_source("size")).send(500)
        store.close()
        before = contents(scratch)
        wrong: StoreSettings = replace(settings, segment_bytes=segment_bytes)
        with pytest.raises(StoreDamagedError, match="configure"):
            open_store(wrong)
        assert contents(scratch) == before
        store = open_store(settings)
        check_all(store, sent)
        store.close()
