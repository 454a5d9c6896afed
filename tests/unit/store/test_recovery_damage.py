"""Damage in the middle of the log: it is passed over and reported, and the rest stays."""

import shutil
from pathlib import Path

import pytest
from unit.store.building import (
    KEYS,
    RECORD_BYTES,
    StagedDisk,
    all_bodies,
    damage,
    log_file,
    numbered,
    open_store,
    reopen,
    small_settings,
    written,
)

from downrange.protocol.record import PHYSICAL_OFFSET_POSITION
from downrange.protocol.record_crc import append_record_crc
from downrange.store.message_store import MessageStore


def test_damaged_record_becomes_a_hole_and_the_rest_stays(tmp_path: Path, disk: StagedDisk) -> None:
    written(tmp_path, disk, 100)
    damage(log_file(tmp_path, -1), RECORD_BYTES + 90, b"xx")  # within the body of the second
    store, report = reopen(tmp_path, disk)
    (found,) = report.damages
    assert (found.path, found.position, found.size) == (
        log_file(tmp_path, -1),
        RECORD_BYTES,
        RECORD_BYTES,
    )
    assert "checksum" in found.reason
    lost = (4088 // RECORD_BYTES) * (len(list((tmp_path / "commitlog").iterdir())) - 1) + 1
    expected = numbered(100)
    del expected[lost]
    assert all_bodies(store) == expected
    assert store.append("T", 0, b"next", b"").queue_offset == 100
    store.close()


def test_damaged_end_of_a_file_does_not_hide_the_files_behind(
    tmp_path: Path, disk: StagedDisk
) -> None:
    written(tmp_path, disk, 60)
    shutil.rmtree(tmp_path / "consumequeue")
    per_file = 4088 // RECORD_BYTES
    damage(log_file(tmp_path), (per_file - 1) * RECORD_BYTES + 4, b"oops")
    store, report = reopen(tmp_path, disk)
    assert len(report.damages) == 1
    expected = numbered(60)
    del expected[per_file - 1]
    assert all_bodies(store) == expected
    store.close()


@pytest.mark.parametrize("name", [b"/", b"\0", b"\xff"])
def test_topic_that_no_directory_can_have_is_damage(
    tmp_path: Path, disk: StagedDisk, name: bytes
) -> None:
    # Only the body has a checksum: a flipped bit makes "/" of "o".
    written(tmp_path, disk, 3)
    damage(log_file(tmp_path), RECORD_BYTES + 88 + 4 + 1, name)
    store, report = reopen(tmp_path, disk)
    assert [damage.position for damage in report.damages] == [RECORD_BYTES]
    assert "no topic can have the name" in report.damages[0].reason
    assert all_bodies(store) == [b"0000", b"0002"]
    assert [path.name for path in (tmp_path / "consumequeue").iterdir()] == ["T"]
    store.close()


@pytest.mark.parametrize("queue_offset", [1 << 40, -1, (1 << 62) + 1])
def test_queue_offset_that_cannot_be_is_damage(
    tmp_path: Path, disk: StagedDisk, queue_offset: int
) -> None:
    written(tmp_path, disk, 3)
    damage(log_file(tmp_path), RECORD_BYTES + 20, queue_offset.to_bytes(8, "big", signed=True))
    store, report = reopen(tmp_path, disk)
    assert [damage.position for damage in report.damages] == [RECORD_BYTES]
    assert "queue offset cannot be" in report.damages[0].reason
    assert all_bodies(store) == [b"0000", b"0002"]
    store.close()


def test_record_that_names_another_place_is_damage(tmp_path: Path, disk: StagedDisk) -> None:
    written(tmp_path, disk, 3)
    damage(log_file(tmp_path), RECORD_BYTES + PHYSICAL_OFFSET_POSITION, bytes(8))
    store, report = reopen(tmp_path, disk)
    assert "names 0 as its place" in report.damages[0].reason
    assert all_bodies(store) == [b"0000", b"0002"]
    store.close()


# --- the checksum over the whole record ---------------------------------------------------


def log_with_record_crc(root: Path, disk: StagedDisk, damaged_at: int | None) -> None:
    """A log of three records that carry a checksum over all of each."""
    store = open_store(root, disk=disk)
    data = b""
    for number in range(3):
        start = len(data)
        appended = store.append("T", 0, b"%04d" % number, KEYS)
        view = store.log.view(appended.physical_offset, appended.size)
        assert view is not None
        record = bytearray(view)
        record[PHYSICAL_OFFSET_POSITION : PHYSICAL_OFFSET_POSITION + 8] = start.to_bytes(8, "big")
        view.release()
        data += append_record_crc(bytes(record), len(KEYS))
    store.close()
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    log_file(root).write_bytes(data.ljust(4096, b"\0"))
    if damaged_at is not None:
        damage(log_file(root), damaged_at, b"\x07")


@pytest.mark.parametrize("check_whole", [False, True])
def test_whole_record_is_checked_only_if_asked_for(
    tmp_path: Path, disk: StagedDisk, check_whole: bool
) -> None:
    flag_of_the_second = RECORD_BYTES + 20 + 19
    log_with_record_crc(tmp_path, disk, flag_of_the_second)
    store = MessageStore(small_settings(tmp_path, check_whole_on_recover=check_whole), disk)
    report = store.open()
    assert len(report.damages) == check_whole
    assert all_bodies(store) == ([b"0000", b"0002"] if check_whole else numbered(3))
    store.close()


def test_sound_checksum_over_the_whole_record_is_accepted(tmp_path: Path, disk: StagedDisk) -> None:
    log_with_record_crc(tmp_path, disk, None)
    store = open_store(tmp_path, disk=disk, check_whole_on_recover=True)
    assert all_bodies(store) == numbered(3)
    store.close()
