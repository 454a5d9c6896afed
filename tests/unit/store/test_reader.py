"""Reading from queues, rule by rule as RocketMQ's DefaultMessageStore.getMessage has them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.store.building import (
    HEAD_AND_LENGTHS,
    StagedDisk,
    bodies_of,
    bounds,
    fill,
    numbered,
    open_store,
    queue_of,
    records_of,
)

from downrange.protocol.java_hash import java_hash
from downrange.protocol.record import decode_record
from downrange.store.message_store import MessageStore
from downrange.store.reader import ReadStatus
from downrange.store.settings import ReadSettings

RECORD_BYTES = HEAD_AND_LENGTHS + 1 + 4  # topic "T", a body of four bytes, no properties
ONE_FILE = 1 << 20


class Filter:
    """Wants tags at the entry and bodies at the record; None for all of them."""

    def __init__(self, tag: str | None = None, body: bytes | None = None) -> None:
        self._code = None if tag is None else java_hash(tag)
        self._body = body
        self.entries_seen = 0
        self.records_seen = 0

    def matches_entry(self, tag_code: int) -> bool:
        self.entries_seen += 1
        return self._code is None or tag_code == self._code

    def matches_record(self, record: memoryview) -> bool:
        self.records_seen += 1
        return self._body is None or decode_record(record).body == self._body


@pytest.fixture
def wide(tmp_path: Path, disk: StagedDisk) -> Iterator[MessageStore]:
    """A store whose queues and log each have one file for everything here."""
    store = open_store(tmp_path, disk=disk, segment_bytes=ONE_FILE, queue_entries=5_000)
    yield store
    store.close()


# --- the statuses -------------------------------------------------------------------------


def test_unknown_queue(store: MessageStore) -> None:
    assert bounds(store.read("T", 0, 5, 10)) == (ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)


def test_queue_without_messages(store: MessageStore) -> None:
    store.append("T", 0, b"not dispatched", b"")
    assert bounds(store.read("T", 0, 5, 10)) == (ReadStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)


def test_offset_below_the_oldest_message(store: MessageStore) -> None:
    fill(store, numbered(3))
    queue_of(store).min_offset = 1
    assert bounds(store.read("T", 0, 0, 10)) == (ReadStatus.OFFSET_TOO_SMALL, 1, 1, 3)
    assert bounds(store.read("T", 0, -7, 10)) == (ReadStatus.OFFSET_TOO_SMALL, 1, 1, 3)


def test_offset_of_the_next_message_to_come(store: MessageStore) -> None:
    fill(store, numbered(3))
    assert bounds(store.read("T", 0, 3, 10)) == (ReadStatus.OFFSET_OVERFLOW_ONE, 3, 0, 3)


def test_offset_far_beyond_the_end(store: MessageStore) -> None:
    fill(store, numbered(3))
    assert bounds(store.read("T", 0, 9, 10)) == (ReadStatus.OFFSET_OVERFLOW_BADLY, 3, 0, 3)


def test_messages_are_found(store: MessageStore) -> None:
    fill(store, numbered(3))
    result = store.read("T", 0, 1, 10)
    assert bounds(result) == (ReadStatus.FOUND, 3, 0, 3)
    assert bodies_of(result) == [b"0001", b"0002"]
    assert (result.message_count, result.size) == (2, 2 * RECORD_BYTES)
    assert [record.queue_offset for record in records_of(result)] == [1, 2]


def test_filter_that_wants_nothing(store: MessageStore) -> None:
    fill(store, numbered(3), properties=b"TAGS\x01a\x02")
    result = store.read("T", 0, 0, 10, message_filter=Filter(tag="b"))
    assert bounds(result) == (ReadStatus.NO_MATCHED_MESSAGE, 3, 0, 3)
    assert (result.views, result.filtered_count) == ([], 0)


def test_record_that_retention_has_removed(store: MessageStore) -> None:
    fill(store, numbered(100))
    store.log.chain.drop_first()  # as in the moment before the queues follow
    first_left = store.log.min_offset
    result = store.read("T", 0, 0, 10)
    assert bounds(result) == (ReadStatus.MESSAGE_WAS_REMOVING, 10, 0, 100)
    assert queue_of(store).entry(0)[0] < first_left


def test_file_of_the_queue_that_is_not_there(store: MessageStore) -> None:
    fill(store, numbered(25))
    queue = queue_of(store)
    queue.chain.drop_first()  # the lower bound still says 0
    assert bounds(store.read("T", 0, 3, 10)) == (ReadStatus.OFFSET_FOUND_NULL, 10, 0, 25)


def test_offset_reset_is_never_the_stores_own_answer() -> None:
    assert ReadStatus("OFFSET_RESET") is ReadStatus.OFFSET_RESET
    assert len(ReadStatus) == 10


def test_slave_leaves_offsets_as_they_are(tmp_path: Path) -> None:
    master = open_store(tmp_path)
    fill(master, numbered(3))
    master.close()
    slave = open_store(tmp_path, is_slave=True)
    assert slave.read("T", 0, 9, 10).next_offset == 9
    assert slave.read("U", 0, 9, 10).next_offset == 9
    assert slave.read("T", 0, 1, 10).next_offset == 3
    slave.close()


# --- how much -----------------------------------------------------------------------------


def test_no_more_messages_than_asked_for(store: MessageStore) -> None:
    fill(store, numbered(9))
    assert bodies_of(store.read("T", 0, 2, 3)) == [b"0002", b"0003", b"0004"]
    assert store.read("T", 0, 2, 3).next_offset == 5


@pytest.mark.parametrize("count_max", [0, -1])
def test_one_message_comes_although_none_was_asked_for(store: MessageStore, count_max: int) -> None:
    fill(store, numbered(3))
    assert bodies_of(store.read("T", 0, 0, count_max)) == [b"0000"]
    assert bodies_of(store.read("T", 0, 0, count_max, message_filter=Filter())) == [b"0000"]


def test_read_ends_with_the_file_of_the_queue(store: MessageStore) -> None:
    fill(store, numbered(15))
    assert store.read("T", 0, 7, 32).next_offset == 10
    assert store.read("T", 0, 10, 32).next_offset == 15


def test_bytes_have_a_limit_that_counts_whole_records(wide: MessageStore) -> None:
    fill(wide, numbered(10))
    assert wide.read("T", 0, 0, 32, 3 * RECORD_BYTES).message_count == 3
    assert wide.read("T", 0, 0, 32, 3 * RECORD_BYTES - 1).message_count == 2


def test_first_message_comes_although_it_is_over_the_limit(wide: MessageStore) -> None:
    fill(wide, [bytes(300_000), b"small"])
    for bytes_max in (-1, 0, 100, 1000, 1 << 40):
        assert wide.read("T", 0, 0, 32, bytes_max).message_count == 1


def test_least_limit_is_a_hundred_bytes(wide: MessageStore) -> None:
    fill(wide, [b"", b"", b""])
    assert wide.read("T", 0, 0, 32, 1).message_count == 1
    assert wide.read("T", 0, 0, 32, 2 * (HEAD_AND_LENGTHS + 1)).message_count == 2


def test_memory_gives_32_messages_or_256_kib(wide: MessageStore) -> None:
    fill(wide, numbered(50))
    assert wide.read("T", 0, 0, 100).message_count == 32
    wide.delete_topic("T")
    fill(wide, [bytes(64 * 1024 - HEAD_AND_LENGTHS - 1)] * 6)
    assert wide.read("T", 0, 0, 100).message_count == 4


def test_a_read_in_bulk_has_limits_of_its_own(tmp_path: Path) -> None:
    read = ReadSettings(memory_bytes=1, bulk_count_max=100, bulk_bytes_max=64 * 1024)
    store = open_store(tmp_path, segment_bytes=ONE_FILE, queue_entries=5_000, read=read)
    fill(store, numbered(300))
    assert store.read("T", 0, 0, 300).message_count == 8
    found = store.read("T", 0, 0, 300, in_bulk=True)
    assert (found.message_count, found.next_offset) == (100, 100)
    assert store.read("T", 0, 0, 40, in_bulk=True).message_count == 40
    assert store.read("T", 0, 250, 300, in_bulk=True).message_count == 50
    fill(store, [bytes(20_000)] * 5, queue_id=1)
    assert store.read("T", 1, 0, 300, in_bulk=True).message_count == 3
    assert store.read("T", 1, 0, 300, 30_000, in_bulk=True).message_count == 1
    store.close()


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[MessageStore]:
    """A store that counts only the last 10,000 bytes of the log as in memory."""
    read = ReadSettings(memory_bytes=10_000, memory_ratio=1.0)
    store = open_store(tmp_path, segment_bytes=ONE_FILE, queue_entries=5_000, read=read)
    yield store
    store.close()


def test_disk_gives_8_messages_or_64_kib(cold: MessageStore) -> None:
    fill(cold, numbered(50))
    fill(cold, [bytes(20_000)] * 5, queue_id=1)
    fill(cold, [bytes(10_000)], topic="U")
    assert cold.read("T", 0, 0, 100).message_count == 8
    assert cold.read("T", 1, 0, 100).message_count == 3


def test_entry_decides_whether_it_counts_as_in_memory(cold: MessageStore) -> None:
    # The last 105 records of 96 bytes start within 10,000 bytes of the end: 104 whole ones.
    fill(cold, numbered(130))
    first_in_memory = 130 - 10_000 // RECORD_BYTES
    assert cold.read("T", 0, first_in_memory, 100).message_count == 32
    # Five entries are on the disk, then the limit of memory holds.
    assert cold.read("T", 0, first_in_memory - 5, 100).message_count == 32
    assert cold.read("T", 0, first_in_memory - 9, 100).message_count == 8


def test_slave_is_suggested_if_the_last_message_looked_at_is_old(cold: MessageStore) -> None:
    fill(cold, numbered(130))
    first_in_memory = 130 - 10_000 // RECORD_BYTES
    assert cold.read("T", 0, first_in_memory - 1, 1).suggest_slave
    assert not cold.read("T", 0, first_in_memory, 1).suggest_slave
    assert not cold.read("T", 0, first_in_memory - 5, 100).suggest_slave
    # The entry at which a full batch stops is not looked at: it must not hide an old one.
    assert cold.read("T", 0, first_in_memory - 3, 100, 3 * RECORD_BYTES).suggest_slave
    assert not cold.read("T", 0, 130, 1).suggest_slave


# --- filters ------------------------------------------------------------------------------


def test_entry_filter_leaves_records_untouched(store: MessageStore) -> None:
    for number in range(6):
        tag = b"a" if number % 2 else b"b"
        store.append("T", 0, b"%d" % number, b"TAGS\x01%b\x02" % tag)
    store.dispatch_some()
    wanted = Filter(tag="a")
    result = store.read("T", 0, 0, 10, message_filter=wanted)
    assert bodies_of(result) == [b"1", b"3", b"5"]
    assert (wanted.entries_seen, wanted.records_seen) == (6, 3)
    assert (result.filtered_count, result.next_offset) == (0, 6)


def test_record_filter_counts_what_it_holds_back(store: MessageStore) -> None:
    fill(store, numbered(6))
    result = store.read("T", 0, 0, 10, message_filter=Filter(body=b"0003"))
    assert bodies_of(result) == [b"0003"]
    assert (result.filtered_count, result.next_offset) == (5, 6)
    nothing = store.read("T", 0, 0, 10, message_filter=Filter(body=b"none"))
    assert bounds(nothing) == (ReadStatus.NO_MATCHED_MESSAGE, 6, 0, 6)
    assert nothing.filtered_count == 6


def test_records_between_which_one_was_held_back_are_two_views(store: MessageStore) -> None:
    fill(store, numbered(5))
    assert len(store.read("T", 0, 0, 10).views) == 1
    result = store.read("T", 0, 0, 10, message_filter=Filter(tag="x"))
    assert result.views == []
    store.append("T", 0, b"tagged", b"TAGS\x01x\x02")
    fill(store, [b"plain"])
    store.append("T", 0, b"tagged", b"TAGS\x01x\x02")
    store.dispatch_some()
    assert len(store.read("T", 0, 0, 10, message_filter=Filter(tag="x")).views) == 2


def test_filter_looks_at_800_entries(wide: MessageStore) -> None:
    fill(wide, numbered(900))
    wanted = Filter(tag="none")
    result = wide.read("T", 0, 10, 32, message_filter=wanted)
    assert bounds(result) == (ReadStatus.NO_MATCHED_MESSAGE, 810, 0, 900)
    assert wanted.entries_seen == 800


def test_filter_looks_at_as_many_entries_as_messages_are_asked_for(wide: MessageStore) -> None:
    fill(wide, numbered(900))
    assert wide.read("T", 0, 0, 850, message_filter=Filter(tag="none")).next_offset == 850


def test_filtered_read_ends_with_a_full_batch_too(wide: MessageStore) -> None:
    fill(wide, numbered(100))
    result = wide.read("T", 0, 0, 5, message_filter=Filter())
    assert (result.message_count, result.next_offset) == (5, 5)
