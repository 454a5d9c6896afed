"""Single messages by place, by time and by key."""

from pathlib import Path

import pytest
from unit.store.building import fill, numbered, open_store

from downrange.protocol.java_hash import java_hash
from downrange.protocol.record import decode_record
from downrange.protocol.sys_flag import BORN_HOST_V6
from downrange.store.lookup import Boundary, QueryResult
from downrange.store.message_store import MessageStore
from downrange.testing.clock import ManualClock

START_MS = 1_700_000_000_000
# Stored at +0, +10, +10, +10, +20, +40 milliseconds.
TIMES = (0, 10, 10, 10, 20, 40)


@pytest.fixture
def timed(store: MessageStore, clock: ManualClock) -> MessageStore:
    for milliseconds in TIMES:
        clock.jump_to(START_MS + milliseconds)
        store.append("T", 0, b"%d" % milliseconds, b"")
    store.dispatch_some()
    return store


def bodies(result: QueryResult) -> list[bytes]:
    return [decode_record(view).body for view in result.records]


# --- by time ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("milliseconds", "lower", "upper"),
    [
        (-5, 0, 0),
        (0, 0, 0),
        (5, 1, 0),
        (10, 1, 3),
        (15, 4, 3),
        (20, 4, 4),
        (30, 5, 4),
        (40, 5, 5),
        (99, 6, 5),
    ],
)
def test_offset_that_a_time_falls_on(
    timed: MessageStore, milliseconds: int, lower: int, upper: int
) -> None:
    moment = START_MS + milliseconds
    assert timed.lookup.offset_by_time("T", 0, moment) == lower
    assert timed.lookup.offset_by_time("T", 0, moment, Boundary.UPPER) == upper


def test_times_before_the_first_message_that_is_left(timed: MessageStore) -> None:
    queue = timed.queues.get("T", 0)
    assert queue is not None
    queue.min_offset = 2
    assert timed.lookup.offset_by_time("T", 0, START_MS) == 2
    assert timed.lookup.offset_by_time("T", 0, START_MS, Boundary.UPPER) == 0
    assert timed.lookup.offset_by_time("T", 0, START_MS + 10, Boundary.UPPER) == 3


def test_queue_without_messages_has_no_times(store: MessageStore) -> None:
    for boundary in Boundary:
        assert store.lookup.offset_by_time("T", 0, START_MS, boundary) == 0
    store.append("T", 0, b"not dispatched", b"")
    assert store.lookup.offset_by_time("T", 0, START_MS) == 0
    assert store.lookup.earliest_store_time("T", 0) == -1


def test_queue_that_lost_all_messages_answers_with_its_next_offset(timed: MessageStore) -> None:
    queue = timed.queues.get("T", 0)
    assert queue is not None
    queue.min_offset = queue.max_offset
    assert timed.lookup.offset_by_time("T", 0, START_MS) == 6


def test_holes_take_the_time_of_the_next_message(timed: MessageStore) -> None:
    queue = timed.queues.get("T", 0)
    assert queue is not None
    for offset in (0, 4, 5):
        queue.make_hole(offset, *queue.entry(offset)[:2])
    assert timed.lookup.earliest_store_time("T", 0) == START_MS + 10
    assert timed.lookup.offset_by_time("T", 0, START_MS + 10) == 0
    assert timed.lookup.offset_by_time("T", 0, START_MS + 11) == 4


def test_earliest_and_single_store_times(timed: MessageStore) -> None:
    assert timed.lookup.earliest_store_time("T", 0) == START_MS
    times = [timed.lookup.store_timestamp("T", 0, offset) for offset in range(-1, 7)]
    assert times == [-1, *(START_MS + milliseconds for milliseconds in TIMES), -1]
    assert timed.lookup.store_timestamp("U", 0, 0) == -1
    assert timed.lookup.earliest_store_time("U", 0) == -1


def test_time_is_read_behind_an_ipv6_host(store: MessageStore, clock: ManualClock) -> None:
    store.append("T", 0, b"x", b"", BORN_HOST_V6, born_host=bytes(20))
    store.dispatch_some()
    assert store.lookup.earliest_store_time("T", 0) == clock.wall_ms()


# --- by physical offset -------------------------------------------------------------------


def test_record_at_its_offset_and_nowhere_else(store: MessageStore) -> None:
    fill(store, numbered(3))
    starts = {0, 96, 192}
    found = {at for at in range(-10, 400) if store.lookup.record_at(at) is not None}
    assert found == starts
    view = store.lookup.record_at(96)
    assert view is not None
    assert decode_record(view).body == b"0001"


def test_record_within_a_body_is_none(store: MessageStore) -> None:
    store.append("T", 0, b"x", b"")
    inner = store.log.view(0, store.log.max_offset)
    assert inner is not None
    outer = store.append("T", 0, inner.tobytes(), b"")  # a body that is itself a record
    inner_start = outer.physical_offset + 88
    assert store.lookup.record_at(inner_start) is None
    del inner


def test_blank_at_the_end_of_a_file_is_no_record(store: MessageStore) -> None:
    store.append("T", 0, bytes(3900), b"")
    blank = store.log.max_offset
    store.append("T", 0, bytes(500), b"")
    assert store.lookup.record_at(blank) is None
    assert store.lookup.record_at(4096) is not None


# --- by key -------------------------------------------------------------------------------


def put(store: MessageStore, body: bytes, keys: bytes = b"", unique: bytes = b"") -> None:
    text = b""
    if unique:
        text += b"UNIQ_KEY\x01%b\x02" % unique
    if keys:
        text += b"KEYS\x01%b\x02" % keys
    store.append("T", 0, body, text)
    store.dispatch_some()


def test_messages_by_one_of_their_keys_or_their_unique_id(store: MessageStore) -> None:
    put(store, b"1", b"a b", b"ID1")
    put(store, b"2", b"b  c", b"ID2")
    put(store, b"3")
    assert bodies(store.lookup.query("T", "a")) == [b"1"]
    assert bodies(store.lookup.query("T", "b")) == [b"1", b"2"]  # as Java: oldest first
    assert bodies(store.lookup.query("T", "ID2")) == [b"2"]
    assert bodies(store.lookup.query("T", "a b")) == []
    assert bodies(store.lookup.query("U", "a")) == []


def test_keys_of_the_same_hash_are_told_apart(store: MessageStore) -> None:
    assert java_hash("T#Aa") == java_hash("T#BB")
    put(store, b"1", b"Aa")
    put(store, b"2", b"BB")
    assert bodies(store.lookup.query("T", "Aa")) == [b"1"]
    assert bodies(store.lookup.query("T", "BB")) == [b"2"]


def test_topics_of_the_same_hash_are_told_apart(store: MessageStore) -> None:
    store.append("Aa", 0, b"1", b"KEYS\x01k\x02")
    store.append("BB", 0, b"2", b"KEYS\x01k\x02")
    store.dispatch_some()
    assert bodies(store.lookup.query("BB", "k")) == [b"2"]


def test_key_that_a_message_has_twice_finds_it_once(store: MessageStore) -> None:
    put(store, b"1", b"k k", b"k")
    assert bodies(store.lookup.query("T", "k")) == [b"1"]


def test_window_is_exact(store: MessageStore, clock: ManualClock) -> None:
    for milliseconds in (0, 400, 1_200, 2_000):
        clock.jump_to(START_MS + milliseconds)
        put(store, b"%d" % milliseconds, b"k")
    query = store.lookup.query
    assert bodies(query("T", "k", START_MS, START_MS)) == [b"0"]
    assert bodies(query("T", "k", START_MS + 1, START_MS + 1_999)) == [b"400", b"1200"]
    assert bodies(query("T", "k", START_MS + 1_200)) == [b"1200", b"2000"]
    assert bodies(query("T", "k", START_MS + 2_001)) == []


def test_no_more_than_asked_for_and_no_more_than_allowed(store: MessageStore) -> None:
    for number in range(70):
        put(store, b"%d" % number, b"k")
    assert bodies(store.lookup.query("T", "k", count_max=2)) == [b"68", b"69"]
    assert len(store.lookup.query("T", "k", count_max=1000).records) == 64


def test_answer_says_how_far_the_index_reaches(store: MessageStore, clock: ManualClock) -> None:
    assert store.lookup.query("T", "k") == ([], 0, 0)
    put(store, b"1", b"k")
    clock.advance(5)
    put(store, b"2", b"other")
    result = store.lookup.query("T", "k")
    queue = store.queues.get("T", 0)
    assert queue is not None
    assert (result.index_timestamp, result.index_offset) == (clock.wall_ms(), queue.entry(1)[0])


def test_message_that_the_log_has_lost_is_left_out(store: MessageStore) -> None:
    for number in range(3):
        store.append("T", 0, bytes([number]) * 3000, b"KEYS\x01k\x02")
    store.dispatch_some()
    store.log.chain.drop_first()
    assert len(store.lookup.query("T", "k").records) == 2


def test_store_without_index_finds_nothing_by_key(tmp_path: Path) -> None:
    store = open_store(tmp_path, index_enabled=False)
    put(store, b"1", b"k")
    assert store.lookup.query("T", "k") == ([], 0, 0)
    store.close()
