"""Records with a checksum over all of them: on every path into the log, and checked again."""

from pathlib import Path

import pytest
from unit.store.building import StagedDisk, damage, log_file, numbered, open_store, reopen

from downrange.protocol.batch import encode_batch
from downrange.protocol.properties import PROPERTIES_BYTES_MAX, decode_properties
from downrange.protocol.record import Record, decode_record, decode_records
from downrange.protocol.record_crc import RECORD_CRC_BYTES, check_record_crc
from downrange.store.errors import AppendRefusedError, PutStatus
from downrange.store.message_store import MessageStore
from downrange.store.verify import verify_open, verify_stopped
from downrange.testing.clock import ManualClock

# Written by RocketMQ 5.5.0 with enabledAppendPropCRC, one behind the other, as the first three of
# queue 1 of TopicTest: texts that end in 0x02, that do not, and that are empty.
JAVA_RECORDS = [
    bytes.fromhex(text)
    for text in (
        "00000093daa320a77036e9920000000100000000000000000000000000000000000000000000000000000"
        "18bcfe568010a0102030000c351000001a1e11b7f660a01020300002a9f00000000000000000000000000"
        "00000668656c6c6f3009546f7069635465737400294b455953016b31206b3202544147530154616741025"
        "f5f435243333223013636343830333734333102",
        "00000086daa320a70731d9040000000100000000000000000000000100000000000000930000000000000"
        "18bcfe568010a0102030000c351000001a1e11b7f840a01020300002a9f00000000000000000000000000"
        "00000668656c6c6f3109546f70696354657374001c4b455953016b31025f5f43524333322301363839353"
        "3303937353002",
        "00000078daa320a7000000000000000100000000000000000000000200000000000001190000000000000"
        "18bcfe568010a0102030000c351000001a1e11b7f850a01020300002a9f00000000000000000000000000"
        "00000009546f7069635465737400145f5f435243333223013631333632323331333102",
    )
]
SENT = (b"KEYS\x01k1 k2\x02TAGS\x01TagA\x02", b"KEYS\x01k1", b"")
STALE = b"A\x01b\x02__CRC32#\x011234567890\x02"


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock, disk: StagedDisk) -> MessageStore:
    return open_store(tmp_path, clock, disk, append_record_crc=True)


def raw_records(store: MessageStore) -> list[bytes]:
    view = store.log.view(0, store.log.max_offset)
    assert view is not None
    raw = bytes(view)
    records = []
    while raw:
        size = int.from_bytes(raw[:4], "big")
        records.append(raw[:size])
        raw = raw[size:]
    return records


def test_records_are_those_of_rocketmq_byte_for_byte(tmp_path: Path, clock: ManualClock) -> None:
    store = open_store(
        tmp_path, clock, append_record_crc=True, store_host=b"\x0a\x01\x02\x03\x00\x00\x2a\x9f"
    )
    for data, sent in zip(JAVA_RECORDS, SENT, strict=True):
        record: Record = decode_record(data)
        clock.jump_to(record.store_timestamp)
        store.append(
            "TopicTest", 1, record.body, sent, 0, 0, record.born_timestamp, record.born_host
        )
    assert raw_records(store) == JAVA_RECORDS
    store.close()


def test_every_path_into_the_log_writes_the_checksum(store: MessageStore) -> None:
    store.append("T", 0, b"one", b"")
    run = [(0, b"%d" % number, SENT[1], 0, 0, 0, bytes(8), 0, 0, [b"k1"]) for number in range(3)]
    assert len(store.append_run("T", run)) == 3
    alike = [(0, b"body", SENT[0]), (0, b"BODY", SENT[0])]
    different = [(0, b"long body", SENT[1]), (0, b"", b"")]
    for batch in (alike, different):
        assert len(store.append_batch("T", 0, encode_batch(batch))) == 2
    records = raw_records(store)
    assert len(records) == 8
    assert [check_record_crc(record) for record in records] == [True] * 8
    store.close()


def test_a_checksum_of_a_former_record_is_replaced(store: MessageStore) -> None:
    store.append("T", 0, b"one", STALE)
    store.append_batch("T", 0, encode_batch([(0, b"two", STALE)]))
    for data in raw_records(store):
        assert check_record_crc(data) is True
        assert data.count(b"__CRC32#") == 1
        assert decode_properties(decode_record(data).properties)["A"] == "b"
    store.close()


def test_consumers_and_listeners_see_the_text_that_was_stored(store: MessageStore) -> None:
    seen: list[bytes] = []
    store.add_listener(lambda *arrival: seen.append(arrival[-1]))
    store.append("T", 0, b"one", SENT[0])
    store.append_batch("T", 0, encode_batch([(0, b"two", SENT[0])]))
    store.flush_now()
    store.dispatch_some()
    result = store.read("T", 0, 0, 32)
    texts = [record.properties for view in result.views for record in decode_records(view)]
    assert seen == texts
    store.close()


def test_a_text_that_leaves_no_room_is_refused(store: MessageStore) -> None:
    text = b"A\x01" + b"x" * (PROPERTIES_BYTES_MAX - RECORD_CRC_BYTES - 2) + b"\x02"
    assert len(text) == PROPERTIES_BYTES_MAX - RECORD_CRC_BYTES + 1
    with pytest.raises(AppendRefusedError) as refused:
        store.append("T", 0, b"", text)
    assert refused.value.status is PutStatus.PROPERTIES_TOO_LONG
    with pytest.raises(AppendRefusedError) as refused:
        store.append_batch("T", 0, encode_batch([(0, b"", text)]))
    assert refused.value.status is PutStatus.PROPERTIES_TOO_LONG
    store.close()


@pytest.mark.parametrize("position", [16, 38, 44])  # flag, born timestamp: no other sum has them
def test_damage_outside_the_body_is_found_by_verify_and_at_start(
    tmp_path: Path, store: MessageStore, disk: StagedDisk, position: int
) -> None:
    for body in numbered(3):
        store.append("T", 0, body, SENT[0])
    store.flush_now()
    store.dispatch_some()
    size = len(raw_records(store)[0])
    assert verify_open(store).is_sound
    store.close()
    damage(log_file(tmp_path), size + position, b"\x55")
    unaware, report = reopen(tmp_path, disk)
    assert report.damages == []  # the setting is off: nobody checks
    unaware.close()
    aware = MessageStore(store.settings, disk, ManualClock())
    assert [one.position for one in aware.open().damages] == [size]
    aware.close()
    assert [one.position for one in verify_stopped(store.settings).damages] == [size]
