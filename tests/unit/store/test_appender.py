"""What is taken into the log, what is refused and why; nothing of a refused message is stored."""

from pathlib import Path

import pytest
from unit.store.building import (
    HEAD_AND_LENGTHS,
    SEGMENT_BYTES,
    StagedDisk,
    bodies_of,
    input_output_error,
    make_writes_slow,
    no_space,
    open_store,
    records_of,
)

from downrange.protocol.batch import encode_batch
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.hosts import encode_host
from downrange.protocol.record import MAGIC_V1, MAGIC_V2, Record, decode_record
from downrange.protocol.sys_flag import (
    BORN_HOST_V6,
    STORE_HOST_V6,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from downrange.store.appended import Appended
from downrange.store.errors import AppendRefusedError, PutStatus
from downrange.store.message_store import MessageStore
from downrange.testing.clock import ManualClock

LONG_RETRY_TOPIC = "%RETRY%" + "g" * 248


def record_of(store: MessageStore, appended: Appended) -> Record:
    view = store.log.view(appended.physical_offset, appended.size)
    assert view is not None
    return decode_record(view)


def refused(
    store: MessageStore,
    topic: str = "T",
    body: bytes = b"x",
    properties: bytes = b"",
) -> AppendRefusedError:
    """The refusal of a message, after a look whether it left nothing behind."""
    before = store.log.max_offset, len(store.queues)
    with pytest.raises(AppendRefusedError) as caught:
        store.append(topic, 0, body, properties)
    assert (store.log.max_offset, len(store.queues)) == before
    return caught.value


def refused_batch(
    store: MessageStore, messages: list[tuple[int, bytes, bytes]], topic: str = "T"
) -> AppendRefusedError:
    before = store.log.max_offset
    with pytest.raises(AppendRefusedError) as caught:
        store.append_batch(topic, 0, encode_batch(messages))
    assert store.log.max_offset == before
    return caught.value


def test_record_has_what_was_given_and_what_the_store_knows(
    store: MessageStore, clock: ManualClock
) -> None:
    store.append("T", 0, b"first", b"")
    born_host = encode_host("10.0.0.1", 5000)
    appended = store.append("T", 0, b"body", b"A\x01b\x02", 1, 7, 123, born_host, 2, 99)
    first_size = HEAD_AND_LENGTHS + 1 + 5
    assert appended == (first_size, HEAD_AND_LENGTHS + 1 + 4 + 4, 1, clock.wall_ms())
    assert appended.end_offset == store.log.max_offset
    assert record_of(store, appended) == Record(
        queue_id=0,
        flag=7,
        queue_offset=1,
        physical_offset=first_size,
        sys_flag=1,
        born_timestamp=123,
        born_host=born_host,
        store_timestamp=clock.wall_ms(),
        store_host=store.settings.store_host,
        reconsume_times=2,
        prepared_offset=99,
        body=b"body",
        topic=b"T",
        properties=b"A\x01b\x02",
    )


def test_queue_offsets_count_in_each_queue(store: MessageStore) -> None:
    places = [("T", 0), ("T", 1), ("U", 0), ("T", 0), ("U", 0)]
    offsets = [store.append(topic, queue, b"x", b"").queue_offset for topic, queue in places]
    assert offsets == [0, 0, 0, 1, 1]


def test_hosts_may_be_ipv6(tmp_path: Path) -> None:
    host = encode_host("2001:db8::1", 10911)
    store = open_store(tmp_path, store_host=host)
    appended = store.append("T", 0, b"x", b"", BORN_HOST_V6, born_host=host)
    record = record_of(store, appended)
    assert record.sys_flag == BORN_HOST_V6 | STORE_HOST_V6
    assert (record.born_host, record.store_host) == (host, host)
    store.close()


def test_empty_body_and_empty_properties_are_taken(store: MessageStore) -> None:
    assert record_of(store, store.append("T", 0, b"", b"")).body == b""


# --- refusals -----------------------------------------------------------------------------


def test_closed_store_takes_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.close()
    refusal = refused(store)
    assert (refusal.status, refusal.remark) == (PutStatus.SHUT_DOWN, "the store is not open")


def test_slave_takes_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path, is_slave=True)
    assert refused(store).status is PutStatus.SLAVE
    store.close()


def test_full_disk_stops_writing_until_there_is_room_again(
    store: MessageStore, disk: StagedDisk
) -> None:
    disk.used_ratio = 0.91
    store.expire_some()
    refusal = refused(store)
    assert refusal.status is PutStatus.DISK_FULL
    assert "91.0% full, over the limit of 90%" in refusal.remark
    disk.used_ratio = 0.90
    store.expire_some()
    store.append("T", 0, b"x", b"")


def test_failed_sync_makes_the_store_read_only(store: MessageStore, disk: StagedDisk) -> None:
    store.append("T", 0, b"x", b"")
    disk.on_sync = input_output_error
    assert not store.flush_now()
    refusal = refused(store)
    assert refusal.status is PutStatus.NOT_WRITABLE
    assert "Input/output error" in refusal.remark
    assert "restart when the disk is sound" in refusal.remark
    refused_batch(store, [(0, b"x", b"")])


@pytest.mark.parametrize("topic", ["t" * 128, "ü" * 64, ""])
def test_topic_has_at_most_127_bytes(store: MessageStore, topic: str) -> None:
    refusal = refused(store, topic=topic)
    assert refusal.status is PutStatus.TOPIC_TOO_LONG
    assert f"has {len(topic.encode())} bytes, it must have 1 to 127" in refusal.remark


def test_topic_of_127_bytes_is_taken_in_the_first_version(store: MessageStore) -> None:
    assert record_of(store, store.append("t" * 127, 0, b"x", b"")).magic == MAGIC_V1


def test_retry_topic_may_have_255_bytes_and_then_is_of_the_second_version(
    store: MessageStore,
) -> None:
    record = record_of(store, store.append(LONG_RETRY_TOPIC, 0, b"x", b""))
    assert (record.magic, record.topic) == (MAGIC_V2, LONG_RETRY_TOPIC.encode())
    assert record_of(store, store.append("%RETRY%g", 0, b"x", b"")).magic == MAGIC_V1
    refusal = refused(store, topic=LONG_RETRY_TOPIC + "g")
    assert "has 256 bytes, it must have 1 to 255" in refusal.remark


def test_long_retry_topics_can_be_switched_off(tmp_path: Path) -> None:
    store = open_store(tmp_path, long_topics_enabled=False)
    assert refused(store, topic=LONG_RETRY_TOPIC).status is PutStatus.TOPIC_TOO_LONG
    store.close()


def test_body_has_a_limit(tmp_path: Path) -> None:
    store = open_store(tmp_path, message_bytes_max=100)
    store.append("T", 0, bytes(100), b"")
    refusal = refused(store, body=bytes(101))
    assert refusal.status is PutStatus.BODY_TOO_LARGE
    assert refusal.remark == "the body has 101 bytes, the limit is 100"
    store.close()


def test_record_must_fit_into_a_file_of_the_log(store: MessageStore) -> None:
    fits = SEGMENT_BYTES - 8 - HEAD_AND_LENGTHS - 1
    store.append("T", 0, bytes(fits), b"")
    refusal = refused(store, body=bytes(fits + 1))
    assert refusal.status is PutStatus.BODY_TOO_LARGE
    assert refusal.remark == "4089 bytes do not fit into a log file of 4096 bytes"


def test_properties_have_a_limit(tmp_path: Path) -> None:
    store = open_store(tmp_path, segment_bytes=1 << 16)
    store.append("T", 0, b"x", bytes(32_767))
    refusal = refused(store, properties=bytes(32_768))
    assert refusal.status is PutStatus.PROPERTIES_TOO_LONG
    assert refusal.remark == "the property text has 32768 bytes, the limit is 32767"
    store.close()


def test_no_room_for_the_next_file_is_told_with_its_cause(
    store: MessageStore, disk: StagedDisk
) -> None:
    store.append("T", 0, bytes(2000), b"")
    disk.on_allocate = no_space
    refusal = refused(store, body=bytes(3000))
    assert refusal.status is PutStatus.SEGMENT_FAILED
    assert "no room for 3092 bytes" in refusal.remark
    assert "No space left" in refusal.remark
    disk.on_allocate = lambda: None
    assert store.append("T", 0, bytes(3000), b"").physical_offset == SEGMENT_BYTES


def test_every_refusal_has_the_name_that_rocketmq_answers() -> None:
    names = {status.name: status.rocketmq_name for status in PutStatus}
    assert names["TOPIC_TOO_LONG"] == names["BODY_TOO_LARGE"] == "MESSAGE_ILLEGAL"
    assert names["SLAVE"] == names["DISK_FULL"] == "SERVICE_NOT_AVAILABLE"
    assert names["PROPERTIES_TOO_LONG"] == "PROPERTIES_SIZE_EXCEEDED"
    assert names["PAGE_CACHE_BUSY"] == "OS_PAGE_CACHE_BUSY"
    assert names["SEGMENT_FAILED"] == "CREATE_MAPPED_FILE_FAILED"


# --- page cache busy ----------------------------------------------------------------------


def test_append_that_takes_too_long_keeps_others_out_for_a_while(
    store: MessageStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_writes_slow(store, clock, monkeypatch, [1000, 1001])
    store.append("T", 0, b"a", b"")
    store.append("T", 0, b"b", b"")  # took longer than allowed, but it is stored
    refusal = refused(store)
    assert refusal.status is PutStatus.PAGE_CACHE_BUSY
    assert "waited more than 1000 ms" in refusal.remark
    assert "try again in 1001 ms" in refusal.remark
    clock.advance(999)
    assert "try again in 2 ms" in refused(store).remark
    clock.advance(1)
    store.append("T", 0, b"c", b"")


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_step_of_the_wall_clock_neither_prolongs_nor_ends_it(
    store: MessageStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, step_ms: int
) -> None:
    make_writes_slow(store, clock, monkeypatch, [5000])
    store.append("T", 0, b"a", b"")
    clock.jump_to(clock.wall_ms() + step_ms)
    assert refused(store).status is PutStatus.PAGE_CACHE_BUSY
    clock.advance(1_000)
    store.append("T", 0, b"b", b"")


def test_wall_clock_that_is_set_forward_during_an_append_keeps_nobody_out(
    store: MessageStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = store.log.write

    def write_during_a_step(head: bytes, rest: bytes) -> None:
        clock.jump_to(clock.wall_ms() + 3_600_000)
        write(head, rest)

    monkeypatch.setattr(store.log, "write", write_during_a_step)
    store.append("T", 0, b"a", b"")
    store.append("T", 0, b"b", b"")


def test_batch_that_takes_too_long_is_stored_and_keeps_others_out(
    store: MessageStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_writes_slow(store, clock, monkeypatch, [2000])
    batch = encode_batch([(0, b"a", b""), (0, b"b", b""), (0, b"c", b"")])
    assert len(store.append_batch("T", 0, batch)) == 3
    assert refused(store).status is PutStatus.PAGE_CACHE_BUSY
    assert refused_batch(store, [(0, b"d", b"")]).status is PutStatus.PAGE_CACHE_BUSY


# --- batches ------------------------------------------------------------------------------


def test_messages_of_a_batch_stand_side_by_side(store: MessageStore) -> None:
    store.append("T", 0, b"x", b"")
    messages = [(number, b"body%d" % number, b"P\x01%d\x02" % number) for number in range(3)]
    appended = store.append_batch(
        "T", 0, encode_batch(messages), 0, 123, encode_host("10.0.0.1", 1)
    )
    assert [one.queue_offset for one in appended] == [1, 2, 3]
    assert appended[0].end_offset == appended[1].physical_offset
    assert appended[1].end_offset == appended[2].physical_offset
    store.dispatch_some()
    records = records_of(store.read("T", 0, 1, 10))
    assert [(record.flag, record.body, record.properties) for record in records] == messages
    assert {record.born_timestamp for record in records} == {123}


def test_batch_goes_into_one_file(store: MessageStore) -> None:
    store.append("T", 0, bytes(3000), b"")
    batch = encode_batch([(0, bytes(400), b""), (0, bytes(600), b"")])
    appended = store.append_batch("T", 0, batch)
    assert appended[0].physical_offset == SEGMENT_BYTES  # although the first alone would fit
    store.dispatch_some()
    assert store.read("T", 0, 0, 10).message_count == 3


def test_batch_that_cannot_be_stored_whole_is_not_stored_at_all(store: MessageStore) -> None:
    good = (0, b"x", b"")
    before = store.log.max_offset
    with pytest.raises(RemoteProtocolError, match="ends within message 1"):
        store.append_batch("T", 0, encode_batch([good, good])[:-1])
    assert store.log.max_offset == before
    too_large = refused_batch(store, [good, (0, bytes(4000), b"")])
    assert too_large.status is PutStatus.BODY_TOO_LARGE
    empty = refused_batch(store, [])
    assert (empty.status, empty.remark) == (PutStatus.BATCH_ILLEGAL, "the batch holds no message")
    assert len(store.queues) == 0


def test_sum_of_the_bodies_of_a_batch_has_the_limit_of_a_message(tmp_path: Path) -> None:
    store = open_store(tmp_path, message_bytes_max=100)
    refusal = refused_batch(store, [(0, bytes(60), b""), (0, bytes(41), b"")])
    assert refusal.remark == "the body has 101 bytes, the limit is 100"
    store.close()


@pytest.mark.parametrize("topic", ["%RETRY%group", LONG_RETRY_TOPIC])
def test_retry_topics_take_no_batches(store: MessageStore, topic: str) -> None:
    refusal = refused_batch(store, [(0, b"x", b"")], topic)
    assert refusal.status is PutStatus.BATCH_ILLEGAL
    assert "takes no batches" in refusal.remark


def test_no_room_for_a_batch_leaves_no_part_of_it(store: MessageStore, disk: StagedDisk) -> None:
    store.append("T", 0, bytes(3000), b"")
    disk.on_allocate = no_space
    refusal = refused_batch(store, [(0, bytes(400), b""), (0, bytes(600), b"")])
    assert refusal.status is PutStatus.SEGMENT_FAILED


# --- what the queue gets ------------------------------------------------------------------


@pytest.mark.parametrize("flag", [TRANSACTION_PREPARED, TRANSACTION_ROLLBACK])
def test_prepared_and_rolled_back_records_have_no_place_in_the_queue(
    store: MessageStore, flag: int
) -> None:
    store.append("T", 0, b"a", b"")
    aside = store.append("T", 0, b"b", b"", flag)
    assert (aside.queue_offset, record_of(store, aside).queue_offset) == (0, 0)
    assert store.append("T", 0, b"c", b"").queue_offset == 1
    store.dispatch_some()
    assert bodies_of(store.read("T", 0, 0, 10)) == [b"a", b"c"]


@pytest.mark.parametrize(
    ("level", "delay_ms"), [(b"1", 1_000), (b"3", 10_000), (b"18", 7_200_000), (b"99", 7_200_000)]
)
def test_tag_code_of_a_delayed_message_is_its_deliver_time(
    store: MessageStore, clock: ManualClock, level: bytes, delay_ms: int
) -> None:
    store.append("SCHEDULE_TOPIC_XXXX", 2, b"x", b"DELAY\x01%b\x02TAGS\x01a\x02" % level)
    store.dispatch_some()
    queue = store.queues.get("SCHEDULE_TOPIC_XXXX", 2)
    assert queue is not None
    assert queue.entry(0)[2] == clock.wall_ms() + delay_ms


@pytest.mark.parametrize("properties", [b"TAGS\x01a\x02", b"DELAY\x010\x02TAGS\x01a\x02"])
def test_without_a_level_the_tag_code_is_that_of_the_tag(
    store: MessageStore, properties: bytes
) -> None:
    store.append("SCHEDULE_TOPIC_XXXX", 2, b"x", properties)
    store.append("T", 0, b"x", b"DELAY\x013\x02TAGS\x01a\x02")  # no topic of delayed messages
    store.dispatch_some()
    for topic, queue_id in (("SCHEDULE_TOPIC_XXXX", 2), ("T", 0)):
        queue = store.queues.get(topic, queue_id)
        assert queue is not None
        assert queue.entry(0)[2] == ord("a")
