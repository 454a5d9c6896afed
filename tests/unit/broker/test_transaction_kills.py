"""Checks of half messages stay bounded, whoever dies, is gone, or has a wrong clock."""

from pathlib import Path

import pytest
from unit.broker.transactions import GROUP, Rig, SilentProducer

from downrange.broker import check_round
from downrange.model.names import TRANSACTION_CHECK_MAX_TOPIC
from downrange.protocol.properties import encode_properties

HOUR_MS = 3_600_000


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


# --- kills --------------------------------------------------------------------------------


def killed(rig: Rig) -> Rig:
    """The broker dies without a word and starts again; the offsets were never saved."""
    rig.bench.store.abandon()
    return Rig(rig.bench.store.settings.root, rig.bench.clock)


def test_kills_do_not_multiply_half_messages(rig: Rig) -> None:
    """Without progress each start meets the originals and all their copies again."""
    halves, kills = 40, 8
    for number in range(halves):
        rig.put(b"%d" % number)
    bodies = {b"%d" % number for number in range(halves)}
    for kill in range(kills):
        rig.round(30_000)
        assert isinstance(rig.producer, SilentProducer)
        assert sorted(rig.producer.asked) == sorted(bodies), kill  # each once
        assert len(rig.halves_put) == halves * (kill + 2)
        rig = killed(rig)


def test_kills_do_not_multiply_half_messages_whose_producers_want_peace(rig: Rig) -> None:
    rig.put(b"one", CHECK_IMMUNITY_TIME_IN_SECONDS="1000")
    for kill in range(8):
        rig.round(30_000)
        assert len(rig.halves_put) == kill + 2
        rig = killed(rig)


def test_half_messages_without_a_unique_key_do_not_multiply_either(rig: Rig) -> None:
    text = encode_properties({"PGROUP": GROUP, "REAL_TOPIC": "T", "REAL_QID": "3"})
    for _ in range(2):  # two transactions that look the same
        rig.put_record(b"same", text, rig.bench.clock.wall_ms(), 9)
    rig.round(30_000)
    assert rig.halves_put == [(b"same", "")] * 2 + [(b"same", "1")] * 2
    rig = killed(rig)
    rig.round(30_000)
    assert rig.halves_put[4:] == [(b"same", "2")] * 2


def test_what_was_decided_before_a_kill_stays_decided(rig: Rig) -> None:
    rig.put(b"one")
    rig.round(30_000)
    rig.halves.end(1)  # the producer answers about the copy
    rig.halves.flush_ends()
    rig.bench.settle()
    rig = killed(rig)
    rig.round(30_000)
    assert rig.halves_put == [(b"one", ""), (b"one", "1")]
    assert isinstance(rig.producer, SilentProducer)
    assert rig.producer.asked == []


def test_a_half_message_is_given_up_once_however_often_the_broker_dies(rig: Rig) -> None:
    rig.put(b"one")
    rig.bench.pass_time(72 * 3_600_000 + 1)
    for _ in range(3):
        rig.round(30_000)
        rig.halves.flush_ends()
        rig.bench.settle()
        rig = killed(rig)
    assert len(rig.bench.records(TRANSACTION_CHECK_MAX_TOPIC)) == 1


# --- producers that are gone --------------------------------------------------------------


def test_nothing_is_put_for_a_producer_that_is_gone_and_it_is_asked_when_it_returns(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    producer, rig.producer = SilentProducer(), None
    for number in range(5):
        rig.put(b"%d" % number)
    for _ in range(20):  # more rounds than checks are allowed
        rig.round(30_000)
    assert len(rig.halves_put) == 5
    assert [record.message for record in caplog.records] == [
        f"producer group {GROUP}: not connected, 5 half messages wait to be checked"
    ] * 20
    rig.producer = producer
    rig.round(30_000)
    assert producer.asked == [b"%d" % number for number in range(5)]
    assert rig.halves_put[5:] == [(b"%d" % number, "1") for number in range(5)]


def test_a_producer_that_is_gone_does_not_hold_up_others(rig: Rig) -> None:
    rig.producer = None
    rig.put(b"held")
    rig.round(30_000)
    producer = rig.producer = SilentProducer()
    rig.pick = lambda group: producer if group == "there" else None  # type: ignore[method-assign]
    rig.put(b"asked", PGROUP="there")
    rig.put(b"ended", PGROUP="there")
    rig.halves.end(2)
    for times in range(1, 4):
        rig.round(30_000)
        assert producer.asked == [b"asked"] * times
    assert rig.progress[0] == 0


def test_many_ended_half_messages_behind_one_that_is_held_are_not_walked_for_ever(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_round, "PASSED_COUNT_MAX", 10)
    rig.producer = None
    rig.put(b"held")
    for number in range(12):
        rig.halves.end(rig.put(b"%d" % number))
    rig.round(30_000)
    assert rig.progress[0] == 0
    rig.round(30_000)
    assert rig.halves_put[13:] == [(b"held", "0")]
    assert rig.progress == (13, 1)
    for _ in range(5):
        rig.round(30_000)
    assert rig.halves_put[13:] == [(b"held", "0")]


# --- clocks -------------------------------------------------------------------------------


def test_a_birth_in_the_future_blocks_nobody_and_is_checked_at_once(rig: Rig) -> None:
    now_ms = rig.bench.clock.wall_ms()
    text = {"PGROUP": GROUP, "REAL_TOPIC": "T", "REAL_QID": "3", "UNIQ_KEY": "ID"}
    rig.put_record(b"future", encode_properties(text), now_ms + 1_000 * HOUR_MS, 9)
    text["CHECK_IMMUNITY_TIME_IN_SECONDS"] = "60"
    rig.put_record(b"in peace", encode_properties(text), now_ms + 1_000 * HOUR_MS, 9)
    rig.put(b"now")
    rig.round(7_000)
    assert isinstance(rig.producer, SilentProducer)
    assert rig.producer.asked == [b"future", b"in peace", b"now"]


def test_a_clock_that_is_set_back_does_not_stop_the_checks(rig: Rig) -> None:
    rig.put(b"before")
    rig.bench.clock.jump_to(rig.bench.clock.wall_ms() - HOUR_MS)
    rig.put(b"after")
    rig.round(7_000)
    assert isinstance(rig.producer, SilentProducer)
    assert rig.producer.asked == [b"before", b"after"]


def test_a_clock_that_is_a_little_ahead_is_not_the_future(rig: Rig) -> None:
    text = {"PGROUP": GROUP, "REAL_TOPIC": "T", "REAL_QID": "3", "UNIQ_KEY": "ID"}
    rig.put_record(b"one", encode_properties(text), rig.bench.clock.wall_ms() + 2_000, 9)
    rig.round(1_000)
    assert rig.picked_groups == []
    rig.round(8_000)
    assert rig.picked_groups == [GROUP]
