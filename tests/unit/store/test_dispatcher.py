"""From the log into queues, index and ears, in order and once."""

from pathlib import Path

import pytest
from unit.store.building import (
    HEAD_AND_LENGTHS,
    StagedDisk,
    bodies_of,
    no_space,
    numbered,
    open_store,
)

from downrange.protocol.delay_levels import DelayLevels
from downrange.protocol.java_hash import java_hash
from downrange.protocol.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from downrange.store import dispatcher as dispatcher_module
from downrange.store.dispatch_entry import EntryReader
from downrange.store.message_store import MessageStore
from downrange.store.settings import FlushMode, FlushSettings
from downrange.testing.clock import ManualClock

Call = tuple[str, int, int, int, int, bytes]
PROPERTIES = b"TAGS\x01TagA\x02UNIQ_KEY\x01ID\x02KEYS\x01k1 k2\x02"


class Ear:
    """A listener that writes down what it hears."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __call__(
        self, topic: str, queue_id: int, offset: int, tag: int, stored_ms: int, text: bytes
    ) -> None:
        self.calls.append((topic, queue_id, offset, tag, stored_ms, text))


def found(store: MessageStore, key: str) -> int:
    return len(store.lookup.query("T", key).records)


def test_messages_are_invisible_until_dispatched(store: MessageStore) -> None:
    store.append("T", 0, b"a", b"")
    assert store.read("T", 0, 0, 10).message_count == 0
    assert store.dispatch_some() == 1
    assert bodies_of(store.read("T", 0, 0, 10)) == [b"a"]
    assert store.dispatched_offset == store.log.max_offset


def test_listener_hears_place_tag_time_and_properties(
    store: MessageStore, clock: ManualClock
) -> None:
    ear = Ear()
    store.add_listener(ear)
    store.append("T", 3, b"a", PROPERTIES)
    clock.advance(5)
    store.append("U", 0, b"b", b"")
    store.append("T", 3, b"c", b"")
    store.dispatch_some()
    start = clock.wall_ms() - 5
    assert ear.calls == [
        ("T", 3, 0, java_hash("TagA"), start, PROPERTIES),
        ("U", 0, 0, 0, start + 5, b""),
        ("T", 3, 1, 0, start + 5, b""),
    ]


def test_message_is_visible_when_its_listener_is_called(store: MessageStore) -> None:
    seen: list[int] = []

    def look(topic: str, queue_id: int, offset: int, *_: object) -> None:
        seen.append(store.read(topic, queue_id, offset, 1).message_count)

    store.add_listener(look)
    store.append("T", 0, b"a", b"")
    store.dispatch_some()
    assert seen == [1]


def test_no_more_than_asked_for_is_dispatched(store: MessageStore) -> None:
    for body in numbered(5):
        store.append("T", 0, body, b"")
    assert [store.dispatch_some(2) for _ in range(4)] == [2, 2, 1, 0]


def test_in_sync_mode_only_durable_messages_become_visible(tmp_path: Path) -> None:
    store = open_store(tmp_path, flush=FlushSettings(mode=FlushMode.SYNC))
    store.append("T", 0, b"a", b"")
    job = store.begin_flush()
    store.append("T", 0, b"b", b"")
    assert store.dispatch_some() == 0
    assert job is not None
    job.run()
    store.finish_flush(job)
    assert store.dispatch_some() == 1
    assert bodies_of(store.read("T", 0, 0, 10)) == [b"a"]
    store.flush_now()
    assert store.dispatch_some() == 1
    store.close()


@pytest.mark.parametrize(
    ("flag", "is_queued", "is_indexed"),
    [
        (0, True, True),
        (TRANSACTION_PREPARED, False, True),
        (TRANSACTION_COMMIT, True, True),
        (TRANSACTION_ROLLBACK, False, False),
    ],
)
def test_transaction_flag_decides_on_queue_and_index(
    store: MessageStore, flag: int, is_queued: bool, is_indexed: bool
) -> None:
    ear = Ear()
    store.add_listener(ear)
    store.append("T", 0, b"a", PROPERTIES, flag)
    assert store.dispatch_some() == 1
    assert len(ear.calls) == is_queued
    assert store.read("T", 0, 0, 10).message_count == is_queued
    assert [found(store, key) for key in ("ID", "k1", "k2")] == [is_indexed] * 3
    assert store.dispatched_offset == store.log.max_offset


def test_what_does_not_fit_into_memory_is_read_from_the_log_again(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher_module, "PENDING_MAX", 3)
    ear = Ear()
    store.add_listener(ear)
    for body in numbered(60):  # over two files of the log
        store.append("T", 0, body, PROPERTIES)
    assert store.dispatch_some(10) == 10
    store.append("T", 1, b"late", b"")
    while store.dispatch_some(7):
        pass
    assert [call[1:3] for call in ear.calls] == [(0, number) for number in range(60)] + [(1, 0)]
    assert found(store, "k1") == 60
    store.append("T", 1, b"direct", b"")  # memory has room again
    assert len(store._dispatcher._pending) == 1
    assert store.dispatch_some() == 1


def test_rereading_in_sync_mode_stops_at_what_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher_module, "PENDING_MAX", 1)
    store = open_store(tmp_path, flush=FlushSettings(mode=FlushMode.SYNC))
    for body in numbered(4):
        store.append("T", 0, body, b"")
    store.flush_now()
    for body in numbered(4):
        store.append("T", 0, body, b"")
    assert store.dispatch_some() == 4
    assert store.dispatch_some() == 0
    store.flush_now()
    assert store.dispatch_some() == 4
    assert store.read("T", 0, 0, 32).message_count == 8
    store.close()


def test_damaged_record_that_is_read_again_leaves_a_hole_in_its_place(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher_module, "PENDING_MAX", 1)
    appended = [store.append("T", 0, body, b"") for body in numbered(4)]
    start = appended[2].physical_offset
    store.log.chain.segments[0].map[start + 4 : start + 8] = b"oops"
    assert store.dispatch_some() == 3
    result = store.read("T", 0, 0, 10)
    assert bodies_of(result) == [b"0000", b"0001", b"0003"]
    assert result.next_offset == 4


def test_full_disk_keeps_the_order_and_loses_nothing(store: MessageStore, disk: StagedDisk) -> None:
    ear = Ear()
    store.add_listener(ear)
    for body in numbered(12):
        store.append("T", 0, body, PROPERTIES)

    def no_space_for_queues_after_ten() -> None:
        if store.queues.ensure("T", 0).max_offset >= 10:
            no_space()

    disk.on_allocate = no_space_for_queues_after_ten
    assert store.dispatch_some() == 0
    assert "No space left" in str(store.dispatch_failure)
    heard = len(ear.calls)
    assert heard < 12
    disk.on_allocate = lambda: None
    assert store.dispatch_some() == 12 - heard
    assert str(store.dispatch_failure) == "None"
    assert [call[2] for call in ear.calls] == list(range(12))
    assert found(store, "k1") == 12


def test_keys_are_put_once_although_a_full_disk_stops_them_half_way(
    store: MessageStore, disk: StagedDisk
) -> None:
    store.append("T", 0, b"a", PROPERTIES)
    calls: list[int] = []

    def no_space_for_the_index() -> None:
        calls.append(1)
        if len(calls) == 2:  # the queue's file has room, the index has not
            no_space()

    disk.on_allocate = no_space_for_the_index
    assert store.dispatch_some() == 0
    assert store.dispatch_some() == 1
    assert store.read("T", 0, 0, 10).max_offset == 1
    assert [found(store, key) for key in ("ID", "k1", "k2")] == [1, 1, 1]


def test_store_without_index_dispatches_into_queues_alone(tmp_path: Path) -> None:
    store = open_store(tmp_path, index_enabled=False)
    store.append("T", 0, b"a", PROPERTIES)
    assert store.dispatch_some() == 1
    assert store.lookup.query("T", "k1").records == []
    assert not (tmp_path / "index").exists()
    store.close()


def test_blank_at_the_end_of_a_file_is_passed(store: MessageStore) -> None:
    size = 4096 // 2 - HEAD_AND_LENGTHS - 1
    for _ in range(3):
        store.append("T", 0, bytes(size - 10), b"")
    store.append("T", 0, bytes(size + 10), b"")
    assert store.dispatch_some() == 4
    assert store.dispatched_offset == store.log.max_offset


@pytest.mark.parametrize(
    ("text", "code", "keys"),
    [
        (b"", 0, []),
        (b"a\x01b\x02\x02", 0, []),
        (b"UNIQ_KEY\x01U\x02", 0, [b"U"]),
        (b"TAGS\x01t\x02UNIQ_KEY\x01U\x02KEYS\x01a b\x02", 116, [b"U", b"a", b"b", b"T#t"]),
        (b"xUNIQ_KEY\x01no\x02TAGS\x01t\x02", 116, [b"T#t"]),
        (b"UNIQ_KEY\x01\x02TAGS\x01t\x02", 116, [b"T#t"]),
        (b"KEYS\x01a\x02UNIQ_KEY\x01U", 0, [b"U", b"a"]),
    ],
)
def test_tag_and_keys_are_found_wherever_they_stand(
    text: bytes, code: int, keys: list[bytes]
) -> None:
    reader = EntryReader(DelayLevels.parse())
    for _ in range(2):  # the second time from memory
        assert reader.tag_code_and_keys("T", 0, text, 0) == (code, keys)
        assert reader.tag_code("T", text, 0) == code
