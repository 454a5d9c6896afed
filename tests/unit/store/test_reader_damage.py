"""Reading records in several files, holes and damage: the whole ones come, entries are repaired."""

import pytest
from unit.store.building import HEAD_AND_LENGTHS, bodies_of, bounds, fill, numbered, queue_of

from downrange.store.consume_queue import ENTRY
from downrange.store.message_store import MessageStore
from downrange.store.reader import ReadStatus

RECORD_BYTES = HEAD_AND_LENGTHS + 1 + 4  # topic "T", a body of four bytes, no properties


def overwrite(store: MessageStore, queue_offset: int, entry: tuple[int, int, int]) -> None:
    """Damage an entry of a queue."""
    segment = queue_of(store).chain.segment_at(queue_offset * 20)
    assert segment is not None
    ENTRY.pack_into(segment.map, queue_offset * 20 - segment.base_offset, *entry)


def test_messages_of_several_log_files_come_together(store: MessageStore) -> None:
    bodies = [bytes([number]) * 900 for number in range(9)]
    fill(store, bodies)
    assert len(store.log.chain.segments) == 3
    result = store.read("T", 0, 0, 32)
    assert bodies_of(result) == bodies
    assert len(result.views) == 3


def test_messages_of_other_queues_are_left_out(store: MessageStore) -> None:
    for number in range(8):
        store.append("T", number % 2, b"%d" % number, b"")
    store.dispatch_some()
    result = store.read("T", 1, 0, 32)
    assert bodies_of(result) == [b"1", b"3", b"5", b"7"]
    assert len(result.views) == 4


def test_holes_are_passed_over(store: MessageStore) -> None:
    fill(store, numbered(5))
    queue_of(store).make_hole(0, 0, 96)
    queue_of(store).make_hole(2, 192, 96)
    result = store.read("T", 0, 0, 10)
    assert bodies_of(result) == [b"0001", b"0003", b"0004"]
    assert result.next_offset == 5
    only_hole = store.read("T", 0, 2, 1)
    assert bounds(only_hole) == (ReadStatus.NO_MATCHED_MESSAGE, 3, 0, 5)


DAMAGED_ENTRIES = {
    "zeros": (0, 0, 0),
    "other size": (2 * RECORD_BYTES, RECORD_BYTES + 1, 0),
    "negative size": (2 * RECORD_BYTES, RECORD_BYTES - (1 << 31), 0),
    "size of a few bytes": (2 * RECORD_BYTES, 3, 0),
    "within a record": (2 * RECORD_BYTES + 1, RECORD_BYTES, 0),
    "far beyond the log": (1 << 50, RECORD_BYTES, 0),
    "before the log": (-5, RECORD_BYTES, 0),
    "filler": (0, 0x7FFFFFFF, 0),
}


@pytest.mark.parametrize("entry", DAMAGED_ENTRIES.values(), ids=DAMAGED_ENTRIES)
def test_damaged_entry_is_repaired_from_the_log(
    store: MessageStore, entry: tuple[int, int, int]
) -> None:
    fill(store, numbered(5))
    overwrite(store, 2, entry)
    result = store.read("T", 0, 2, 10)
    assert bodies_of(result) == numbered(5)[2:]
    assert queue_of(store).entry(2) == (2 * RECORD_BYTES, RECORD_BYTES, 0)
    assert "entry 2: no record of" in str(store.repair.damages[0])


def test_damaged_entry_that_claims_too_many_bytes_only_ends_a_read(store: MessageStore) -> None:
    fill(store, [b"0", b"01", b"012", b"0123", b"01234"])
    overwrite(store, 2, DAMAGED_ENTRIES["filler"])
    result = store.read("T", 0, 0, 10)
    assert (bodies_of(result), result.next_offset) == ([b"0", b"01"], 2)


@pytest.mark.parametrize("entry", DAMAGED_ENTRIES.values(), ids=DAMAGED_ENTRIES)
def test_damaged_entry_within_a_piece_of_records_of_one_size_is_not_needed(
    store: MessageStore, entry: tuple[int, int, int]
) -> None:
    fill(store, numbered(5))
    overwrite(store, 2, entry)
    result = store.read("T", 0, 0, 10)
    assert (bodies_of(result), result.next_offset) == (numbered(5), 5)
    assert len(result.views) == 1


def test_records_of_another_queue_do_not_come_with_a_piece(store: MessageStore) -> None:
    for queue_id in (0, 0, 1, 0, 0):
        store.append("T", queue_id, b"%d" % queue_id, b"")
    store.dispatch_some()
    result = store.read("T", 0, 0, 10)
    assert bodies_of(result) == [b"0"] * 4
    assert (len(result.views), result.next_offset) == (2, 4)


def test_piece_is_not_larger_than_asked_for(store: MessageStore) -> None:
    fill(store, numbered(5))
    assert store.read("T", 0, 0, 3).message_count == 3
    assert store.read("T", 0, 0, 10, 3 * RECORD_BYTES).message_count == 3


def test_damaged_entry_at_the_border_of_two_log_files_is_repaired(store: MessageStore) -> None:
    bodies = [bytes([number]) * 900 for number in range(5)]
    fill(store, bodies)
    fourth = queue_of(store).entry(4)
    assert fourth[0] == 4096
    overwrite(store, 4, (fourth[0], fourth[1] - (1 << 31), 0))
    assert bodies_of(store.read("T", 0, 0, 10)) == bodies
    assert queue_of(store).entry(4) == fourth


def test_entry_without_a_record_becomes_a_hole(store: MessageStore) -> None:
    fill(store, numbered(5))
    start = 2 * RECORD_BYTES
    store.log.chain.segments[0].map[start : start + 8] = bytes(8)
    result = store.read("T", 0, 0, 10)
    assert bodies_of(result) == [b"0000", b"0001", b"0003", b"0004"]
    again = store.read("T", 0, 2, 1)
    assert bounds(again) == (ReadStatus.NO_MATCHED_MESSAGE, 3, 0, 5)
    damages = len(store.repair.damages)
    store.read("T", 0, 0, 10)
    assert len(store.repair.damages) == damages  # found once, reported once


def test_views_are_the_log_itself(store: MessageStore) -> None:
    fill(store, numbered(1))
    result = store.read("T", 0, 0, 10)
    assert not store.log.chain.segments[0].close()
    assert result.views[0].nbytes == RECORD_BYTES
