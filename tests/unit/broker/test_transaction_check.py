"""Open half messages are asked for in time, in the words of RocketMQ, and none gets lost."""

from pathlib import Path

import pytest
from golden import captured
from unit.broker.bench import (
    captured_records,
    captured_requests,
    put_captured,
    without_place,
)
from unit.broker.transactions import GROUP, Rig, asked_of, times_of

from downrange.broker.transaction_check import (
    STEP_MAX,
)
from downrange.model.names import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    TRANSACTION_CHECK_MAX_TOPIC,
    TRANSACTION_GROUP,
)
from downrange.protocol.properties import decode_properties
from downrange.protocol.record import decode_record
from downrange.protocol.request_codes import RequestCode
from downrange.testing.clock import ManualClock


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_half_message_is_asked_for_six_seconds_after_its_birth(rig: Rig) -> None:
    rig.put(b"one")
    rig.round(6_000)
    assert rig.halves_put == [(b"one", "")]
    rig.round(1)
    assert rig.halves_put == [(b"one", ""), (b"one", "1")]
    assert rig.picked_groups == [GROUP]
    assert rig.progress == (1, 0)
    rig.round(30_000)
    assert rig.halves_put == [(b"one", ""), (b"one", "1"), (b"one", "2")]


def test_the_question_is_the_one_that_rocketmq_asks(tmp_path: Path) -> None:
    halves = [r for r in captured_records() if r.topic == HALF_TOPIC.encode()]
    compared = 0
    for theirs in captured_requests(RequestCode.CHECK_TRANSACTION_STATE):
        assert theirs.body is not None
        their_record = decode_record(theirs.body)
        half = next(
            (
                r
                for r in halves
                if r.store_timestamp == their_record.store_timestamp and r.flag and not times_of(r)
            ),
            None,
        )
        if half is None or compared == 3:
            continue
        compared += 1
        rig = Rig(tmp_path / str(compared), ManualClock(half.store_timestamp))
        put_captured(rig.bench, half)
        (ours,) = asked_of(rig, lambda rig=rig: rig.round(6_100))  # type: ignore[misc]
        assert ours.is_one_way
        assert ours.body is not None
        assert ours.ext_fields is not None
        assert theirs.ext_fields is not None
        placed = ("commitLogOffset", "tranStateTableOffset", "offsetMsgId")
        assert ours.ext_fields.keys() == theirs.ext_fields.keys()
        assert _without(ours.ext_fields, placed) == _without(theirs.ext_fields, placed)
        our_record = decode_record(ours.body)
        assert our_record.store_timestamp == their_record.store_timestamp
        assert decode_properties(our_record.properties) == decode_properties(
            their_record.properties
        )
        assert without_place(our_record)._replace(properties=b"") == without_place(
            their_record
        )._replace(properties=b"")
        copy = rig.bench.records(HALF_TOPIC)[1]
        assert ours.ext_fields["commitLogOffset"] == str(copy.physical_offset)
        assert ours.ext_fields["tranStateTableOffset"] == str(copy.queue_offset)
        assert (our_record.physical_offset, our_record.queue_offset) == (
            copy.physical_offset,
            copy.queue_offset,
        )
    assert compared


def test_the_copy_is_the_record_that_rocketmq_writes_with_its_flag(tmp_path: Path) -> None:
    halves = [r for r in captured_records() if r.topic == HALF_TOPIC.encode()]
    copy = next(record for record in halves if times_of(record) == "1")
    first = next(r for r in halves if r.born_timestamp == copy.born_timestamp and not times_of(r))
    rig = Rig(tmp_path, ManualClock(first.store_timestamp))
    put_captured(rig.bench, first)
    rig.round(6_100)
    ours = rig.bench.records(HALF_TOPIC)[1]
    assert decode_properties(ours.properties) == decode_properties(copy.properties)
    # RocketMQ forgets the user's flag here; that would be a loss for whoever consumes the message.
    assert copy.flag == 0
    assert without_place(ours)._replace(properties=b"") == without_place(copy)._replace(
        properties=b"", flag=first.flag
    )


@pytest.mark.parametrize("body", [b"0,2,", b"0,2"])
def test_what_the_log_of_ends_names_is_not_asked_for(rig: Rig, body: bytes) -> None:
    for number in range(3):
        rig.put(b"%d" % number)
    rig.bench.writer.put(OP_HALF_TOPIC, 0, body, b"TAGS\x01d\x02")
    rig.round(7_000)
    assert rig.halves_put[3:] == [(b"1", "1")]
    assert rig.progress == (3, 1)


def test_an_end_of_release_4_has_one_offset_without_a_comma(rig: Rig) -> None:
    rig.put(b"0")
    rig.put(b"1")
    for body in (b"1", b"0"):
        rig.bench.writer.put(OP_HALF_TOPIC, 0, body, b"TAGS\x01d\x02")
    rig.round(7_000)
    assert len(rig.halves_put) == 2
    assert rig.progress == (2, 2)


def test_an_end_that_is_not_written_yet_counts(rig: Rig) -> None:
    rig.put(b"one")
    rig.bench.pass_time(7_000)
    rig.halves.end(0)
    rig.round()
    assert len(rig.halves_put) == 1
    rig.round(30_000)
    assert len(rig.halves_put) == 1
    assert rig.progress == (1, 1)


def test_the_log_of_ends_is_kept_from_the_first_end_that_is_needed(rig: Rig) -> None:
    rig.put(b"old")
    rig.bench.pass_time(7_000)
    rig.put(b"young")
    for offset in (0, 1):
        rig.halves.end(offset)
        rig.halves.flush_ends()
    rig.put(b"younger")
    rig.bench.writer.put(OP_HALF_TOPIC, 0, b"2,99,", b"TAGS\x01d\x02")
    rig.round()
    assert rig.progress == (3, 2)


def test_after_fifteen_questions_a_half_message_is_given_up(rig: Rig) -> None:
    rig.put(b"one")
    rig.round(7_000)
    for _ in range(14):
        rig.round(30_000)
    assert rig.halves_put[-1] == (b"one", "15")
    assert rig.bench.records(TRANSACTION_CHECK_MAX_TOPIC) == []
    rig.round(30_000)
    (record,) = rig.bench.records(TRANSACTION_CHECK_MAX_TOPIC)
    assert (record.body, record.flag, times_of(record)) == (b"one", 9, "15")
    rig.round(30_000)
    assert len(rig.halves_put) == 16
    assert len(rig.bench.records(TRANSACTION_CHECK_MAX_TOPIC)) == 1


def test_a_half_message_older_than_files_are_kept_is_given_up(rig: Rig) -> None:
    rig.put(b"one")
    rig.round(72 * 3_600_000 + 1)
    assert [r.body for r in rig.bench.records(TRANSACTION_CHECK_MAX_TOPIC)] == [b"one"]


def test_a_producer_that_wants_peace_is_not_asked_before(rig: Rig) -> None:
    rig.put(b"one", CHECK_IMMUNITY_TIME_IN_SECONDS="40")
    rig.round(30_000)
    rig.round(10_000)
    assert rig.picked_groups == []
    assert rig.halves_put == [(b"one", "")] * 3
    text = decode_properties(rig.bench.records(HALF_TOPIC)[-1].properties)
    assert text["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
    rig.round(1)
    assert rig.picked_groups == [GROUP]
    assert rig.halves_put[-1] == (b"one", "1")


def test_the_end_of_a_message_that_had_peace_is_found_by_its_first_offset(rig: Rig) -> None:
    rig.put(b"one", CHECK_IMMUNITY_TIME_IN_SECONDS="40")
    rig.round(30_000)
    rig.halves.end(0)
    rig.round(30_000)
    assert rig.halves_put == [(b"one", ""), (b"one", "")]
    assert rig.picked_groups == []


def test_an_end_is_not_forgotten_if_the_round_that_reads_it_does_not_reach_the_copy(
    rig: Rig,
) -> None:
    rig.put(b"one", CHECK_IMMUNITY_TIME_IN_SECONDS="40")
    rig.bench.pass_time(30_000)
    rig.put(b"young")
    rig.round(1)
    assert rig.halves_put == [(b"one", ""), (b"young", ""), (b"one", "")]
    rig.halves.end(0)
    rig.round(4_000)
    assert rig.progress == (1, 1)
    rig.round(30_000)
    assert rig.halves_put[3:] == [(b"young", "1")]


def test_rounds_go_on_after_a_restart(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.put(b"ended")
    rig.put(b"open")
    rig.halves.end(0)
    rig.round(7_000)
    rig.check.stop()
    rig.halves.flush_ends()
    rig.bench.settle()
    rig.check.settle()
    rig.offsets.save()
    rig.bench.store.close()

    again = Rig(tmp_path, rig.bench.clock)
    again.round(30_000)
    assert again.halves_put == [(b"ended", ""), (b"open", ""), (b"open", "1"), (b"open", "2")]


def test_progress_is_not_ahead_of_the_disk(rig: Rig) -> None:
    rig.put(b"one")
    rig.bench.pass_time(7_000)
    rig.check.check()
    assert rig.progress == (-1, -1)
    rig.bench.settle()
    rig.check.settle()
    assert rig.progress == (1, 0)


def test_a_store_that_refuses_loses_nothing(rig: Rig) -> None:
    rig.put(b"one")
    rig.bench.fill_disk(is_full=True)
    rig.round(7_000)
    rig.bench.fill_disk(is_full=False)
    assert rig.halves_put == [(b"one", "")]
    rig.round(30_000)
    assert rig.halves_put == [(b"one", ""), (b"one", "1")]


def test_a_long_round_lets_others_have_their_turn(rig: Rig) -> None:
    count = STEP_MAX + 10
    for number in range(count):
        rig.put(b"%d" % number)
    rig.bench.pass_time(7_000)
    rig.check.check()
    rig.check.check()
    rig.bench.settle()
    assert count < len(rig.halves_put) <= count + STEP_MAX
    rig.bench.pass_time(0)
    assert len(rig.halves_put) == 2 * count


def test_a_broker_without_transactions_has_nothing_to_do(rig: Rig) -> None:
    rig.round(30_000)
    assert rig.progress == (-1, -1)


@pytest.mark.parametrize("is_resumed", [True, False])
def test_the_log_of_ends_of_a_rocketmq_broker_is_understood(
    tmp_path: Path, is_resumed: bool
) -> None:
    captured.restore_store("clean", tmp_path)
    records = list(captured_records())
    rig = Rig(tmp_path, ManualClock(max(record.store_timestamp for record in records)))
    if not is_resumed:  # as if that broker had never checked
        rig.offsets.remove_group(TRANSACTION_GROUP)
    halves, ends, given_up = (
        [record for record in records if record.topic == topic.encode()]
        for topic in (HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_CHECK_MAX_TOPIC)
    )
    ended = {int(text) for end in ends for text in end.body.split(b",") if text}
    start = rig.progress[0]
    newest = {half.body: half.queue_offset for half in halves}  # of its copies
    is_open = [
        half
        for half in halves
        if half.queue_offset >= start
        and half.queue_offset not in ended
        and half.queue_offset == newest[half.body]
    ]
    asked = [half.body for half in is_open if times_of(half) != "15"]
    assert bool(is_open) or is_resumed
    rig.round(30_000)
    assert [body for body, _ in rig.halves_put[len(halves) :]] == asked
    given_up_count = len(rig.bench.records(TRANSACTION_CHECK_MAX_TOPIC)) - len(given_up)
    assert given_up_count == len(is_open) - len(asked)
    assert rig.progress == (len(halves), len(ends))


def _without(fields: dict[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in fields.items() if name not in names}
