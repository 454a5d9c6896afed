"""A writer that dies within a batch or a run: nobody was told of any message, and none is kept."""

from collections.abc import Callable, Sequence
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
    small_settings,
)

from downrange.protocol.batch import encode_batch
from downrange.protocol.record import HEAD_START
from downrange.store.appended import Appended
from downrange.store.appender import NO_HOST, PlainMessage
from downrange.store.message_store import MessageStore
from downrange.store.verify import verify_stopped
from downrange.testing.clock import ManualClock

BEFORE = 3
BATCH = [b"b%03d" % number for number in range(6)]
BATCH_START = BEFORE * RECORD_BYTES
BATCH_BYTES = len(BATCH) * RECORD_BYTES


def put_batch(store: MessageStore) -> Sequence[Appended]:
    return store.append_batch("T", 0, encode_batch([(0, body, KEYS) for body in BATCH]))


def put_run(store: MessageStore) -> Sequence[Appended]:
    run: list[PlainMessage] = [
        (number % 2, body, KEYS, 0, 0, 0, NO_HOST, 0, 0, []) for number, body in enumerate(BATCH)
    ]
    return store.append_run("T", run)


WAYS = pytest.mark.parametrize("put", [put_batch, put_run])


def killed_after_a_batch(
    root: Path,
    disk: StagedDisk,
    put: Callable[[MessageStore], Sequence[Appended]] = put_batch,
    *,
    is_dispatched: bool,
) -> None:
    """Some messages, and a batch or a run that was the last thing written."""
    store = open_store(root, disk=disk)
    for body in numbered(BEFORE):
        store.append("T", 0, body, KEYS)
    store.dispatch_some()
    placed = put(store)
    assert (placed[0].physical_offset, placed[-1].end_offset) == (
        BATCH_START,
        BATCH_START + BATCH_BYTES,
    )
    if is_dispatched:
        store.dispatch_some()
    crash(store)


@WAYS
@pytest.mark.parametrize(
    "torn_from", [*range(HEAD_START.size, BATCH_BYTES, 7), BATCH_BYTES - 1, BATCH_BYTES]
)
def test_a_batch_torn_anywhere_is_the_end_of_the_log(
    tmp_path: Path,
    disk: StagedDisk,
    torn_from: int,
    put: Callable[[MessageStore], Sequence[Appended]],
) -> None:
    killed_after_a_batch(tmp_path, disk, put, is_dispatched=False)
    damage(log_file(tmp_path), BATCH_START, bytes(HEAD_START.size))
    damage(log_file(tmp_path), BATCH_START + torn_from, bytes(BATCH_BYTES - torn_from))
    verified = verify_stopped(small_settings(tmp_path))
    assert (verified.damages, verified.record_count) == ((), BEFORE)
    store, report = reopen(tmp_path, disk)
    assert (report.damages, report.end_offset) == ([], BATCH_START)
    assert all_bodies(store) == numbered(BEFORE)
    assert store.append("T", 0, b"next", b"").queue_offset == BEFORE
    store.dispatch_some()
    assert all_bodies(store) == [*numbered(BEFORE), b"next"]
    store.close()
    # Nothing of it comes back to life behind what is written since.
    store, report = reopen(tmp_path, disk)
    assert (report.damages, all_bodies(store)) == ([], [*numbered(BEFORE), b"next"])
    store.close()


def test_a_copy_may_be_broken_off_with_its_beginning_missing(
    tmp_path: Path, disk: StagedDisk
) -> None:
    """memcpy may store the first bytes of a piece last."""
    killed_after_a_batch(tmp_path, disk, is_dispatched=False)
    damage(log_file(tmp_path), BATCH_START, bytes(HEAD_START.size + 48))
    damage(log_file(tmp_path), BATCH_START + BATCH_BYTES - 3, bytes(3))
    store, report = reopen(tmp_path, disk)
    assert (report.damages, all_bodies(store)) == ([], numbered(BEFORE))
    store.close()


def test_zeros_in_a_batch_that_was_visible_are_damage(tmp_path: Path, disk: StagedDisk) -> None:
    killed_after_a_batch(tmp_path, disk, is_dispatched=True)
    damage(log_file(tmp_path), BATCH_START, bytes(HEAD_START.size))
    store, report = reopen(tmp_path, disk)
    assert [found.position for found in report.damages] == [BATCH_START]
    assert all_bodies(store) == [*numbered(BEFORE), *BATCH[1:]]
    store.close()


def test_zeros_before_messages_of_others_are_damage(tmp_path: Path, disk: StagedDisk) -> None:
    store = open_store(tmp_path, disk=disk)
    for number, body in enumerate(numbered(6)):
        store.append("TU"[number % 2], 0, body, KEYS)
    crash(store)
    damage(log_file(tmp_path), RECORD_BYTES, bytes(HEAD_START.size))
    store, report = reopen(tmp_path, disk)
    assert [found.position for found in report.damages] == [RECORD_BYTES]
    assert all_bodies(store) == numbered(6)[0::2]
    assert all_bodies(store, "U") == numbered(6)[3::2]
    store.close()


def test_zeros_before_messages_of_another_time_are_damage(tmp_path: Path, disk: StagedDisk) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, disk=disk, clock=clock)
    for body in numbered(4):
        store.append("T", 0, body, KEYS)
        clock.advance(1)
    crash(store)
    damage(log_file(tmp_path), RECORD_BYTES, bytes(HEAD_START.size))
    store, report = reopen(tmp_path, disk)
    assert [found.position for found in report.damages] == [RECORD_BYTES]
    assert all_bodies(store) == [numbered(4)[0], *numbered(4)[2:]]
    store.close()


def test_a_record_whose_properties_did_not_reach_the_disk_is_none(
    tmp_path: Path, disk: StagedDisk
) -> None:
    store = open_store(tmp_path, disk=disk)
    for body in numbered(3):
        store.append("T", 0, body, KEYS)
    crash(store)
    damage(log_file(tmp_path), 3 * RECORD_BYTES - len(KEYS), bytes(len(KEYS)))
    store, report = reopen(tmp_path, disk)
    assert report.end_offset == 2 * RECORD_BYTES
    assert all_bodies(store) == numbered(2)
    store.close()
