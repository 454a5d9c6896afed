"""Which queue is next, and which brokers are left alone."""

import random

import pytest

from downrange.client.queue_choice import FaultTable, QueueChoice, penalty_ms
from downrange.model.topics import MessageQueue

QUEUES = [MessageQueue("t", broker, number) for broker in "ab" for number in range(2)]


def test_queues_take_turns() -> None:
    choice = QueueChoice(random.Random(1))
    chosen = [choice.choose("t", QUEUES) for _ in range(8)]
    assert chosen[:4] == chosen[4:]
    assert set(chosen) == set(QUEUES)


def test_the_broker_that_failed_is_avoided_while_there_is_another() -> None:
    choice = QueueChoice(random.Random(1))
    assert {choice.choose("t", QUEUES, "a").broker_name for _ in range(9)} == {"b"}
    only = QUEUES[:2]
    assert {choice.choose("t", only, "a").broker_name for _ in range(9)} == {"a"}


def test_a_choice_that_was_not_used_comes_again() -> None:
    choice = QueueChoice(random.Random(1))
    first = choice.choose("t", QUEUES)
    choice.take_back("t")
    assert choice.choose("t", QUEUES) == first


@pytest.mark.parametrize(
    ("latency_ms", "pause_ms"),
    [(0, 0), (100, 0), (549, 0), (550, 2000), (1800, 5000), (3000, 6000), (5000, 10_000),
     (14_999, 10_000), (15_000, 30_000)],
)  # fmt: skip
def test_the_slower_the_longer_the_pause(latency_ms: int, pause_ms: int) -> None:
    assert penalty_ms(latency_ms) == pause_ms


def test_a_slow_broker_pauses_and_comes_back() -> None:
    faults = FaultTable()
    choice = QueueChoice(random.Random(1), faults)
    faults.update("a", 600, 1_000, failed=False, reachable=True)
    assert {choice.choose("t", QUEUES, None, 2_999).broker_name for _ in range(9)} == {"b"}
    assert {choice.choose("t", QUEUES, None, 3_000).broker_name for _ in range(9)} == {"a", "b"}


def test_a_broker_that_failed_pauses_as_if_it_had_taken_ten_seconds() -> None:
    faults = FaultTable()
    faults.update("a", 1, 0, failed=True, reachable=False)
    assert not faults.is_available("a", 9_999)
    assert faults.is_available("a", 10_000)
    assert not faults.is_reachable("a")


def test_among_bad_brokers_the_reachable_one_is_taken() -> None:
    faults = FaultTable()
    choice = QueueChoice(random.Random(1), faults)
    faults.update("a", 1, 0, failed=True, reachable=False)
    faults.update("b", 20_000, 0, failed=False, reachable=True)
    assert {choice.choose("t", QUEUES, None, 1).broker_name for _ in range(9)} == {"b"}
    assert choice.choose("t", QUEUES[:2], None, 1).broker_name == "a"
