"""When files go: by age, by the hour, by how full the disk is."""

import gc
from datetime import datetime
from pathlib import Path

import pytest
from unit.store.building import StagedDisk, fill, numbered, open_store

from downrange.store.errors import AppendRefusedError
from downrange.store.message_store import MessageStore
from downrange.store.retention import HOUR_MS, MANUAL_ROUNDS, parse_hours
from downrange.store.settings import RetentionSettings
from downrange.testing.clock import ManualClock

KEYS = b"KEYS\x01k\x02"


def noon_ms() -> int:
    """A noon in local time: an hour at which nothing is deleted by default."""
    return int(datetime(2023, 11, 15, 12).astimezone().timestamp() * 1000)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(noon_ms())


@pytest.fixture
def filled(store: MessageStore, disk: StagedDisk, clock: ManualClock) -> MessageStore:
    """A log of four files, the first two of which are older than 72 hours."""
    fill(store, numbered(130), properties=KEYS)
    names = [segment.path.name for segment in store.log.chain.segments]
    assert len(names) == 4
    old, young = clock.wall_ms() - 72 * HOUR_MS, clock.wall_ms() - 72 * HOUR_MS + 1
    disk.modified = dict(zip(names, (old, old, young, young), strict=True))
    return store


def files(store: MessageStore) -> int:
    return len(list((store.settings.root / "commitlog").iterdir()))


def to_hour(clock: ManualClock, hour: int) -> None:
    clock.advance((hour - 12) * HOUR_MS)


def keep_ages(disk: StagedDisk, milliseconds: int) -> None:
    disk.modified = {name: at + milliseconds for name, at in disk.modified.items()}


def test_expired_files_wait_for_the_hour(
    filled: MessageStore, clock: ManualClock, disk: StagedDisk
) -> None:
    assert filled.expire_some() == 0
    to_hour(clock, 4)
    keep_ages(disk, -8 * HOUR_MS)
    assert filled.expire_some() == 2
    assert files(filled) == 2
    assert filled.expire_some() == 0  # the others are not old enough


def test_over_75_percent_expired_files_go_at_any_hour(
    filled: MessageStore, disk: StagedDisk
) -> None:
    disk.used_ratio = 0.75
    assert filled.expire_some() == 0
    disk.used_ratio = 0.751
    assert filled.expire_some() == 2
    assert filled.expire_some() == 0


def test_over_85_percent_files_go_whatever_their_age(
    filled: MessageStore, disk: StagedDisk
) -> None:
    disk.used_ratio = 0.85
    assert filled.expire_some() == 2
    disk.used_ratio = 0.851
    assert filled.expire_some() == 1
    assert files(filled) == 1


def test_newest_file_always_stays(filled: MessageStore, disk: StagedDisk) -> None:
    disk.used_ratio = 0.99
    filled.expire_some()
    assert filled.expire_some() == 0
    assert files(filled) == 1
    assert filled.log.max_offset > filled.log.min_offset


def test_deletion_by_force_can_be_switched_off(tmp_path: Path, disk: StagedDisk) -> None:
    store = open_store(
        tmp_path,
        ManualClock(noon_ms()),
        disk,
        retention=RetentionSettings(force_enabled=False, file_reserved_hours=10**6),
    )
    fill(store, numbered(130))
    disk.used_ratio = 0.99
    assert store.expire_some() == 0
    store.close()


def test_over_90_percent_no_message_is_taken(store: MessageStore, disk: StagedDisk) -> None:
    disk.used_ratio = 0.90
    store.expire_some()
    store.append("T", 0, b"x", b"")
    disk.used_ratio = 0.901
    store.expire_some()
    with pytest.raises(AppendRefusedError, match=r"90\.1% full"):
        store.append("T", 0, b"x", b"")
    disk.used_ratio = 0.90
    store.expire_some()
    store.append("T", 0, b"x", b"")


def test_full_disk_is_noticed_at_start(tmp_path: Path, disk: StagedDisk) -> None:
    disk.used_ratio = 0.95
    store = open_store(tmp_path, disk=disk)
    with pytest.raises(AppendRefusedError, match=r"95\.0% full"):
        store.append("T", 0, b"x", b"")
    store.close()


def test_operator_may_ask_for_it_and_is_heard_for_twenty_rounds(
    filled: MessageStore, clock: ManualClock
) -> None:
    filled.retention.request_now()
    assert filled.expire_some() == 2
    for _ in range(MANUAL_ROUNDS - 2):
        assert filled.expire_some() == 0
    clock.advance(24 * HOUR_MS)  # noon again, and the third file is old enough
    assert filled.expire_some() == 1
    clock.advance(24 * HOUR_MS)
    assert filled.expire_some() == 0


def test_one_round_deletes_no_more_than_a_batch(tmp_path: Path, disk: StagedDisk) -> None:
    settings = RetentionSettings(delete_batch_max=2)
    store = open_store(tmp_path, ManualClock(noon_ms()), disk, retention=settings)
    fill(store, numbered(250))
    disk.used_ratio = 0.86
    before = files(store)
    assert store.expire_some() == 2
    assert files(store) == before - 2
    store.close()


def test_file_that_somebody_reads_stays_until_he_is_done(
    filled: MessageStore, disk: StagedDisk
) -> None:
    disk.used_ratio = 0.80
    result = filled.read("T", 0, 0, 1)
    assert filled.expire_some() == 0
    assert result.views[0].nbytes == result.size
    del result
    gc.collect()
    assert filled.expire_some() == 2


def test_files_behind_one_that_is_read_stay_too(filled: MessageStore, disk: StagedDisk) -> None:
    disk.used_ratio = 0.86
    second = filled.log.chain.segments[1]
    view = memoryview(second.map)[:4]
    assert filled.expire_some() == 1
    assert filled.log.min_offset == second.base_offset
    view.release()
    del view
    assert filled.expire_some() == 2


def test_file_that_is_being_synced_stays(
    tmp_path: Path, disk: StagedDisk, clock: ManualClock
) -> None:
    store = open_store(tmp_path, clock, disk)
    for body in numbered(130):
        store.append("T", 0, body, KEYS)
    store.dispatch_some()
    disk.used_ratio = 0.86
    job = store.begin_flush()
    assert job is not None
    assert store.expire_some() == 0
    job.run()
    store.finish_flush(job)
    assert store.expire_some() == 3
    store.close()


def test_file_whose_messages_wait_for_dispatch_stays(store: MessageStore, disk: StagedDisk) -> None:
    for body in numbered(130):
        store.append("T", 0, body, KEYS)
    store.flush_now()
    store.dispatch_some(50)
    disk.used_ratio = 0.86
    assert store.expire_some() == 1
    store.dispatch_some()
    assert store.expire_some() == 2


def test_queues_and_index_follow_the_log(filled: MessageStore, disk: StagedDisk) -> None:
    index = filled.index
    assert index is not None
    index_files = len(index.files)
    assert len(filled.queues.of_topic("T")[0].chain.segments) == 13
    disk.used_ratio = 0.80
    filled.expire_some()
    queue = filled.queues.of_topic("T")[0]
    first_left = queue.min_offset
    assert queue.entry(first_left)[0] == filled.log.min_offset
    assert queue.chain.min_offset // 20 <= first_left < queue.chain.min_offset // 20 + 10
    assert len(index.files) < index_files
    assert index.files[0].end_offset >= filled.log.min_offset
    result = filled.read("T", 0, 0, 1)
    assert (result.next_offset, result.min_offset) == (first_left, first_left)
    assert len(filled.lookup.query("T", "k").records) == min(64, 130 - first_left)


def test_queue_all_of_whose_messages_are_gone_keeps_its_next_offset(
    store: MessageStore, disk: StagedDisk, tmp_path: Path, clock: ManualClock
) -> None:
    fill(store, numbered(3), topic="U")
    fill(store, numbered(130))
    disk.used_ratio = 0.86
    store.expire_some()
    queue = store.queues.of_topic("U")[0]
    assert (queue.min_offset, queue.max_offset) == (3, 3)
    store.close()
    disk.used_ratio = 0.10
    again = open_store(tmp_path, clock, disk)
    assert again.append("U", 0, b"x", b"").queue_offset == 3
    queue = again.queues.of_topic("U")[0]
    assert (queue.min_offset, queue.max_offset) == (3, 3)
    again.close()


def test_bounds_are_the_same_after_a_restart(
    filled: MessageStore, disk: StagedDisk, tmp_path: Path, clock: ManualClock
) -> None:
    disk.used_ratio = 0.80
    filled.expire_some()
    before = filled.read("T", 0, 0, 1)[4:7]
    filled.close()
    again = open_store(tmp_path, clock, disk)
    assert again.read("T", 0, 0, 1)[4:7] == before
    again.close()


@pytest.mark.parametrize(
    ("text", "hours"), [("04", {4}), ("4", {4}), ("04;16", {4, 16}), ("00;23", {0, 23})]
)
def test_hours_of_deletion(text: str, hours: set[int]) -> None:
    assert parse_hours(text) == hours


@pytest.mark.parametrize("text", ["", "24", "4,16", "four", "-1", "04;"])
def test_hours_that_cannot_be_are_refused_with_the_setting(text: str) -> None:
    with pytest.raises(ValueError, match="deleteWhen="):
        parse_hours(text)
