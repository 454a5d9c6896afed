"""Ranges, splits and limits, decided without a cluster."""

import random

import pytest

from downrange.model.topics import MessageQueue
from downrange.spark.offsets import OffsetsError, parse, parse_queues, parse_times, to_json
from downrange.spark.planning import (
    PlanError,
    QueueRange,
    limited,
    limited_by_bytes,
    lost_ends,
    ranges,
    resolved,
    split,
    with_new_queues,
)
from downrange.spark.read_options import Position
from downrange.spark.sink_ids import SeenSinkIds

QUEUES = [MessageQueue("t", "b", number) for number in range(4)]
LOW = dict(zip(QUEUES, (0, 5, 0, 10), strict=True))
HIGH = dict(zip(QUEUES, (10, 20, 0, 10), strict=True))


def test_offsets_have_one_json_form_whatever_their_order() -> None:
    queues = [MessageQueue("b", "y", 10), MessageQueue("b", "y", 9), MessageQueue("a", "z", 0)]
    shaped = to_json({queue: at for at, queue in enumerate(queues)})
    assert str(shaped) == "{'a': {'z': {'0': 2}}, 'b': {'y': {'9': 1, '10': 0}}}"
    assert parse('{"b": {"y": {"10": 0, "9": 1}}, "a": {"z": {"0": 2}}}') == {
        queue: at for at, queue in enumerate(queues)
    }


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("nonsense", "no JSON"),
        ("[]", "the topics are"),
        ('{"t": 1}', "the brokers of topic 't'"),
        ('{"t": {"b": [1]}}', "the queues of broker 'b'"),
        ('{"t": {"b": {"x": 1}}}', "a queue 'x'"),
        ('{"t": {"b": {"-1": 1}}}', "a queue '-1'"),
        ('{"t": {"b": {"0": "1"}}}', "queue 0 of topic 't'"),
        ('{"t": {"b": {"0": -3}}}', "-2 for the earliest"),
        ('{"t": {"b": {"0": true}}}', "an offset is a number"),
    ],
)
def test_wrong_offsets_say_what_is_wrong(text: str, what: str) -> None:
    with pytest.raises(OffsetsError, match=what):
        parse(text)


def test_queues_and_times_of_options() -> None:
    assert parse_queues('{"t": {"b": [1, 0, 1]}}') == frozenset(QUEUES[:2])
    for text in ('{"t": {"b": []}}', '{"t": {"b": "0"}}', "{}", '{"t": {"b": ["x"]}}'):
        with pytest.raises(OffsetsError):
            parse_queues(text)
    assert parse_times('{"t": 5}') == {"t": 5}
    for text in ('{"t": -5}', '{"t": "5"}', '{"t": true}'):
        with pytest.raises(OffsetsError):
            parse_times(text)


def test_positions_are_words_offsets_or_times() -> None:
    def at(position: Position, times: dict[MessageQueue, int] | None = None) -> list[int]:
        return list(resolved(position, QUEUES, LOW, HIGH, times or {}).values())

    assert at(Position(word="earliest")) == [0, 5, 0, 10]
    assert at(Position(word="latest")) == [10, 20, 0, 10]
    some = {QUEUES[0]: 3, QUEUES[1]: -1, QUEUES[3]: -2}
    assert at(Position(word="earliest", offsets=some)) == [3, 20, 0, 10]
    assert at(Position(word="latest", offsets=some)) == [3, 20, 0, 10]
    # A broker may answer with an offset that is not there any more.
    found = dict(zip(QUEUES, (4, 0, 7, 11), strict=True))
    assert at(Position(word="", time_ms=1), found) == [4, 5, 0, 10]
    with pytest.raises(PlanError, match="queue 7 of topic 't'"):
        at(Position(word="earliest", offsets={MessageQueue("t", "b", 7): 1}))


def test_ranges_leave_out_what_is_empty_and_losses_are_named() -> None:
    start = {**LOW, QUEUES[3]: 12}
    assert ranges(start, HIGH) == [QueueRange("t", "b", 0, 0, 10), QueueRange("t", "b", 1, 5, 20)]
    assert lost_ends(start, HIGH) == [QueueRange("t", "b", 3, 10, 12)]
    assert lost_ends(start, HIGH)[0].count == 2
    assert with_new_queues({QUEUES[0]: 7}, {QUEUES[0]: 0, QUEUES[1]: 5}) == {
        QUEUES[0]: 7,
        QUEUES[1]: 5,
    }


@pytest.mark.parametrize("seed", range(50))
def test_a_split_covers_every_offset_once(seed: int) -> None:
    chance = random.Random(seed)
    whole = [
        QueueRange("t", "b", number, start := chance.randrange(50), start + chance.randint(1, 500))
        for number in range(chance.randint(1, 6))
    ]
    partitions_min = chance.choice([0, 1, 5, 40])
    records_max = chance.choice([0, 0, 1, 7, 100])
    parts = split(whole, partitions_min=partitions_min, records_max=records_max)
    for one in whole:
        mine = [part for part in parts if part.queue_id == one.queue_id]
        covered = [offset for part in mine for offset in range(part.start, part.end)]
        assert covered == list(range(one.start, one.end)), f"seed {seed}"
    if records_max:
        assert max(part.count for part in parts) <= records_max
    assert all(part.count for part in parts)


def test_long_ranges_are_cut_into_more_parts() -> None:
    whole = [QueueRange("t", "b", 0, 0, 900), QueueRange("t", "b", 1, 0, 100)]
    parts = split(whole, partitions_min=10)
    assert [part.queue_id for part in parts] == [0] * 9 + [1]
    assert len(split(whole, partitions_min=2)) == 2
    assert split([], partitions_min=4) == []


@pytest.mark.parametrize("seed", range(50))
def test_a_limit_is_used_up_and_never_exceeded(seed: int) -> None:
    chance = random.Random(seed)
    start = {queue: chance.randrange(100) for queue in QUEUES}
    latest = {queue: start[queue] + chance.choice([0, 1, 3, 1000]) for queue in QUEUES}
    count_max = chance.choice([1, 2, 10, 500, 10_000])
    end = limited(start, latest, count_max)
    taken = sum(end[queue] - start[queue] for queue in QUEUES)
    waiting = sum(latest[queue] - start[queue] for queue in QUEUES)
    assert taken == min(count_max, waiting), f"seed {seed}"
    assert all(start[queue] <= end[queue] <= latest[queue] for queue in QUEUES)


def test_no_queue_starves_beside_a_long_one() -> None:
    start = dict.fromkeys(QUEUES, 0)
    latest = dict(zip(QUEUES, (1_000_000, 1, 1, 0), strict=True))
    end = limited(start, latest, 100)
    assert [end[queue] for queue in QUEUES] == [98, 1, 1, 0]


def test_bytes_are_counted_by_what_a_record_takes() -> None:
    start = dict.fromkeys(QUEUES[:2], 0)
    latest = dict.fromkeys(QUEUES[:2], 100)
    sizes = dict.fromkeys(QUEUES[:2], 50.0)
    assert sum(limited_by_bytes(start, latest, 5_000, sizes).values()) == 100
    assert limited_by_bytes(start, latest, 1_000_000, sizes) == latest
    assert sum(limited_by_bytes(start, latest, 1, sizes).values()) == 1
    assert limited_by_bytes(start, start, 10, {}) == start


def test_sink_ids_are_met_once() -> None:
    seen = SeenSinkIds()
    assert seen.is_first(["q:1:0:0", "q:1:0:1", None, None]) == [True] * 4
    assert seen.is_first(["q:1:0:1", "q:1:1:1", "other", "other"]) == [False, True, True, False]
