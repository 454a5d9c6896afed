"""A writer that dies within a batch: nobody was told of any of its messages, and none is kept."""

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
)

from downrange.protocol.batch import encode_batch
from downrange.protocol.record import HEAD_START

BEFORE = 3
BATCH = [b"b%03d" % number for number in range(6)]
BATCH_START = BEFORE * RECORD_BYTES
BATCH_BYTES = len(BATCH) * RECORD_BYTES


def killed_after_a_batch(root: Path, disk: StagedDisk, *, is_dispatched: bool) -> None:
    """Some messages, and a batch that was the last thing written."""
    store = open_store(root, disk=disk)
    for body in numbered(BEFORE):
        store.append("T", 0, body, KEYS)
    store.dispatch_some()
    placed = store.append_batch("T", 0, encode_batch([(0, body, KEYS) for body in BATCH]))
    assert (placed[0].physical_offset, placed[-1].end_offset) == (
        BATCH_START,
        BATCH_START + BATCH_BYTES,
    )
    if is_dispatched:
        store.dispatch_some()
    crash(store)


@pytest.mark.parametrize(
    "torn_from", [*range(HEAD_START.size, BATCH_BYTES, 7), BATCH_BYTES - 1, BATCH_BYTES]
)
def test_a_batch_torn_anywhere_is_the_end_of_the_log(
    tmp_path: Path, disk: StagedDisk, torn_from: int
) -> None:
    killed_after_a_batch(tmp_path, disk, is_dispatched=False)
    damage(log_file(tmp_path), BATCH_START, bytes(HEAD_START.size))
    damage(log_file(tmp_path), BATCH_START + torn_from, bytes(BATCH_BYTES - torn_from))
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
        store.append("T", number % 2, body, KEYS)
    crash(store)
    damage(log_file(tmp_path), RECORD_BYTES, bytes(HEAD_START.size))
    store, report = reopen(tmp_path, disk)
    assert [found.position for found in report.damages] == [RECORD_BYTES]
    assert all_bodies(store) == numbered(6)[0::2]
    assert all_bodies(store, queue_id=1) == numbered(6)[3::2]
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
