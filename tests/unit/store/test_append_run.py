"""A run is stored as its messages would be one by one, up to the first that needs a decision."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.store.building import (
    SEGMENT_BYTES,
    StagedDisk,
    all_bodies,
    files_of,
    make_writes_slow,
    no_space,
    open_store,
)

from downrange.protocol.hosts import encode_host
from downrange.protocol.properties import PROPERTIES_BYTES_MAX
from downrange.store.appended import Appended
from downrange.store.appender import PlainMessage
from downrange.store.message_store import MessageStore
from downrange.testing.clock import ManualClock

HOSTS = (encode_host("10.0.0.1", 5000), encode_host("10.0.0.2", 5001))
BORN_MS = 123


def message(number: int, body: bytes, text: bytes = b"", queue_id: int = 0) -> PlainMessage:
    """With another flag, number of reconsumptions and tag code each."""
    keys = [b"key%d" % number]
    return queue_id, body, text, 0, number, BORN_MS, HOSTS[number % 2], number % 3, number * 7, keys


def one_by_one(store: MessageStore, topic: str, run: list[PlainMessage]) -> list[Appended]:
    return [
        store.append(
            topic, queue_id, body, text, sys_flag, flag, born_ms, born_host, again, 0, (code, keys)
        )
        for queue_id, body, text, sys_flag, flag, born_ms, born_host, again, code, keys in run
    ]


def in_runs(store: MessageStore, topic: str, run: list[PlainMessage]) -> list[Appended]:
    """All of them, as a broker puts them: what a run does not take is put alone."""
    placed: list[Appended] = []
    while len(placed) < len(run):
        placed += store.append_run(topic, run[len(placed) :]) or one_by_one(
            store, topic, run[len(placed) :][:1]
        )
    return placed


CONTENTS = st.lists(
    st.tuples(st.binary(max_size=300), st.sampled_from([b"", b"A\x01b\x02"]), st.integers(0, 3)),
    min_size=1,
    max_size=12,
)


@given(contents=CONTENTS, host=st.sampled_from(["10.0.0.9", "2001:db8::1"]))
@settings(max_examples=60)  # each opens and closes two stores
def test_a_run_leaves_the_files_that_single_messages_leave(
    contents: list[tuple[bytes, bytes, int]], host: str
) -> None:
    run = [message(number, *content) for number, content in enumerate(contents)]
    results = []
    for put in (in_runs, one_by_one):
        with TemporaryDirectory() as folder:
            root = Path(folder)
            store = open_store(root, store_host=encode_host(host, 10911))
            places = put(store, "T", run)
            store.dispatch_some()
            store.close()
            results.append((places, files_of(root)))
    assert results[0] == results[1]


def test_a_run_ends_before_what_does_not_fit_into_the_file(store: MessageStore) -> None:
    store.append("T", 0, b"first", b"")
    run = [message(number, bytes(1000)) for number in range(6)]
    placed = store.append_run("T", run)
    assert 0 < len(placed) < 6
    assert placed[-1].end_offset < SEGMENT_BYTES
    assert store.append_run("T", run[len(placed) :]) == []
    (alone,) = one_by_one(store, "T", run[len(placed) :][:1])
    assert alone.physical_offset == SEGMENT_BYTES
    assert alone.queue_offset == len(placed) + 1


@pytest.mark.parametrize(
    "bad", [message(1, bytes(5000)), message(1, b"", bytes(PROPERTIES_BYTES_MAX + 1))]
)
def test_a_run_ends_before_what_is_refused(store: MessageStore, bad: PlainMessage) -> None:
    store.append("T", 0, b"first", b"")
    run = [message(0, b"good"), bad, message(2, b"behind")]
    assert len(store.append_run("T", run)) == 1
    assert store.append_run("T", run[1:]) == []
    store.dispatch_some()
    assert all_bodies(store) == [b"first", b"good"]


def test_a_topic_that_is_not_admitted_has_no_runs(store: MessageStore) -> None:
    assert store.append_run("T", [message(0, b"x")]) == []
    assert store.log.max_offset == 0


def test_nothing_is_taken_while_the_store_refuses(store: MessageStore) -> None:
    store.append("T", 0, b"first", b"")
    store.abandon()
    assert store.refusal is not None
    assert store.append_run("T", [message(0, b"x")]) == []


def test_a_run_that_takes_too_long_keeps_others_out(
    store: MessageStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append("T", 0, b"first", b"")
    make_writes_slow(store, clock, monkeypatch, [2000])
    run = [message(0, b"a"), message(1, b"b")]
    assert len(store.append_run("T", run)) == 2
    assert store.append_run("T", run) == []


def test_a_disk_without_room_for_the_queues_shows_nothing_and_loses_nothing(
    store: MessageStore, disk: StagedDisk
) -> None:
    store.append("T", 0, b"first", b"")
    run = [message(number, b"%d" % number, queue_id=number % 2) for number in range(4)]
    assert len(store.append_run("T", run)) == 4
    disk.on_allocate = no_space
    assert store.dispatch_some() == 0
    disk.on_allocate = lambda: None
    store.dispatch_some()
    assert all_bodies(store) == [b"first", b"0", b"2"]
    assert all_bodies(store, queue_id=1) == [b"1", b"3"]
