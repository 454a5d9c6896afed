"""What a consumer holds of a queue, and what it may commit."""

import random

import pytest
from unit.client.received import offsets, received

from downrange.client.flow_control import FlowLimits, HoldBack, hold_back
from downrange.client.process_queue import ProcessQueue
from downrange.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> ProcessQueue:
    return ProcessQueue(clock)


def test_the_lowest_unconsumed_offset_is_what_may_be_committed(queue: ProcessQueue) -> None:
    messages = [received(offset) for offset in range(10, 15)]
    queue.put(messages)
    assert queue.remove([messages[1], messages[2]]) == 10
    assert queue.remove([messages[0]]) == 13
    assert queue.remove([messages[4]]) == 13
    assert queue.remove([messages[3]]) == 15
    assert queue.remove([messages[3]]) is None
    assert (queue.count, queue.bytes, queue.span) == (0, 0, 0)


def test_whatever_the_order_no_unconsumed_message_is_below_the_commit(clock: ManualClock) -> None:
    for seed in range(50):
        chance = random.Random(seed)
        queue, waiting, done = ProcessQueue(clock), [], set()
        end = 0
        for _ in range(60):
            if chance.random() < 0.4:
                pulled = [received(end + step) for step in range(chance.randint(1, 8))]
                end += len(pulled)
                queue.put(pulled)
                waiting += pulled
            elif waiting:
                picked = chance.sample(waiting, chance.randint(1, len(waiting)))
                waiting = [one for one in waiting if one not in picked]
                done.update(offsets(picked))
                commit = queue.remove(picked)
                assert commit == min(offsets(waiting), default=end), seed
        assert queue.count == len(waiting), seed
        assert queue.bytes == 4 * len(waiting), seed


def test_count_size_and_span_are_those_of_what_waits(queue: ProcessQueue) -> None:
    messages = [received(5, b"abc"), received(9, b"de"), received(30, b"f")]
    queue.put(messages)
    assert (queue.count, queue.bytes, queue.span) == (3, 6, 25)
    queue.remove([messages[2]])
    assert (queue.count, queue.bytes, queue.span) == (2, 5, 4)
    assert messages[0] in queue
    assert messages[2] not in queue


def test_a_message_that_comes_twice_counts_once(queue: ProcessQueue) -> None:
    queue.put([received(5, b"abc"), received(6, b"abc")])
    queue.put([received(5, b"longer"), received(3, b"x")])
    assert (queue.count, queue.bytes, queue.first_offset) == (3, 10, 3)
    assert offsets(queue.take(10)) == [3, 5, 6]


def test_only_the_first_put_asks_for_somebody_who_consumes(queue: ProcessQueue) -> None:
    assert queue.put([received(1)])
    assert not queue.put([received(2)])
    assert offsets(queue.take(5)) == [1, 2]
    assert queue.take(5) == []
    assert queue.put([received(3)])


def test_taken_messages_are_committed_together(queue: ProcessQueue) -> None:
    queue.put([received(offset) for offset in range(4)])
    queue.take(2)
    queue.take(1)
    assert queue.count == 4
    assert queue.commit() == 3
    assert queue.count == 1
    assert queue.bytes == 4
    assert queue.commit() is None


def test_a_rollback_puts_all_taken_messages_back_in_order(queue: ProcessQueue) -> None:
    queue.put([received(offset) for offset in range(5)])
    queue.take(2)
    queue.take(2)
    queue.rollback()
    assert offsets(queue.take(9)) == [0, 1, 2, 3, 4]


def test_what_is_consumed_again_comes_before_all_others(queue: ProcessQueue) -> None:
    queue.put([received(offset) for offset in range(5)])
    kept = queue.take(2)
    again = queue.take(2)
    queue.consume_again(again)
    assert offsets(queue.take(9)) == [2, 3, 4]
    assert queue.commit() == 5
    assert kept[0] not in queue


def test_a_message_is_overdue_when_the_listener_has_had_it_too_long(
    queue: ProcessQueue, clock: ManualClock
) -> None:
    messages = [received(1), received(2)]
    queue.put(messages)
    clock.advance(20 * 60_000)
    assert queue.overdue(900) is None  # nobody has it yet
    queue.begin_call(messages)
    clock.advance(900_000)
    assert queue.overdue(900) is None
    clock.advance(1)
    assert queue.overdue(900) is messages[0]
    queue.remove([messages[0]])
    assert queue.overdue(900) is messages[1]


def test_a_lock_that_is_not_renewed_for_30_seconds_is_not_ours(
    queue: ProcessQueue, clock: ManualClock
) -> None:
    ours = [queue.may_consume_in_order]
    for renew, pass_ms in ((True, 30_000), (False, 1), (True, 0)):
        if renew:
            queue.lock()
        clock.advance(pass_ms)
        ours.append(queue.may_consume_in_order)
    assert ours == [False, True, False, True]


def test_a_pull_loop_counts_as_lost_after_two_minutes(
    queue: ProcessQueue, clock: ManualClock
) -> None:
    clock.advance(120_000)
    assert not queue.is_pull_expired
    clock.advance(1)
    assert queue.is_pull_expired


def test_clearing_forgets_all(queue: ProcessQueue) -> None:
    queue.put([received(7), received(8)])
    queue.take(1)
    queue.clear()
    assert (queue.count, queue.bytes, queue.first_offset) == (0, 0, None)


def test_the_description_has_the_real_figures(queue: ProcessQueue, clock: ManualClock) -> None:
    queue.put([received(offset, bytes(1024 * 1024)) for offset in range(4)], queue_end=50)
    queue.take(1)
    queue.lock()
    clock.advance(5000)
    shown = queue.describe(99)
    assert (shown.commit_offset, shown.cached_msg_count, shown.cached_msg_size_in_mib) == (99, 3, 4)
    assert (shown.cached_msg_min_offset, shown.cached_msg_max_offset) == (1, 3)
    assert (shown.transaction_msg_count, shown.transaction_msg_max_offset) == (1, 0)
    assert shown.last_lock_timestamp == clock.wall_ms() - 5000
    assert queue.accumulated == 47


LIMITS = FlowLimits(count_max=3, size_mib_max=1, span_max=10)


def test_too_many_messages_hold_the_pull_back(queue: ProcessQueue) -> None:
    queue.put([received(offset) for offset in range(3)])
    assert hold_back(queue, LIMITS, in_order=False) is None
    queue.put([received(3)])
    assert hold_back(queue, LIMITS, in_order=False) is HoldBack.COUNT


def test_too_large_messages_hold_the_pull_back(queue: ProcessQueue) -> None:
    queue.put([received(0, bytes(2 * 1024 * 1024 - 1))])
    assert hold_back(queue, LIMITS, in_order=False) is None
    queue.put([received(1, b"x")])
    assert hold_back(queue, LIMITS, in_order=False) is HoldBack.SIZE


def test_a_message_that_hangs_holds_the_pull_back_unless_in_order(queue: ProcessQueue) -> None:
    queue.put([received(0), received(11)])
    assert hold_back(queue, LIMITS, in_order=False) is HoldBack.SPAN
    assert hold_back(queue, LIMITS, in_order=True) is None


def test_a_topics_limits_are_shared_by_its_queues() -> None:
    limits = FlowLimits()
    assert (limits.count_max, limits.size_mib_max, limits.span_max) == (1000, 100, 2000)
    shared = limits.shared_by(4, topic_count_max=400, topic_size_mib_max=2)
    assert (shared.count_max, shared.size_mib_max, shared.span_max) == (100, 1, 2000)
    assert limits.shared_by(0, topic_count_max=4, topic_size_mib_max=4) == limits
    assert limits.shared_by(3, topic_count_max=None, topic_size_mib_max=None) == limits
