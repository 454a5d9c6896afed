"""The scrubber finds damage before a reader does, says it once, and takes nothing else for it."""

import errno
from pathlib import Path

import pytest
from unit.store.building import (
    RECORD_BYTES,
    StagedDisk,
    damage,
    fill,
    log_file,
    numbered,
    open_store,
    queue_of,
)

from downrange.store import scrubber as scrubber_module
from downrange.store.consume_queue import ENTRY
from downrange.store.message_store import MessageStore
from downrange.store.scanner import Damage
from downrange.store.settings import RetentionSettings
from downrange.testing.clock import ManualClock
from downrange.testing.faulty_disk import FaultyDisk

KEYS = b"KEYS\x01k\x02"


@pytest.fixture(params=[64, 200, 1_000, 1 << 17])
def slice_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Slices shorter than a record, of about a record, of some, of whole files."""
    monkeypatch.setattr(scrubber_module, "SLICE_BYTES", request.param)
    assert isinstance(request.param, int)
    return request.param


def scrub(store: MessageStore) -> list[Damage]:
    """One whole pass; returns what is known after it."""
    passes = store.scrubber.pass_count
    slices = 0
    while store.scrubber.pass_count == passes:
        part = store.scrubber.begin(store.dispatched_offset)
        if part is not None:
            part.run()
            store.scrubber.finish(part)
        slices += 1
        assert slices < 10_000, "it does not get on"
    return store.scrubber.damages


def filled(root: Path, count: int = 130) -> MessageStore:
    store = open_store(root)
    store.scrubber._slice_bytes = scrubber_module.SLICE_BYTES
    fill(store, numbered(count), properties=KEYS)
    return store


@pytest.mark.usefixtures("slice_bytes")
def test_a_sound_log_of_several_files_is_sound_and_read_to_the_end(tmp_path: Path) -> None:
    store = filled(tmp_path)
    assert len(store.log.chain.segments) > 3
    assert scrub(store) == []
    assert store.scrubber.record_count == 130
    assert scrub(store) == []
    assert (store.scrubber.record_count, store.scrubber.pass_count) == (260, 2)
    store.close()


@pytest.mark.usefixtures("slice_bytes")
@pytest.mark.parametrize("number", [0, 7, 20])
@pytest.mark.parametrize("position", [0, 4, 28, 84, 90])  # size, magic, place, length, body
def test_a_flipped_byte_is_reported_once(
    tmp_path: Path, number: int, position: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = filled(tmp_path)
    with log_file(tmp_path).open("r+b") as file:
        file.seek(number * RECORD_BYTES + position)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 0x41]))
    (found,) = scrub(store)
    assert (found.path, found.position) == (log_file(tmp_path), number * RECORD_BYTES)
    assert store.scrubber.record_count == 129
    scrub(store)
    assert [record.message for record in caplog.records].count(f"scrubber: damaged: {found}") == 1
    store.close()


@pytest.mark.usefixtures("slice_bytes")
def test_a_lost_page_is_one_damage_and_what_follows_is_checked(tmp_path: Path) -> None:
    store = filled(tmp_path)
    damage(log_file(tmp_path, 1), 0, bytes(1_024))
    found = scrub(store)
    assert [(one.path, one.position) for one in found] == [(log_file(tmp_path, 1), 0)]
    assert store.scrubber.record_count == 130 - -(-1_024 // RECORD_BYTES)
    store.close()


@pytest.mark.usefixtures("slice_bytes")
def test_an_entry_that_points_elsewhere_is_found(tmp_path: Path) -> None:
    store = filled(tmp_path)
    path = queue_of(store).chain.segments[2].path
    damage(path, 3 * ENTRY.size, ENTRY.pack(4_711, 100, 0))
    (found,) = scrub(store)
    assert (found.path, found.position) == (path, 3 * ENTRY.size)
    assert "entry 23 points at 4711" in found.reason
    store.close()


@pytest.mark.usefixtures("slice_bytes")
def test_files_that_retention_deletes_during_a_pass_are_no_damage(
    tmp_path: Path, clock: ManualClock, disk: StagedDisk
) -> None:
    store = open_store(tmp_path, clock, disk, retention=RetentionSettings(delete_batch_max=1))
    fill(store, numbered(130), properties=KEYS)
    disk.used_ratio = 0.87  # the oldest files go
    part = store.scrubber.begin(store.dispatched_offset)
    assert part is not None
    assert store.expire_some() == 1
    part.run()
    store.scrubber.finish(part)
    assert scrub(store) == []
    part = store.scrubber.begin(store.dispatched_offset)
    assert part is not None
    part.run()
    assert store.expire_some() == 1
    store.scrubber.finish(part)
    assert scrub(store) == []
    store.close()


@pytest.mark.usefixtures("slice_bytes")
def test_a_record_that_is_being_written_is_no_damage(tmp_path: Path) -> None:
    store = filled(tmp_path, 10)
    store.append("T", 0, b"not dispatched yet", b"")
    damage(log_file(tmp_path), 10 * RECORD_BYTES, b"half a record")
    assert scrub(store) == []
    assert store.scrubber.record_count == 10
    store.abandon()


def test_queues_of_a_deleted_topic_are_no_damage(tmp_path: Path) -> None:
    store = filled(tmp_path, 10)
    fill(store, numbered(10), topic="other")
    store.delete_topic("T")
    assert scrub(store) == []
    fill(store, numbered(3))  # a new one of that name
    assert scrub(store) == []
    store.close()


def test_a_sector_that_cannot_be_read_is_reported_and_passed(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = open_store(tmp_path, disk=disk)
    fill(store, numbered(130), properties=KEYS)
    disk.fail("read_at", errno.EIO, path_contains="commitlog", times=1)
    (found,) = scrub(store)
    assert "Input/output error" in found.reason
    assert found.path == log_file(tmp_path)
    disk.heal()
    store.close()


def test_progress_survives_a_restart(tmp_path: Path) -> None:
    store = filled(tmp_path)
    part = store.scrubber.begin(store.dispatched_offset)
    assert part is not None
    part.run()
    store.scrubber.finish(part)
    offset = store.scrubber.offset
    assert offset > 0
    store.scrubber.save()
    store.close()
    again = open_store(tmp_path)
    again.scrubber.load()
    assert again.scrubber.offset == offset
    assert scrub(again) == []
    (tmp_path / "scrub.json").write_text("nonsense")
    again.scrubber.load()
    again.close()


def test_the_time_of_a_pass_is_known(tmp_path: Path, clock: ManualClock) -> None:
    store = open_store(tmp_path, clock)
    fill(store, numbered(3))
    store.scrubber.load()
    clock.advance(90_000)
    scrub(store)
    assert store.scrubber.pass_s == 90.0
    store.close()
