"""Locks of queues for consuming in order."""

import pytest

from downrange.broker.queue_locks import QueueLocks
from downrange.model.topics import MessageQueue
from downrange.testing.clock import ManualClock

QUEUES = [MessageQueue("t", "broker-a", queue_id) for queue_id in range(3)]


@pytest.fixture
def locks(clock: ManualClock) -> QueueLocks:
    return QueueLocks(clock)


def test_a_queue_is_held_by_one_client_of_a_group(locks: QueueLocks) -> None:
    assert locks.lock("g", "a", QUEUES[:2]) == QUEUES[:2]
    assert locks.lock("g", "b", QUEUES) == QUEUES[2:]
    assert locks.lock("other", "b", QUEUES) == QUEUES
    assert [locks.holder("g", queue) for queue in QUEUES] == ["a", "a", "b"]


def test_a_lock_is_given_up_by_its_holder_only(locks: QueueLocks) -> None:
    locks.lock("g", "a", QUEUES)
    locks.unlock("g", "b", QUEUES)
    assert locks.lock("g", "b", QUEUES) == []
    locks.unlock("g", "a", QUEUES[:1])
    assert locks.lock("g", "b", QUEUES) == QUEUES[:1]
    locks.unlock("unknown", "a", QUEUES)


def test_a_lock_that_is_not_renewed_is_free_after_a_minute(
    locks: QueueLocks, clock: ManualClock
) -> None:
    locks.lock("g", "a", QUEUES)
    clock.advance(50_000)
    locks.lock("g", "a", QUEUES[:1])
    clock.advance(10_000)
    assert locks.lock("g", "b", QUEUES) == []
    clock.advance(1)
    assert locks.lock("g", "b", QUEUES) == QUEUES[1:]
    assert locks.holder("g", QUEUES[0]) == "a"


def test_a_group_is_orderly_while_one_of_its_clients_holds_a_queue(
    locks: QueueLocks, clock: ManualClock
) -> None:
    assert not locks.is_orderly("g")
    assert locks.lock("g", "a", []) == []
    assert not locks.is_orderly("g")
    locks.lock("g", "a", QUEUES)
    assert locks.is_orderly("g")
    clock.advance(60_001)
    assert not locks.is_orderly("g")
    assert locks.holder("g", QUEUES[0]) is None


def test_what_has_expired_is_forgotten(locks: QueueLocks, clock: ManualClock) -> None:
    locks.lock("g", "a", QUEUES)
    clock.advance(60_001)
    locks.lock("h", "a", QUEUES)
    locks.expire()
    assert list(locks._groups) == ["h"]
    locks.unlock("h", "a", QUEUES)
    assert not locks._groups


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_a_step_of_the_wall_clock_neither_frees_nor_prolongs_a_lock(
    locks: QueueLocks, clock: ManualClock, step_ms: int
) -> None:
    locks.lock("g", "a", QUEUES)
    clock.jump_to(clock.wall_ms() + step_ms)
    assert locks.lock("g", "b", QUEUES) == []
    clock.advance(60_001)
    assert locks.lock("g", "b", QUEUES) == QUEUES
