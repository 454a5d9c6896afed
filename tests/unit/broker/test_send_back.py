"""A message that a consumer gives back comes again later, or becomes a dead letter."""

import random
from pathlib import Path

import pytest
from unit.broker.bench import Bench, captured_records, without_place

from downrange.broker.creation_wait import CreationWait
from downrange.broker.handlers.send_back import SendBackHandler
from downrange.model.names import SCHEDULE_TOPIC
from downrange.model.topics import Permission, SubscriptionGroupConfig, TopicConfig
from downrange.protocol.command import Command
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.headers.send import SendBackRequest
from downrange.protocol.message_id import encode_message_id
from downrange.protocol.properties import decode_properties
from downrange.protocol.record import Record
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.versions import version_number
from downrange.remoting.connection import Connection
from downrange.remoting.errors import Refused
from downrange.testing.virtual_time import run

GROUP = "group"


async def nothing_to_save() -> None:
    """Everything is on disk."""


class Tables:
    """Topics and groups as a test wants them."""

    def __init__(self) -> None:
        self.groups = {GROUP: SubscriptionGroupConfig(group_name=GROUP, retry_queue_nums=1)}
        self.topics: dict[str, TopicConfig] = {}
        self.perm = Permission.READ_WRITE.value

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        return self.groups.get(group)

    def get(self, topic: str) -> TopicConfig | None:
        return self.topics.get(topic)

    def is_durable(self, _name: str) -> bool:
        return True

    def takes(self, _topic: str, _queue_id: int) -> bool:
        return True

    def create_for_send_back(self, topic: str, queue_nums: int, sys_flag: int) -> TopicConfig:
        self.topics[topic] = TopicConfig(
            topic_name=topic,
            write_queue_nums=queue_nums,
            topic_sys_flag=sys_flag,
            perm=self.perm,
        )
        return self.topics[topic]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def tables() -> Tables:
    return Tables()


@pytest.fixture
def handler(bench: Bench, tables: Tables) -> SendBackHandler:
    return SendBackHandler(
        bench.store.lookup,
        tables,
        tables,
        CreationWait(tables, tables, nothing_to_save),
        bench.writer,
        bench.stats,
        random.Random(1),
        broker_address="127.0.0.1",
    )


@pytest.fixture
def connection() -> Connection:
    async def make() -> Connection:
        return Connection({})

    return run(make())


def request(
    offset: int,
    delay_level: int = 0,
    *,
    group: str = GROUP,
    times_max: int | None = None,
    unit_mode: bool = False,
    release: str = "5.5.0",
) -> Command:
    header = SendBackRequest(
        offset=offset,
        group=group,
        delay_level=delay_level,
        origin_topic="orders",
        max_reconsume_times=times_max,
        unit_mode=unit_mode,
    )
    return Command(
        code=RequestCode.CONSUMER_SEND_MSG_BACK,
        ext_fields=encode_header(header),
        version=version_number(release),
    )


def put(bench: Bench, times: int = 0, text: bytes = b"") -> int:
    appended = bench.writer.put_undelayed("orders", 1, b"body", text, 0, 7, 1234, bytes(8), times)
    bench.settle()
    return appended.physical_offset


def waiting(bench: Bench, level: int) -> Record:
    bench.settle()
    return bench.records(SCHEDULE_TOPIC, level - 1)[-1]


def test_the_copy_is_the_record_that_rocketmq_writes(
    bench: Bench, handler: SendBackHandler, tables: Tables, connection: Connection
) -> None:
    records = {record.physical_offset: record for record in captured_records()}
    compared = 0
    for theirs in records.values():
        text = decode_properties(theirs.properties)
        if theirs.topic != SCHEDULE_TOPIC.encode() or "ORIGIN_MESSAGE_ID" not in text:
            continue
        origin_id = text["ORIGIN_MESSAGE_ID"]
        if text["WAIT"] != "false" or len(origin_id) != 32:
            continue  # sent by the client itself
        origin = records[int(origin_id[16:], 16)]
        group = text["REAL_TOPIC"].removeprefix("%RETRY%")
        tables.groups[group] = SubscriptionGroupConfig(group_name=group, retry_queue_nums=1)
        appended = bench.store.append(
            origin.topic.decode(),
            origin.queue_id,
            origin.body,
            origin.properties,
            origin.sys_flag,
            origin.flag,
            origin.born_timestamp,
            origin.born_host,
            origin.reconsume_times,
        )
        command = request(appended.physical_offset, group=group)
        answer = handler.send_back(command, connection)
        assert isinstance(answer, Command)
        assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, None)
        ours = waiting(bench, 3)
        our_id = encode_message_id(bench.store.settings.store_host, appended.physical_offset)
        assert decode_properties(ours.properties) == text | {"ORIGIN_MESSAGE_ID": our_id}
        assert without_place(ours)._replace(properties=b"") == without_place(theirs)._replace(
            properties=b""
        )
        compared += 1
    assert compared >= 2


@pytest.mark.parametrize(
    ("asked_level", "times", "level"), [(0, 0, 3), (0, 2, 5), (5, 2, 5), (0, 30, 18), (99, 0, 18)]
)
def test_the_level_is_the_one_asked_for_or_grows_with_each_time(
    bench: Bench,
    handler: SendBackHandler,
    connection: Connection,
    asked_level: int,
    times: int,
    level: int,
) -> None:
    offset = put(bench, times)
    handler.send_back(request(offset, asked_level, times_max=99), connection)
    record = waiting(bench, level)
    text = decode_properties(record.properties)
    assert text["DELAY"] == str(level)
    assert text["REAL_TOPIC"] == "%RETRY%group"
    assert text["RETRY_TOPIC"] == "orders"
    assert record.reconsume_times == times + 1
    assert bench.stats.sent_back == {(GROUP, "orders"): 1}


def test_what_is_known_of_the_first_time_is_kept(
    bench: Bench, handler: SendBackHandler, connection: Connection
) -> None:
    text = b"RETRY_TOPIC\x01first\x02ORIGIN_MESSAGE_ID\x01ABC\x02WAIT\x01true\x02"
    handler.send_back(request(put(bench, 1, text)), connection)
    kept = decode_properties(waiting(bench, 4).properties)
    assert (kept["RETRY_TOPIC"], kept["ORIGIN_MESSAGE_ID"]) == ("first", "ABC")
    assert kept["WAIT"] == "false"
    assert bench.stats.sent_back == {(GROUP, "first"): 1}


@pytest.mark.parametrize(
    ("times", "command"),
    [
        (16, {}),
        (0, {"delay_level": -1}),
        (3, {"times_max": 3}),
        (16, {"times_max": 99, "release": "3.4.6"}),  # too old to be asked
    ],
)
def test_too_often_or_unwanted_is_a_dead_letter(
    bench: Bench,
    handler: SendBackHandler,
    tables: Tables,
    connection: Connection,
    times: int,
    command: dict[str, int],
) -> None:
    handler.send_back(request(put(bench, times), **command), connection)  # type: ignore[arg-type]
    bench.settle()
    (record,) = bench.records("%DLQ%group")
    assert record.reconsume_times == times + 1
    assert decode_properties(record.properties)["DELAY"] == "0"
    assert tables.topics["%DLQ%group"].write_queue_nums == 1


def test_one_more_time_is_not_too_often(
    bench: Bench, handler: SendBackHandler, connection: Connection
) -> None:
    handler.send_back(request(put(bench, 15)), connection)
    assert waiting(bench, 18).reconsume_times == 16


def test_the_retry_topic_has_the_queues_and_the_flag_of_its_group(
    bench: Bench, handler: SendBackHandler, tables: Tables, connection: Connection
) -> None:
    tables.groups[GROUP] = SubscriptionGroupConfig(group_name=GROUP, retry_queue_nums=3)
    handler.send_back(request(put(bench), unit_mode=True), connection)
    topic = tables.topics["%RETRY%group"]
    assert (topic.write_queue_nums, topic.topic_sys_flag) == (3, 2)


def test_a_group_without_retry_queues_gets_nothing_again(
    bench: Bench, handler: SendBackHandler, tables: Tables, connection: Connection
) -> None:
    tables.groups[GROUP] = SubscriptionGroupConfig(group_name=GROUP, retry_queue_nums=0)
    answer = handler.send_back(request(put(bench)), connection)
    assert isinstance(answer, Command)
    assert answer.code == ResponseCode.SUCCESS
    assert tables.topics == {}


def test_refusals_have_the_codes_of_rocketmq(
    bench: Bench, handler: SendBackHandler, tables: Tables, connection: Connection
) -> None:
    def refusal(command: Command) -> tuple[int, str]:
        with pytest.raises(Refused) as caught:
            handler.send_back(command, connection)
        return caught.value.code, caught.value.remark

    offset = put(bench)
    code, remark = refusal(request(offset, group="unknown"))
    assert code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert remark.startswith("subscription group not exist, unknown")
    assert refusal(request(offset + 1)) == (
        ResponseCode.SYSTEM_ERROR,
        f"look message by offset failed, {offset + 1}",
    )
    bench.fill_disk(is_full=True)
    assert refusal(request(offset))[0] == ResponseCode.SYSTEM_ERROR
    tables.perm = Permission.READ.value
    assert refusal(request(offset)) == (
        ResponseCode.NO_PERMISSION,
        "the topic[%RETRY%group] sending message is forbidden",
    )
    handler.is_writable = False
    assert refusal(request(offset)) == (
        ResponseCode.NO_PERMISSION,
        "the broker[127.0.0.1] sending message is forbidden",
    )
