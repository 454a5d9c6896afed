"""Requests whose answer promises that a change is on disk, and how to see that it is."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from unit.broker.one_broker import ADDRESS, OneBroker, records

from downrange.broker.tables import BrokerTables
from downrange.model.topics import SubscriptionGroupConfig, TopicConfig
from downrange.protocol.bodies.heartbeat import ConsumerGroup, Heartbeat
from downrange.protocol.bodies.json_body import encode_body
from downrange.protocol.command import Command
from downrange.protocol.json_text import write_json
from downrange.protocol.request_codes import RequestCode as Code
from downrange.protocol.response_codes import ResponseCode

TOPIC = "orders"
GROUP = "billing"


@dataclass(frozen=True, slots=True)
class Promise:
    """A request on a broker that `prepare` has prepared; `is_kept` asks a broker started later."""

    ask: Callable[[OneBroker], Awaitable[Command]]
    is_kept: Callable[[OneBroker], Awaitable[bool]]


async def prepare(broker: OneBroker) -> None:
    """One topic with two messages in its first queue, of which a group has consumed one."""
    for number in range(2):
        assert (await broker.send(TOPIC, b"%d" % number)).code == ResponseCode.SUCCESS
    assert (await create_group(broker, GROUP)).code == ResponseCode.SUCCESS
    assert (await commit(broker, 1)).code == ResponseCode.SUCCESS
    tables = tables_of(broker)
    tables.savers.request_changed()
    await tables.savers.settle()


async def ask(
    broker: OneBroker, code: int, body: bytes | None = None, /, **fields: object
) -> Command:
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in fields.items()
    }
    return await broker.client.call(ADDRESS, code, texts, body, timeout_s=60)


def tables_of(broker: OneBroker) -> BrokerTables:
    view = broker.broker.view()
    assert view is not None
    return view.tables


async def create_topic(broker: OneBroker, topic: str, queue_nums: int = 4) -> Command:
    return await ask(
        broker,
        Code.UPDATE_AND_CREATE_TOPIC,
        topic=topic,
        defaultTopic="TBW102",
        readQueueNums=queue_nums,
        writeQueueNums=queue_nums,
        perm=6,
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order=False,
    )


async def create_group(broker: OneBroker, group: str) -> Command:
    body = write_json(SubscriptionGroupConfig(group_name=group))
    return await ask(broker, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)


async def commit(broker: OneBroker, offset: int) -> Command:
    return await ask(
        broker,
        Code.UPDATE_CONSUMER_OFFSET,
        consumerGroup=GROUP,
        topic=TOPIC,
        queueId=0,
        commitOffset=offset,
    )


async def committed(broker: OneBroker, group: str = GROUP) -> int:
    """The group's offset; -1 if it has none."""
    answer = await ask(
        broker,
        Code.QUERY_CONSUMER_OFFSET,
        consumerGroup=group,
        topic=TOPIC,
        queueId=0,
        setZeroIfNotFound=False,
    )
    return int((answer.ext_fields or {}).get("offset", -1))


async def heartbeat(broker: OneBroker, *groups: str) -> Command:
    body = Heartbeat(
        client_id="client",
        consumer_data_set=tuple(
            ConsumerGroup(
                group_name=group,
                consume_type="CONSUME_PASSIVELY",
                message_model="CLUSTERING",
                consume_from_where="CONSUME_FROM_LAST_OFFSET",
            )
            for group in groups
        ),
    )
    return await ask(broker, Code.HEART_BEAT, encode_body(body))


async def has_topic(broker: OneBroker, topic: str) -> bool:
    return (await ask(broker, Code.GET_TOPIC_CONFIG, topic=topic)).code == ResponseCode.SUCCESS


async def bodies(broker: OneBroker, topic: str) -> list[bytes]:
    """What a consumer of the topic's first queue gets."""
    return [record.body for record in records(await broker.pull(topic))]


async def _send_new(broker: OneBroker) -> Command:
    return await broker.send("new", b"first")


async def _new_is_readable(broker: OneBroker) -> bool:
    return await bodies(broker, "new") == [b"first"]


async def _create(broker: OneBroker) -> Command:
    return await create_topic(broker, "new")


async def _create_list(broker: OneBroker) -> Command:
    body = b'{"topicConfigList":[%b]}' % write_json(TopicConfig(topic_name="new"))
    return await ask(broker, Code.UPDATE_AND_CREATE_TOPIC_LIST, body)


async def _has_new(broker: OneBroker) -> bool:
    return await has_topic(broker, "new")


async def _delete(broker: OneBroker) -> Command:
    return await ask(broker, Code.DELETE_TOPIC_IN_BROKER, topic=TOPIC)


async def _is_deleted(broker: OneBroker) -> bool:
    if await has_topic(broker, TOPIC) or await committed(broker) != -1:
        return False
    await create_topic(broker, TOPIC)
    return await bodies(broker, TOPIC) == []


async def _create_group(broker: OneBroker) -> Command:
    return await create_group(broker, "new")


async def _create_groups(broker: OneBroker) -> Command:
    body = b'{"groupConfigList":[%b]}' % write_json(SubscriptionGroupConfig(group_name="new"))
    return await ask(broker, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body)


async def _ask_for_group(broker: OneBroker) -> Command:
    return await ask(broker, Code.GET_SUBSCRIPTIONGROUP_CONFIG, group="new")


async def _has_group(broker: OneBroker) -> bool:
    return "new" in tables_of(broker).groups


async def _delete_group(broker: OneBroker) -> Command:
    return await ask(broker, Code.DELETE_SUBSCRIPTIONGROUP, groupName=GROUP, cleanOffset=True)


async def _is_group_deleted(broker: OneBroker) -> bool:
    return GROUP not in tables_of(broker).groups and await committed(broker) == -1


async def _forbid(broker: OneBroker) -> Command:
    return await ask(
        broker, Code.UPDATE_AND_GET_GROUP_FORBIDDEN, group=GROUP, topic=TOPIC, readable=False
    )


async def _is_forbidden(broker: OneBroker) -> bool:
    return bool(tables_of(broker).groups.is_forbidden(GROUP, TOPIC))


async def _reset(broker: OneBroker) -> Command:
    return await ask(
        broker,
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
        group=GROUP,
        topic=TOPIC,
        queueId=0,
        offset=0,
        timestamp=0,
        isForce=True,
    )


async def _is_reset(broker: OneBroker) -> bool:
    return await committed(broker) == 0


async def _clone(broker: OneBroker) -> Command:
    return await ask(
        broker, Code.CLONE_GROUP_OFFSET, srcGroup=GROUP, destGroup="new", topic=TOPIC, offline=True
    )


async def _is_cloned(broker: OneBroker) -> bool:
    return await committed(broker, "new") == 1


async def _set_mode(broker: OneBroker) -> Command:
    body = b'{"topic":"orders","consumerGroup":"billing","mode":"POP","popShareQueueNum":2}'
    return await ask(broker, Code.SET_MESSAGE_REQUEST_MODE, body)


async def _has_mode(broker: OneBroker) -> bool:
    return bool(tables_of(broker).modes.mode_of(TOPIC, GROUP).pop_share_queue_num == 2)


async def _beat(broker: OneBroker) -> Command:
    return await heartbeat(broker, "new")


async def _has_consumer_group(broker: OneBroker) -> bool:
    return await _has_group(broker) and await has_topic(broker, "%RETRY%new")


async def _send_back(broker: OneBroker) -> Command:
    return await ask(
        broker, Code.CONSUMER_SEND_MSG_BACK, offset=0, group="new", delayLevel=-1, unitMode=False
    )


async def _has_dead_letter(broker: OneBroker) -> bool:
    return await _has_consumer_group(broker) and await bodies(broker, "%DLQ%new") == [b"0"]


async def _update_config(broker: OneBroker) -> Command:
    return await ask(broker, Code.UPDATE_BROKER_CONFIG, b"autoCreateTopicEnable=false")


async def _is_in_file(broker: OneBroker) -> bool:
    view = broker.broker.view()
    assert view is not None
    text = (view.store.settings.config_path / "broker.properties").read_text()
    return "autoCreateTopicEnable=false" in text


PROMISES = {
    "a message creates its topic": Promise(_send_new, _new_is_readable),
    "create a topic": Promise(_create, _has_new),
    "create a list of topics": Promise(_create_list, _has_new),
    "delete a topic": Promise(_delete, _is_deleted),
    "create a group": Promise(_create_group, _has_group),
    "create a list of groups": Promise(_create_groups, _has_group),
    "ask for a group": Promise(_ask_for_group, _has_group),
    "delete a group": Promise(_delete_group, _is_group_deleted),
    "keep a group from a topic": Promise(_forbid, _is_forbidden),
    "reset offsets": Promise(_reset, _is_reset),
    "clone offsets": Promise(_clone, _is_cloned),
    "set a request mode": Promise(_set_mode, _has_mode),
    "a heartbeat creates a group": Promise(_beat, _has_consumer_group),
    "a message sent back creates a dead-letter topic": Promise(_send_back, _has_dead_letter),
    "change a setting": Promise(_update_config, _is_in_file),
}
