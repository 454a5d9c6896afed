"""Clients of consumer groups: joining, leaving, being lost, and subscribing differently."""

from collections.abc import Callable

import pytest

from downrange.broker.consumer_table import ConsumerTable
from downrange.broker.subscription_check import NOT_SUBSCRIBED
from downrange.protocol.bodies.heartbeat import ConsumerGroup, Subscription
from downrange.protocol.languages import LanguageCode
from downrange.remoting.connection import Connection
from downrange.testing.clock import ManualClock

Connect = Callable[[], Connection]


class Notices:
    """Who was told about which group."""

    def __init__(self, table: ConsumerTable) -> None:
        self.told: list[tuple[str, tuple[Connection, ...]]] = []
        table.on_ids_changed.append(lambda group, whom: self.told.append((group, whom)))

    def take(self) -> list[tuple[str, tuple[Connection, ...]]]:
        told, self.told = self.told, []
        return told


@pytest.fixture
def table(clock: ManualClock) -> ConsumerTable:
    return ConsumerTable(clock)


@pytest.fixture
def notices(table: ConsumerTable) -> Notices:
    return Notices(table)


def tags(topic: str, *names: str, version: int = 1) -> Subscription:
    text = " || ".join(names) or "*"
    return Subscription(topic=topic, sub_string=text, tags_set=names, sub_version=version)


def group(*subscriptions: Subscription, model: str = "CLUSTERING") -> ConsumerGroup:
    return ConsumerGroup(
        group_name="g",
        consume_type="CONSUME_PASSIVELY",
        message_model=model,
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscription_data_set=subscriptions,
    )


def test_all_are_told_when_somebody_joins_and_nobody_by_the_next_heartbeats(
    table: ConsumerTable, notices: Notices, connect: Connect
) -> None:
    a, b = connect(), connect()
    assert table.register(a, "a", group(tags("t")))
    assert notices.take() == [("g", (a,))]
    assert table.register(b, "b", group(tags("t")))
    assert notices.take() == [("g", (a, b))]
    assert not table.register(a, "a", group(tags("t")))
    assert not table.register(b, "b", group(tags("t")))
    assert notices.take() == []
    assert table.client_ids("g") == ["a", "b"]


def test_the_rest_is_told_when_somebody_leaves(
    table: ConsumerTable, notices: Notices, connect: Connect
) -> None:
    a, b = connect(), connect()
    for connection, name in ((a, "a"), (b, "b")):
        table.register(connection, name, group(tags("t")))
    notices.take()
    assert table.unregister(b, "g")
    assert notices.take() == [("g", (a,))]
    assert not table.unregister(b, "g")
    assert not table.unregister(b, "unknown")
    assert table.unregister(a, "g")
    assert notices.take() == []
    assert (table.group("g"), table.client_ids("g"), table.has_group("g")) == (None, [], False)


def test_a_lost_connection_takes_its_clients_out_of_all_groups(
    table: ConsumerTable, notices: Notices, connect: Connect
) -> None:
    a, b = connect(), connect()
    other = ConsumerGroup(group_name="h", message_model="CLUSTERING")
    table.register(a, "a", group(tags("t")))
    for consumer in (group(tags("t")), other):
        table.register(b, "b", consumer)
    notices.take()
    table.on_close(b)
    assert notices.take() == [("g", (a,))]
    assert [state.name for state in table.groups()] == ["g"]
    table.on_close(b)
    table.on_close(connect())
    assert notices.take() == []


def test_two_minutes_of_silence_end_a_client_and_the_others_are_told(
    table: ConsumerTable, notices: Notices, connect: Connect, clock: ManualClock
) -> None:
    a, b = connect(), connect()
    table.register(a, "a", group(tags("t")))
    table.register(b, "b", group(tags("t")))
    notices.take()
    clock.advance(100_000)
    table.register(a, "a", group(tags("t")))
    clock.advance(20_000)
    assert table.expire() == []
    clock.advance(1)
    assert table.expire() == [b]
    assert notices.take() == [("g", (a,))]
    assert table.client_ids("g") == ["a"]


def test_a_jump_of_the_wall_clock_ends_nobody(
    table: ConsumerTable, connect: Connect, clock: ManualClock
) -> None:
    table.register(connect(), "a", group(tags("t")))
    clock.jump_to(clock.wall_ms() + 3_600_000)
    assert table.expire() == []


def test_a_client_that_connects_again_is_still_one_client(
    table: ConsumerTable, notices: Notices, connect: Connect
) -> None:
    old, new = connect(), connect()
    table.register(old, "a", group(tags("t")))
    notices.take()
    assert not table.register(new, "a", group(tags("t")))
    assert table.client_ids("g") == ["a"]
    found = table.find_client("g", "a")
    assert found is not None
    assert found.connection is new
    table.on_close(old)
    assert notices.take() == []
    assert table.client_ids("g") == ["a"]


def test_groups_that_broadcast_or_do_not_want_it_are_not_told(
    table: ConsumerTable, notices: Notices, connect: Connect
) -> None:
    for name in ("a", "b"):
        table.register(connect(), name, group(tags("t"), model="BROADCASTING"))
    assert table.is_broadcasting("g")
    quiet = ConsumerGroup(group_name="quiet", message_model="CLUSTERING")
    for name in ("a", "b"):
        table.register(connect(), name, quiet, notifies=False)
    assert notices.take() == []
    assert not table.is_broadcasting("quiet")
    assert not table.is_broadcasting("unknown")


def test_another_topic_is_told_another_expression_is_not(
    table: ConsumerTable, notices: Notices, connect: Connect
) -> None:
    a = connect()
    table.register(a, "a", group(tags("t")))
    notices.take()
    assert table.register(a, "a", group(tags("t"), tags("u")))
    assert not table.register(a, "a", group(tags("t", "x", version=2), tags("u")))
    assert table.register(a, "a", group(tags("t", "x", version=2)))
    assert notices.take() == [("g", (a,))] * 2
    assert table.subscription("g", "u") is None
    assert table.subscription("g", "t") == tags("t", "x", version=2)


def test_clients_that_differ_keep_their_topics_and_are_named_once(
    table: ConsumerTable, notices: Notices, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = connect(), connect()
    table.register(a, "a", group(tags("t")))
    table.register(b, "b", group(tags("u")))
    notices.take()
    for _ in range(3):
        # In RocketMQ each of these takes the other's topic away and wakes everybody.
        assert not table.register(a, "a", group(tags("t")))
        assert not table.register(b, "b", group(tags("u")))
    assert notices.take() == []
    assert table.subscription("g", "t") is not None
    assert table.subscription("g", "u") is not None
    t, u = table.differences("g")
    assert (t.topic, t.clients_by_expression) == ("t", (("*", ("a",)), (NOT_SUBSCRIBED, ("b",))))
    assert u.topic == "u"
    assert caplog.text.count("topic t (a: *; b: nothing)") == 1
    table.on_close(b)
    assert table.differences("g") == ()
    assert table.subscription("g", "u") is None
    assert table.differences("unknown") == ()


def test_a_pull_is_filtered_by_the_expression_of_the_client_that_pulls(
    table: ConsumerTable, connect: Connect
) -> None:
    a, b = connect(), connect()
    table.register(a, "a", group(tags("t", "x", version=1)))
    table.register(b, "b", group(tags("t", "y", version=2)))
    assert table.subscription("g", "t", a) == tags("t", "x", version=1)
    assert table.subscription("g", "t", b) == tags("t", "y", version=2)
    newest = tags("t", "y", version=2)
    assert table.subscription("g", "t") == newest
    assert table.subscription("g", "t", connect()) == newest
    (difference,) = table.differences("g")
    assert difference.clients_by_expression == (("x", ("a",)), ("y", ("b",)))


def test_the_same_tags_in_another_order_are_no_difference(
    table: ConsumerTable, connect: Connect
) -> None:
    table.register(connect(), "a", group(tags("t", "x", "y")))
    table.register(connect(), "b", group(tags("t", "y", "x", version=2)))
    assert table.differences("g") == ()
    sql = Subscription(topic="t", sub_string="x || y", expression_type="SQL92")
    table.register(connect(), "c", group(sql))
    assert len(table.differences("g")) == 1


def test_a_large_group_that_differs_is_logged_in_one_short_line(
    table: ConsumerTable, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(20):
        table.register(connect(), f"{number:02}", group(tags("t", "x" if number % 2 else "y")))
    assert len(caplog.records) == 1
    (difference,) = table.differences("g")
    assert str(difference) == (
        "topic t (01, 03, 05, 07, 09 and 5 more: x; 00, 02, 04, 06, 08 and 5 more: y)"
    )


def test_a_light_heartbeat_keeps_the_client_and_its_subscriptions(
    table: ConsumerTable, connect: Connect, clock: ManualClock
) -> None:
    a = connect()
    table.register(a, "a", group(tags("t")), fingerprint=7)
    clock.advance(100_000)
    assert table.knows_subscriptions(a, "g", 7)
    assert not table.knows_subscriptions(a, "g", 8)
    table.register(a, "a", group(), fingerprint=7, without_subscriptions=True)
    clock.advance(100_000)
    assert table.expire() == []
    assert table.subscription("g", "t") is not None


def test_a_light_heartbeat_of_a_stranger_joins_without_subscriptions(
    table: ConsumerTable, connect: Connect
) -> None:
    a = connect()
    assert not table.knows_subscriptions(a, "g", 7)
    assert table.register(a, "a", group(), fingerprint=7, without_subscriptions=True)
    assert not table.knows_subscriptions(a, "g", 7)
    table.register(connect(), "b", group(tags("t")))
    assert table.differences("g") == ()


def test_what_a_pull_brings_along_is_known_for_ten_minutes(
    table: ConsumerTable, connect: Connect, clock: ManualClock
) -> None:
    table.learn("g", tags("t", "x"))
    assert table.subscription("g", "t") == tags("t", "x")
    table.register(connect(), "a", group(tags("t")))
    assert table.subscription("g", "t") == tags("t")
    clock.advance(600_001)
    table.expire()
    assert table.subscription("g", "t") is None


def test_facts_about_a_client_and_a_group_can_be_asked(
    table: ConsumerTable, connect: Connect, clock: ManualClock
) -> None:
    a = connect()
    consumer = group(tags("t"), tags("%RETRY%g"))
    table.register(a, "a", consumer, language=LanguageCode.GO, version=317)
    client = table.find_client("g", "a")
    assert client is not None
    assert (client.language, client.version) == (LanguageCode.GO, 317)
    assert client.last_heartbeat_ms == clock.wall_ms()
    assert table.find_client("g", "b") is None
    assert table.find_client("unknown", "a") is None
    state = table.group("g")
    assert state is not None
    assert (state.consume_type, state.message_model, state.consume_from_where) == (
        "CONSUME_PASSIVELY",
        "CLUSTERING",
        "CONSUME_FROM_LAST_OFFSET",
    )
    assert table.groups_of_topic("t") == {"g"}
    assert table.groups_of_topic("u") == set()
    a.is_closed = True
    assert table.find_client("g", "a") is None
