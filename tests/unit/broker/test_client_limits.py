"""What one client, or all of them together, can make a broker remember."""

from collections.abc import Callable

import pytest

from downrange.broker.client_limits import ClientLimits
from downrange.broker.consumer_table import ConsumerTable
from downrange.broker.producer_table import ProducerTable
from downrange.protocol.bodies.heartbeat import ConsumerGroup, Subscription
from downrange.remoting.connection import Connection
from downrange.remoting.errors import Refused
from downrange.testing.clock import ManualClock

Connect = Callable[[], Connection]


def group(name: str, *expressions: str) -> ConsumerGroup:
    return ConsumerGroup(
        group_name=name,
        message_model="CLUSTERING",
        subscription_data_set=tuple(
            Subscription(topic=f"t{number}", sub_string=text)
            for number, text in enumerate(expressions)
        ),
    )


def test_a_connection_has_so_many_groups_and_no_more(clock: ManualClock, connect: Connect) -> None:
    limits = ClientLimits(groups_per_connection_max=3)
    consumers = ConsumerTable(clock, limits=limits)
    producers = ProducerTable(clock, limits=limits)
    first, second = connect(), connect()
    for number in range(3):
        consumers.register(first, "a", group(f"g{number}"))
        producers.register(first, "a", f"p{number}")
    with pytest.raises(Refused, match=r"client 'a' has registered 3 groups .* the limit is 3"):
        consumers.register(first, "a", group("g3"))
    with pytest.raises(Refused, match="the limit is 3"):
        producers.register(first, "a", "p3")
    assert consumers.group("g3") is None
    assert producers.groups() == ["p0", "p1", "p2"]
    # Those that are known go on, others have their own count, and who leaves makes room.
    consumers.register(first, "a", group("g0"))
    consumers.register(first, "another id", group("g0"))
    producers.register(first, "a", "p0")
    consumers.register(second, "b", group("g3"))
    producers.register(second, "b", "p3")
    consumers.unregister(first, "g1")
    producers.unregister(first, "p1")
    consumers.register(first, "a", group("g4"))
    producers.register(first, "a", "p4")


def test_a_broker_has_so_many_members_and_no_more(clock: ManualClock, connect: Connect) -> None:
    limits = ClientLimits(members_max=2)
    consumers = ConsumerTable(clock, limits=limits)
    producers = ProducerTable(clock, limits=limits)
    lost = connect()
    for _ in range(3):  # what is gone is not counted
        consumers.register(lost, "a", group("g"))
        producers.register(lost, "a", "p")
        consumers.on_close(lost)
        producers.on_close(lost)
    for name in ("b", "c"):
        consumers.register(connect(), name, group("g"))
        producers.register(connect(), name, "p")
    with pytest.raises(Refused, match="2 clients in groups, the limit is 2"):
        consumers.register(connect(), "d", group("g"))
    with pytest.raises(Refused, match="2 clients in groups, the limit is 2"):
        producers.register(connect(), "d", "p")


def test_names_have_a_length(clock: ManualClock, connect: Connect) -> None:
    consumers, producers = ConsumerTable(clock), ProducerTable(clock)
    with pytest.raises(Refused, match=r"client id 'xxx.* has 1025 characters, the limit is 1024"):
        consumers.register(connect(), "x" * 1025, group("g"))
    with pytest.raises(Refused, match=r"group name 'yyy.* has 256 characters, the limit is 255"):
        producers.register(connect(), "a", "y" * 256)
    assert consumers.groups() == []
    assert producers.groups() == []


def test_a_group_subscribes_so_many_topics_and_no_more(
    clock: ManualClock, connect: Connect
) -> None:
    consumers = ConsumerTable(clock, limits=ClientLimits(subscriptions_per_group_max=2))
    with pytest.raises(Refused, match="group 'g' subscribes 3 topics, the limit is 2"):
        consumers.register(connect(), "a", group("g", "*", "*", "*"))
    assert consumers.group("g") is None


def test_expressions_of_a_connection_are_counted_together_and_given_back(
    clock: ManualClock, connect: Connect
) -> None:
    consumers = ConsumerTable(clock, limits=ClientLimits(expression_chars_max=100))
    peer, other = connect(), connect()
    consumers.register(peer, "a", group("g1", "x" * 40))
    consumers.register(peer, "a", group("g2", "x" * 40))
    with pytest.raises(Refused, match="have 126 characters, the limit is 100"):
        consumers.register(peer, "a", group("g3", "x" * 40))
    consumers.register(peer, "a", group("g2", "x" * 50))  # it replaces its own
    consumers.register(peer, "b", group("g2", "x" * 50))  # also under another id
    consumers.register(other, "b", group("g3", "x" * 40))
    consumers.unregister(peer, "g1")
    consumers.register(peer, "a", group("g3", "x" * 40))


def test_subscriptions_learned_from_pulls_are_forgotten_oldest_first(clock: ManualClock) -> None:
    consumers = ConsumerTable(clock, limits=ClientLimits(learned_max=2))
    for topic in ("a", "b", "a", "c"):
        consumers.learn("g", Subscription(topic=topic, sub_string="*"))
    known = [topic for topic in "abc" if consumers.subscription("g", topic) is not None]
    assert known == ["b", "c"]
