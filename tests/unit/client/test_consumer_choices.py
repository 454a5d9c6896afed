"""Subscriptions, start offsets, settings and statistics."""

import pytest

from downrange.client.consume_stats import ConsumeStats
from downrange.client.consumer_settings import (
    ConsumerSettingsError,
    LitePullSettings,
    MessageModel,
    PullConsumerSettings,
    PushConsumerSettings,
)
from downrange.client.start_offset import (
    Ask,
    ConsumeFromWhere,
    Question,
    StartOffset,
    answered,
    choose_start,
)
from downrange.client.subscription import SubscriptionError, subscribe, subscribe_tags
from downrange.model.topics import MessageQueue
from downrange.protocol.java_hash import java_hash
from downrange.testing.clock import ManualClock

ORDERS = MessageQueue("orders", "b", 0)
RETRY = MessageQueue("%RETRY%g", "b", 0)
LAST, FIRST, TIME = (
    ConsumeFromWhere.LAST_OFFSET,
    ConsumeFromWhere.FIRST_OFFSET,
    ConsumeFromWhere.TIMESTAMP,
)


@pytest.mark.parametrize("where", ConsumeFromWhere)
@pytest.mark.parametrize("queue", [ORDERS, RETRY])
def test_what_the_group_has_committed_wins(queue: MessageQueue, where: ConsumeFromWhere) -> None:
    assert choose_start(queue, 0, where, 5).reason.endswith("the queue is young")
    assert choose_start(queue, 77, where, 5) == StartOffset(77, "the group has come this far")


@pytest.mark.parametrize(
    ("queue", "where", "expected"),
    [
        (ORDERS, LAST, Question.MAX_OFFSET),
        (ORDERS, FIRST, 0),
        (ORDERS, TIME, Question.OFFSET_BY_TIME),
        (RETRY, LAST, 0),
        (RETRY, FIRST, 0),
        (RETRY, TIME, Question.MAX_OFFSET),
    ],
)
def test_a_new_group_begins_where_java_begins(
    queue: MessageQueue, where: ConsumeFromWhere, expected: object
) -> None:
    choice = choose_start(queue, None, where, 5)
    assert (choice.question if isinstance(choice, Ask) else choice.offset) == expected
    assert "no offset here" in choice.reason


def test_the_reason_says_what_was_asked() -> None:
    choice = choose_start(ORDERS, None, TIME, 1234)
    assert isinstance(choice, Ask)
    start = answered(choice, 9)
    assert start.offset == 9
    assert "CONSUME_FROM_TIMESTAMP 1234" in start.reason
    assert "first message of a time" in start.reason


def test_tags_become_a_subscription_with_their_codes() -> None:
    found = subscribe_tags("orders", " new || paid ||", version_ms=7)
    assert found.sub_string == " new || paid ||"
    assert found.tags_set == ("new", "paid")
    assert set(found.code_set) == {java_hash("new"), java_hash("paid")}
    assert (found.sub_version, found.expression_type) == (7, "TAG")
    assert subscribe_tags("orders", version_ms=7).sub_string == "*"
    assert subscribe("orders", "", version_ms=7).sub_string == "*"


def test_an_sql_expression_travels_as_it_is() -> None:
    found = subscribe("orders", "a > 5", "SQL92", version_ms=7)
    assert (found.sub_string, found.expression_type, found.tags_set) == ("a > 5", "SQL92", ())


@pytest.mark.parametrize(
    ("topic", "expression", "kind", "text"),
    [
        ("orders", "||", "TAG", "no tag"),
        ("orders", "", "SQL92", "empty"),
        ("orders", "x", "XPATH", "TAG and SQL92"),
        ("or ders", "*", "TAG", "characters"),
        ("or ders", "a = 1", "SQL92", "characters"),
        ("o" * 128, "*", "TAG", "over 127"),
    ],
)
def test_a_bad_subscription_says_what_is_expected(
    topic: str, expression: str, kind: str, text: str
) -> None:
    with pytest.raises(SubscriptionError, match=text):
        subscribe(topic, expression, kind, version_ms=0)


def test_defaults_are_those_of_java() -> None:
    push = PushConsumerSettings()
    assert push.message_model is MessageModel.CLUSTERING
    assert push.consume_from_where is LAST
    assert (push.consume_threads_min, push.consume_threads_max) == (20, 20)
    assert (push.pull_batch_size, push.pull_batch_bytes, push.consume_batch_size) == (32, 262144, 1)
    assert (push.consume_timeout_min, push.suspend_current_queue_ms) == (15, 1000)
    assert push.strategy.name == "AVG"
    lite = LitePullSettings()
    assert (lite.pull_batch_size, lite.pull_threshold_for_all, lite.poll_timeout_s) == (
        10,
        10_000,
        5.0,
    )
    assert (lite.auto_commit, lite.auto_commit_interval_s) == (True, 5.0)
    pull = PullConsumerSettings()
    assert (pull.suspend_max_s, pull.timeout_when_suspended_s, pull.pull_timeout_s) == (20, 30, 10)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"pull_batch_size": 0}, "pull_batch_size is 0; it must be from 1 to 1024"),
        ({"consume_batch_size": 1025}, "from 1 to 1024"),
        ({"consume_threads_min": 30}, "raise the latter"),
        ({"pull_threshold_for_topic": 0}, "from 1 to 6553500"),
        ({"suspend_current_queue_ms": 5}, "from 10 to 30000"),
        ({"consume_timeout_min": 0}, "over 0"),
    ],
)
def test_a_setting_out_of_bounds_names_the_bounds(changes: dict[str, int], text: str) -> None:
    with pytest.raises(ConsumerSettingsError, match=text):
        PushConsumerSettings(**changes)  # type: ignore[arg-type]


def test_a_pull_must_be_answered_before_its_time_is_over() -> None:
    with pytest.raises(ConsumerSettingsError, match="too late"):
        PullConsumerSettings(suspend_max_s=40)
    with pytest.raises(ConsumerSettingsError, match="too late"):
        LitePullSettings(suspend_max_s=40)
    with pytest.raises(ConsumerSettingsError, match="at least 1"):
        LitePullSettings(auto_commit_interval_s=0.5)


def test_rates_are_those_of_the_last_minute() -> None:
    clock = ManualClock()
    stats = ConsumeStats(clock)
    counts = stats.topic("orders")
    for step in range(12):
        counts.pulls += 1
        counts.pull_ms += 4
        counts.pulled += 100
        counts.batches += 2
        counts.consume_ms += 10
        counts.consumed += 90 if step >= 6 else 0
        counts.failed += 10
        clock.advance(10_000)
        stats.sample()
    rates = stats.rates("orders")
    assert (rates.pull_rt, rates.pull_tps, rates.consume_rt) == (4.0, 10.0, 5.0)
    assert (rates.consume_ok_tps, rates.consume_failed_tps) == (9.0, 1.0)
    assert rates.consume_failed_msgs == 120
    assert stats.rates("unknown").pull_tps == 0


def test_an_idle_consumer_shows_how_long_it_took_within_the_hour() -> None:
    clock = ManualClock()
    stats = ConsumeStats(clock)
    counts = stats.topic("orders")
    counts.batches, counts.consume_ms, counts.failed = 4, 100.0, 3
    for _ in range(30):
        clock.advance(10_000)
        stats.sample()
    assert stats.rates("orders").consume_rt == 25.0
    assert stats.rates("orders").consume_failed_msgs == 3
    for _ in range(400):
        clock.advance(10_000)
        stats.sample()
    assert stats.rates("orders").consume_rt == 0.0
    assert stats.rates("orders").consume_failed_msgs == 0
