"""Offsets asked for and committed, over a real store; the answers are those of a real 5.5.0."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from downrange.broker.group_table import GroupTable
from downrange.broker.handlers.offset import OffsetHandler
from downrange.broker.offset_table import OffsetTable
from downrange.broker.topic_table import TopicTable
from downrange.protocol.command import Command, request
from downrange.remoting.connection import Connection
from downrange.remoting.errors import Refused
from downrange.store.message_store import MessageStore
from downrange.store.settings import StoreSettings
from downrange.testing.clock import ManualClock

Ask = Callable[[int, dict[str, str]], Command]
FIRST_MS = 1_700_000_000_000
QUEUE = {"topic": "t", "queueId": "0"}
GROUP = {**QUEUE, "consumerGroup": "g"}


class Memory:
    """Says whether the log is in memory."""

    is_large = True

    def __call__(self, physical_offset: int) -> bool:
        assert physical_offset >= 0
        return self.is_large


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[MessageStore]:
    """Three messages, ten seconds apart, in queue 0 of topic t."""
    settings = StoreSettings(
        root=tmp_path, segment_bytes=64 * 1024, queue_entries=50, index_enabled=False
    )
    store = MessageStore(settings, clock=clock)
    store.open()
    for _ in range(3):
        store.append("t", 0, b"body", b"")
        clock.advance(10_000)
    store.dispatch_some()
    yield store
    store.close()


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def ask(
    topics: TopicTable,
    groups: GroupTable,
    offsets: OffsetTable,
    store: MessageStore,
    memory: Memory,
    connect: Callable[[], Connection],
) -> Ask:
    topics.create_for_send("t", "TBW102", 4, 0)
    groups.find("g")
    handler = OffsetHandler(topics, groups, offsets, store.queues, store.lookup, memory)
    routes, connection = handler.routes(), connect()

    def call(code: int, fields: dict[str, str]) -> Command:
        answer = routes[code](request(code, opaque=1, ext_fields=fields), connection)
        assert isinstance(answer, Command)
        return answer

    return call


def offset_of(answer: Command) -> int:
    assert answer.ext_fields is not None
    return int(answer.ext_fields["offset"])


def test_a_committed_offset_is_found_again(ask: Ask) -> None:
    assert ask(15, {**GROUP, "commitOffset": "2"}).code == 0
    assert offset_of(ask(14, GROUP)) == 2


def test_a_new_group_begins_at_the_start_of_a_young_queue(ask: Ask, memory: Memory) -> None:
    assert offset_of(ask(14, GROUP)) == 0
    assert offset_of(ask(14, {**GROUP, "setZeroIfNotFound": "true"})) == 0
    with pytest.raises(Refused, match="do not set to zero") as refusal:
        ask(14, {**GROUP, "setZeroIfNotFound": "false"})
    assert refusal.value.code == 22
    memory.is_large = False
    with pytest.raises(Refused, match="maybe this group consumer boot first") as refusal:
        ask(14, GROUP)
    assert refusal.value.code == 22


@pytest.mark.parametrize("queue_id", ["1", "99"])
def test_a_new_group_chooses_where_to_begin_in_an_empty_queue(ask: Ask, queue_id: str) -> None:
    with pytest.raises(Refused) as refusal:
        ask(14, {**GROUP, "queueId": queue_id})
    assert refusal.value.code == 22


def test_a_new_group_chooses_where_to_begin_when_the_first_message_is_gone(
    ask: Ask, store: MessageStore
) -> None:
    queue = store.queues.get("t", 0)
    assert queue is not None
    queue.min_offset = 1
    with pytest.raises(Refused) as refusal:
        ask(14, GROUP)
    assert refusal.value.code == 22
    assert offset_of(ask(31, QUEUE)) == 1


def test_commits_are_ignored_and_told_so_while_a_reset_waits(
    ask: Ask, offsets: OffsetTable
) -> None:
    ask(15, {**GROUP, "commitOffset": "3"})
    offsets.reset("g", "t", 0, 1)
    answer = ask(15, {**GROUP, "commitOffset": "3"})
    assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
    assert offset_of(ask(14, GROUP)) == 1
    assert offsets.take_reset("g", "t", 0) == 1
    ask(15, {**GROUP, "commitOffset": "2"})
    assert offset_of(ask(14, GROUP)) == 2


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"consumerGroup": "nobody"}, 26),
        ({"topic": "nowhere"}, 17),
        ({"queueId": ""}, 29),
        ({"commitOffset": ""}, 29),
        ({"queueId": "4"}, 29),
        ({"queueId": "-1"}, 29),
        ({"queueId": "2147483647"}, 29),
    ],
)
def test_a_commit_that_cannot_be_is_refused(ask: Ask, changes: dict[str, str], code: int) -> None:
    with pytest.raises(Refused) as refusal:
        ask(15, {**GROUP, "commitOffset": "2", **changes})
    assert refusal.value.code == code


def test_commits_to_queues_that_do_not_exist_leave_nothing_behind(
    ask: Ask, offsets: OffsetTable
) -> None:
    for queue_id in range(4, 1000):
        with pytest.raises(Refused, match="does not exist on this broker"):
            ask(15, {**GROUP, "queueId": str(queue_id), "commitOffset": "2"})
    assert offsets.to_file().offsets == {}


def test_a_queue_that_its_topic_has_lost_is_consumed_to_its_end(
    ask: Ask, store: MessageStore
) -> None:
    lost = {**GROUP, "queueId": "7"}
    store.append("t", 7, b"body", b"")
    assert ask(15, {**lost, "commitOffset": "1"}).code == 0
    assert offset_of(ask(14, lost)) == 1


def test_bounds_of_a_queue_are_those_of_the_store_and_0_where_there_is_none(ask: Ask) -> None:
    assert offset_of(ask(30, QUEUE)) == 3
    assert offset_of(ask(31, QUEUE)) == 0
    nowhere = {"topic": "nowhere", "queueId": "0"}
    assert [offset_of(ask(code, nowhere)) for code in (30, 31)] == [0, 0]
    assert offset_of(ask(29, {**nowhere, "timestamp": "5"})) == 0
    assert ask(32, nowhere).ext_fields == {"timestamp": "-1"}


def test_the_oldest_message_has_a_time(ask: Ask) -> None:
    assert ask(32, QUEUE).ext_fields == {"timestamp": str(FIRST_MS)}


@pytest.mark.parametrize(
    ("time_ms", "boundary", "offset"),
    [
        (0, None, 0),
        (FIRST_MS + 1, None, 1),
        (FIRST_MS + 1, "lower", 1),
        (FIRST_MS + 1, "odd", 1),
        (FIRST_MS + 1, "UPPER", 0),
        (FIRST_MS + 10_000, "upper", 1),
        (99_999_999_999_999, "lower", 3),
        (99_999_999_999_999, "upper", 2),
        (1, "upper", 0),
    ],
)
def test_a_time_falls_on_an_offset(
    ask: Ask, time_ms: int, boundary: str | None, offset: int
) -> None:
    fields = {**QUEUE, "timestamp": str(time_ms)}
    if boundary is not None:
        fields["boundaryType"] = boundary
    assert offset_of(ask(29, fields)) == offset
