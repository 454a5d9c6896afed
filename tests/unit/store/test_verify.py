"""Verification finds each kind of damage, names file and position, and changes nothing."""

import random
from pathlib import Path

import pytest
from faults.stores import Sender, Sent, abandon, open_store, tiny_settings

from downrange.store.consume_queue import ENTRY, HOLE_TAG
from downrange.store.errors import StoreDamagedError
from downrange.store.settings import StoreSettings
from downrange.store.verify import VerifyReport, verify_open, verify_stopped


def write_store(root: Path, count: int = 45) -> tuple[StoreSettings, list[Sent]]:
    settings = tiny_settings(root)
    store = open_store(settings)
    sent = Sender(store, random.Random(7), body_max=200).send(count)
    store.close()
    return settings, sent


def flip(path: Path, position: int, mask: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def verify_unchanged(settings: StoreSettings) -> VerifyReport:
    before = contents(settings.root)
    report = verify_stopped(settings)
    assert contents(settings.root) == before
    return report


def log_file(settings: StoreSettings, message: Sent) -> tuple[Path, int]:
    position = message.physical_offset % settings.segment_bytes
    path = settings.commit_log_path / f"{message.physical_offset - position:020d}"
    return path, position


def queue_file(settings: StoreSettings, message: Sent) -> tuple[Path, int]:
    per_file = settings.queue_entries
    base = message.queue_offset // per_file * per_file * 20
    directory = settings.consume_queue_path / message.topic / str(message.queue_id)
    return directory / f"{base:020d}", message.queue_offset * 20 - base


def test_a_sound_store_is_found_sound_open_and_stopped(tmp_path: Path) -> None:
    settings, sent = write_store(tmp_path)
    report = verify_unchanged(settings)
    assert report.is_sound, report.damages
    assert report.record_count == len(sent)
    assert report.entry_count == sum(message.queued for message in sent)
    assert report.key_count == sum(len(message.keys) for message in sent)
    assert report.hole_count == 0
    store = open_store(settings)
    assert verify_open(store) == report
    store.close()


def test_what_waits_for_dispatch_is_not_missed(tmp_path: Path) -> None:
    store = open_store(tiny_settings(tmp_path))
    Sender(store, random.Random(1), body_max=50).send(10)
    store.append("orders", 0, b"not visible yet", b"KEYS\x01k")
    assert verify_open(store).is_sound
    store.close()


def test_a_damaged_body_is_found_by_its_checksum(tmp_path: Path) -> None:
    settings, sent = write_store(tmp_path)
    hit = next(m for m in sent if m.queued and m.body)
    path, position = log_file(settings, hit)
    flip(path, position + hit.size - len(hit.properties) - 3 - len(hit.topic) - 1)
    report = verify_unchanged(settings)
    assert (path, position, hit.size) in [(d.path, d.position, d.size) for d in report.damages]
    assert "checksum" in report.damages[0].reason


def test_a_damaged_last_record_of_an_open_store_is_found(tmp_path: Path) -> None:
    store = open_store(tiny_settings(tmp_path))
    sent = Sender(store, random.Random(1), body_max=50).small("orders", 0, 3)
    segment = store.log.chain.segments[-1]
    segment.map[sent[-1].physical_offset + 90] ^= 1
    report = verify_open(store)
    assert next(damage.position for damage in report.damages) == sent[-1].physical_offset
    abandon(store)


@pytest.mark.parametrize(("at", "field"), [(7, "offset"), (11, "size"), (19, "tag code")])
def test_a_wrong_queue_entry_is_found_in_each_field(tmp_path: Path, at: int, field: str) -> None:
    settings, sent = write_store(tmp_path)
    hit = next(m for m in sent if m.queued)
    path, position = queue_file(settings, hit)
    flip(path, position + at)
    (damage,) = verify_unchanged(settings).damages
    assert (damage.path, damage.position, damage.size) == (path, position, 20), field
    assert str(hit.physical_offset) in damage.reason


def test_a_dangling_and_a_missing_entry_are_found(tmp_path: Path) -> None:
    settings, sent = write_store(tmp_path)
    last = [m for m in sent if m.queued and (m.topic, m.queue_id) == ("orders", 0)][-1]
    path, position = queue_file(settings, last)
    data = bytearray(path.read_bytes())
    data[position : position + 20] = bytes(20)
    path.write_bytes(data)
    (damage,) = verify_unchanged(settings).damages
    assert (damage.path, damage.position) == (path, position)
    assert "missing" in damage.reason
    more = ENTRY.pack(last.physical_offset + 1, 200, 0)
    data[position : position + 40] = (
        ENTRY.pack(last.physical_offset, last.size, last.tag_code) + more
    )
    path.write_bytes(data[: settings.queue_entries * 20])
    if position + 40 <= settings.queue_entries * 20:
        (damage,) = verify_unchanged(settings).damages
        assert (damage.path, damage.position) == (path, position + 20)
        assert "no such message" in damage.reason


def test_a_hole_is_counted_and_is_no_damage_of_the_queue(tmp_path: Path) -> None:
    settings, sent = write_store(tmp_path)
    hit = next(m for m in sent if m.queued and m.body)
    path, position = queue_file(settings, hit)
    data = bytearray(path.read_bytes())
    data[position : position + 20] = ENTRY.pack(hit.physical_offset, hit.size, HOLE_TAG)
    path.write_bytes(data)
    log_path, log_position = log_file(settings, hit)
    flip(log_path, log_position + 8)
    report = verify_unchanged(settings)
    assert report.hole_count == 1
    assert {damage.path for damage in report.damages} == {log_path}


def test_a_key_that_the_index_cannot_reach_is_found(tmp_path: Path) -> None:
    settings, sent = write_store(tmp_path)
    path = min(settings.index_path.iterdir())
    data = bytearray(path.read_bytes())
    data[40 : 40 + settings.index_slots * 4] = bytes(settings.index_slots * 4)
    path.write_bytes(data)
    report = verify_unchanged(settings)
    first = next(message for message in sent if message.keys)
    assert report.damages[0].position == first.physical_offset
    assert first.keys[0] in report.damages[0].reason


def test_a_queue_without_files_is_found_and_one_of_a_deleted_topic_is_not(tmp_path: Path) -> None:
    settings, sent = write_store(tmp_path)
    store = open_store(settings)
    assert store.delete_topic("audit") > 0
    store.close()
    assert verify_unchanged(settings).is_sound
    for path in (settings.consume_queue_path / "orders" / "0").iterdir():
        path.unlink()
    count = sum(m.queued and (m.topic, m.queue_id) == ("orders", 0) for m in sent)
    (settings.consume_queue_path / "orders" / "0").rmdir()
    (damage,) = verify_unchanged(settings).damages
    assert damage.path == settings.consume_queue_path / "orders" / "0"
    assert str(count) in damage.reason


def test_short_files_are_verified_as_they_are(tmp_path: Path) -> None:
    settings, _ = write_store(tmp_path)
    newest = max(settings.commit_log_path.iterdir())
    newest.write_bytes(newest.read_bytes().rstrip(b"\0"))
    assert verify_unchanged(settings).is_sound
    index = min(settings.index_path.iterdir())
    index.write_bytes(index.read_bytes()[:50])
    report = verify_unchanged(settings)
    assert report.damages[0].path == index


def test_files_that_cannot_be_this_store_are_refused(tmp_path: Path) -> None:
    settings, _ = write_store(tmp_path)
    (settings.commit_log_path / f"{settings.segment_bytes:020d}").unlink()
    with pytest.raises(StoreDamagedError, match="does not follow"):
        verify_stopped(settings)
