"""Heartbeats, leaving, lists of consumers, checks of filters: as a real 5.5.0 answers them."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest
from msgspec.structs import replace

from downrange.broker.consumer_table import ConsumerTable
from downrange.broker.group_table import GroupTable
from downrange.broker.handlers.client import ClientHandler
from downrange.broker.producer_table import ProducerTable
from downrange.broker.table_saver import Durable
from downrange.broker.topic_table import TopicTable
from downrange.model.topics import SubscriptionGroupConfig, TopicConfig
from downrange.protocol.bodies.heartbeat import (
    CheckClientConfig,
    ConsumerGroup,
    Heartbeat,
    ProducerGroup,
    Subscription,
    heartbeat_fingerprint,
)
from downrange.protocol.bodies.json_body import encode_body
from downrange.protocol.command import Command, request
from downrange.protocol.errors import ProtocolError
from downrange.protocol.languages import LanguageCode
from downrange.protocol.request_codes import RequestCode
from downrange.remoting.connection import Connection
from downrange.remoting.errors import Refused

Connect = Callable[[], Connection]
HEARTBEAT = Heartbeat(
    client_id="a",
    producer_data_set=(ProducerGroup(group_name="p"),),
    consumer_data_set=(
        ConsumerGroup(
            group_name="g",
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscription_data_set=(Subscription(topic="t", sub_string="*", sub_version=1),),
        ),
    ),
)


async def announced() -> None:
    """The name servers have heard of everything already."""


def saving(*tables: TopicTable | GroupTable) -> Durable:
    """What makes these tables durable at once."""

    async def durable() -> None:
        for table in tables:
            table.save()

    return durable


def refuse_all(subscription: Subscription) -> None:
    raise Refused(23, f"{subscription.sub_string} does not compile")


@pytest.fixture
def handler(
    topics: TopicTable, groups: GroupTable, consumers: ConsumerTable, producers: ProducerTable
) -> ClientHandler:
    return ClientHandler(
        topics, groups, consumers, producers, refuse_all, announced, saving(topics, groups)
    )


def beat(handler: ClientHandler, connection: Connection, heartbeat: Heartbeat) -> dict[str, str]:
    code = RequestCode.HEART_BEAT
    answer = handler.heartbeat(request(code, opaque=1, body=encode_body(heartbeat)), connection)
    if isinstance(answer, Coroutine):
        answer = asyncio.run(answer)
    assert isinstance(answer, Command)
    assert answer.code == 0
    assert answer.ext_fields is not None
    return answer.ext_fields


def light(heartbeat: Heartbeat) -> Heartbeat:
    groups = tuple(replace(one, subscription_data_set=()) for one in heartbeat.consumer_data_set)
    return replace(heartbeat, consumer_data_set=groups, without_sub=True)


def test_routes_are_the_codes_of_a_clients_life(handler: ClientHandler) -> None:
    assert sorted(handler.routes()) == [34, 35, 38, 46]


def test_a_heartbeat_registers_the_client_and_creates_group_and_retry_topic(
    handler: ClientHandler,
    topics: TopicTable,
    groups: GroupTable,
    consumers: ConsumerTable,
    producers: ProducerTable,
    connect: Connect,
) -> None:
    connection = connect()
    fields = beat(handler, connection, HEARTBEAT)
    assert fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    assert "g" in groups
    assert topics.get("%RETRY%g") == TopicConfig(
        topic_name="%RETRY%g", read_queue_nums=1, write_queue_nums=1
    )
    assert consumers.client_ids("g") == ["a"]
    client = consumers.find_client("g", "a")
    assert client is not None
    assert (client.connection, client.language) == (connection, LanguageCode.PYTHON)
    assert producers.pick("p") is connection


def test_the_retry_topic_follows_the_groups_configuration_and_ordered_topics(
    handler: ClientHandler, topics: TopicTable, groups: GroupTable, connect: Connect
) -> None:
    groups.update(SubscriptionGroupConfig(group_name="g", retry_queue_nums=3))
    topics.update(TopicConfig(topic_name="t", order=True))
    (consumer,) = HEARTBEAT.consumer_data_set
    unit = replace(HEARTBEAT, consumer_data_set=(replace(consumer, unit_mode=True),))
    beat(handler, connect(), unit)
    config = topics.get("%RETRY%g")
    assert config is not None
    assert (config.read_queue_nums, config.order, config.topic_sys_flag) == (3, True, 2)
    beat(handler, connect(), light(unit))
    assert topics.is_ordered("%RETRY%g")
    topics.update(TopicConfig(topic_name="t", order=False))
    beat(handler, connect(), HEARTBEAT)
    assert not topics.is_ordered("%RETRY%g")


def test_the_first_client_of_a_group_is_answered_when_the_retry_topic_has_a_route(
    topics: TopicTable,
    groups: GroupTable,
    consumers: ConsumerTable,
    producers: ProducerTable,
    connect: Connect,
) -> None:
    asked = 0

    async def wait() -> None:
        nonlocal asked
        asked += 1

    handler = ClientHandler(
        topics, groups, consumers, producers, refuse_all, wait, saving(topics, groups)
    )
    first = handler.heartbeat(
        request(RequestCode.HEART_BEAT, opaque=1, body=encode_body(HEARTBEAT)), connect()
    )
    assert isinstance(first, Coroutine)
    assert consumers.client_ids("g") == ["a"], "it is registered at once"
    answer = asyncio.run(first)
    assert isinstance(answer, Command)
    assert (answer.opaque, answer.code, asked) == (1, 0, 1)
    beat(handler, connect(), replace(HEARTBEAT, client_id="b"))
    assert asked == 1, "the second one finds the topic there"


def test_a_group_that_may_not_exist_is_passed_over(
    topics: TopicTable,
    closed_groups: GroupTable,
    consumers: ConsumerTable,
    producers: ProducerTable,
    connect: Connect,
) -> None:
    handler = ClientHandler(
        topics, closed_groups, consumers, producers, refuse_all, announced, saving(topics)
    )
    beat(handler, connect(), HEARTBEAT)
    assert "%RETRY%g" not in topics
    assert not consumers.has_group("g")
    assert producers.groups() == ["p"]


def test_a_group_whose_name_is_a_path_gets_no_topic(
    handler: ClientHandler, topics: TopicTable, connect: Connect
) -> None:
    evil = replace(HEARTBEAT, consumer_data_set=(ConsumerGroup(group_name="../../g"),))
    beat(handler, connect(), evil)
    assert not [topic for topic in topics.names() if ".." in topic]


def test_heartbeat_v2_is_light_after_a_full_one(
    handler: ClientHandler, consumers: ConsumerTable, connect: Connect
) -> None:
    connection = connect()
    full = replace(HEARTBEAT, heartbeat_fingerprint=heartbeat_fingerprint(HEARTBEAT))
    assert beat(handler, connection, full)["IS_SUB_CHANGE"] == "false"
    assert beat(handler, connection, light(full))["IS_SUB_CHANGE"] == "false"
    assert consumers.subscription("g", "t") is not None


def test_heartbeat_v2_is_asked_for_its_subscriptions_if_the_broker_lacks_them(
    handler: ClientHandler, consumers: ConsumerTable, connect: Connect
) -> None:
    connection = connect()
    full = replace(HEARTBEAT, heartbeat_fingerprint=7)
    # A real 5.5.0 that was restarted says false here and never learns the subscriptions.
    assert beat(handler, connection, light(full))["IS_SUB_CHANGE"] == "true"
    assert beat(handler, connection, full)["IS_SUB_CHANGE"] == "false"
    other = replace(full, heartbeat_fingerprint=8)
    assert beat(handler, connection, light(other))["IS_SUB_CHANGE"] == "true"
    assert consumers.subscription("g", "t") is not None


def test_groups_that_want_no_notices_get_none(
    handler: ClientHandler, groups: GroupTable, consumers: ConsumerTable, connect: Connect
) -> None:
    told: list[str] = []
    consumers.on_ids_changed.append(lambda group, _: told.append(group))
    quiet = SubscriptionGroupConfig(group_name="g", notify_consumer_ids_changed_enable=False)
    groups.update(quiet)
    beat(handler, connect(), HEARTBEAT)
    assert told == []
    groups.update(SubscriptionGroupConfig(group_name="g"))
    beat(handler, connect(), replace(HEARTBEAT, client_id="b"))
    assert told == ["g"]


def test_who_unregisters_is_gone_and_the_others_are_told(
    handler: ClientHandler, consumers: ConsumerTable, producers: ProducerTable, connect: Connect
) -> None:
    a, b = connect(), connect()
    beat(handler, a, HEARTBEAT)
    beat(handler, b, replace(HEARTBEAT, client_id="b"))
    told: list[tuple[Connection, ...]] = []
    consumers.on_ids_changed.append(lambda _, connections: told.append(connections))
    fields = {"clientID": "b", "consumerGroup": "g", "producerGroup": "p"}
    leave = request(RequestCode.UNREGISTER_CLIENT, opaque=1, ext_fields=fields)
    for _ in range(2):
        answer = handler.unregister(leave, b)
        assert isinstance(answer, Command)
        assert answer.code == 0
    assert told == [(a,)]
    assert [client.client_id for client in producers.clients("p")] == ["a"]


def test_the_list_of_consumers_names_each_client_once(
    handler: ClientHandler, connect: Connect
) -> None:
    for name in ("b", "a", "b"):
        beat(handler, connect(), replace(HEARTBEAT, client_id=name))
    code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    asked = request(code, opaque=1, ext_fields={"consumerGroup": "g"})
    answer = handler.list_consumers(asked, connect())
    assert isinstance(answer, Command)
    assert answer.body == b'{"consumerIdList":["a","b"]}'
    asked = request(code, opaque=1, ext_fields={"consumerGroup": "nope"})
    with pytest.raises(Refused, match="no consumer for this group, nope") as refusal:
        handler.list_consumers(asked, connect())
    assert refusal.value.code == 1


@pytest.mark.parametrize(
    ("subscription", "code"),
    [
        (None, 0),
        (Subscription(topic="t", sub_string="a||b"), 0),
        (Subscription(topic="t", sub_string="a >", expression_type="SQL92"), 23),
    ],
)
def test_a_filter_is_checked_unless_it_is_tags(
    handler: ClientHandler, connect: Connect, subscription: Subscription | None, code: int
) -> None:
    body = CheckClientConfig(client_id="a", group="g", subscription_data=subscription)
    asked = request(RequestCode.CHECK_CLIENT_CONFIG, opaque=1, body=encode_body(body))
    if code:
        with pytest.raises(Refused, match="a > does not compile") as refusal:
            handler.check_config(asked, connect())
        assert refusal.value.code == code
    else:
        answer = handler.check_config(asked, connect())
        assert isinstance(answer, Command)
        assert answer.code == 0


def test_a_heartbeat_without_a_body_is_the_peers_fault(
    handler: ClientHandler, connect: Connect
) -> None:
    with pytest.raises(ProtocolError):
        handler.heartbeat(request(RequestCode.HEART_BEAT, opaque=1), connect())
