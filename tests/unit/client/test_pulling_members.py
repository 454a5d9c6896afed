"""Consumers that pull by themselves: operators' questions, hooks and trace."""

from dataclasses import replace
from pathlib import Path

from unit.client.consuming import FIRST, Site
from unit.client.producing import stored

from downrange.broker.settings import BrokerSettings
from downrange.client.consumer_settings import LitePullSettings
from downrange.client.hooks import ConsumeContext
from downrange.client.lite_pull_consumer import LitePullConsumer
from downrange.client.pull_consumer import PullConsumer
from downrange.client.session_table import SessionTable
from downrange.client.settings import ClientSettings
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.consumer import RunningInfo
from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.bodies.queues import ConsumerStatus
from downrange.protocol.command import Command
from downrange.protocol.request_codes import RequestCode
from downrange.runtime.blocking import InLine
from downrange.testing.virtual_time import run

ORDERS = MessageQueue("orders", "b1", 0)


def _client(site: Site, **changes: object) -> ClientSettings:
    return replace(site.client_settings(), client_ip="10.0.0.1", instance_name="1", **changes)  # type: ignore[arg-type]


def _puller(site: Site, **changes: object) -> PullConsumer:
    table = SessionTable(nonce=1, around=site.surroundings())
    return PullConsumer("g", client=_client(site, **changes), sessions=table, blocking=InLine())


def _lite(site: Site, **changes: object) -> LitePullConsumer:
    table = SessionTable(nonce=1, around=site.surroundings())
    consumer = LitePullConsumer(
        "g",
        client=_client(site, **changes),
        settings=LitePullSettings(consume_from_where=FIRST),
        sessions=table,
        blocking=InLine(),
    )
    consumer.subscribe("orders")
    return consumer


async def _ask(site: Site, code: int, **fields: str) -> Command:
    return await site.client.call(site.broker_address("b1"), code, fields, timeout_s=15)


async def _running_info(site: Site) -> RunningInfo:
    answer = await _ask(
        site,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        consumerGroup="g",
        clientId="10.0.0.1@1",
        jstackEnable="true",
    )
    assert answer.code == 0, answer.remark
    return decode_body(RunningInfo, answer.body)


def test_operators_can_look_into_a_pull_consumer(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 3)
            consumer = _puller(site)
            consumer.user_info["release"] = "7"
            async with consumer:
                found = await consumer.pull(ORDERS, 0)
                consumer.update_consumed_offset(ORDERS, found.next_offset)
                await consumer.persist()
                info = await _running_info(site)
                assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
                assert info.properties["PROP_NAMESERVER_ADDR"] == "127.0.0.1:9876;"
                assert info.properties["PROP_CLIENT_VERSION"] == "V5_5_0"
                assert info.properties["brokerSuspendMaxTimeMillis"] == "20000"
                assert int(info.properties["PROP_CONSUMER_START_TIMESTAMP"]) > 0
                assert [one.topic for one in info.subscription_set] == ["orders"]
                assert info.user_consumer_info == {"release": "7"}
                assert "thread MainThread" in (info.jstack or "")
                answer = await _ask(
                    site,
                    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                    topic="orders",
                    group="g",
                )
                (offsets,) = decode_body(ConsumerStatus, answer.body).consumer_table.values()
                assert offsets == {ORDERS: 3}

    run(main())


def test_operators_can_look_into_a_lite_pull_consumer(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 25)
            async with _lite(site) as consumer:
                assert len(await consumer.poll()) == 10
                await consumer.commit()
                info = await _running_info(site)
                assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
                assert info.properties["autoCommitIntervalMillis"] == "5000"
                assert info.properties["topicMetadataCheckIntervalMillis"] == "30000"
                assert info.mq_table[ORDERS].commit_offset == 10
                assert info.mq_table[ORDERS].cached_msg_count == 15

    run(main())


def test_nobody_can_have_a_message_consumed_where_there_is_no_listener(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send("orders", b"x")
            async with _puller(site) as consumer:
                (message,) = (await consumer.pull(ORDERS, 0)).messages
                answer = await _ask(
                    site,
                    RequestCode.CONSUME_MESSAGE_DIRECTLY,
                    consumerGroup="g",
                    clientId="10.0.0.1@1",
                    msgId=message.offset_message_id,
                    topic="orders",
                )
                assert answer.remark == "The Consumer Group <g> not exist in this consumer"

    run(main())


def test_a_reset_of_offsets_leaves_who_pulls_by_himself_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 5)
            async with _lite(site) as consumer:
                assert len(await consumer.poll()) == 5
                await consumer.commit()
                consumer.reset_offsets("orders", {ORDERS: 1})
                assert await consumer.committed(ORDERS) == 5

    run(main())


class _Hook:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bool, str, list[bytes]]] = []

    def before_consume(self, context: ConsumeContext) -> None:
        self._note("before", context)

    def after_consume(self, context: ConsumeContext) -> None:
        self._note("after", context)
        raise RuntimeError("changes nothing")

    def _note(self, moment: str, context: ConsumeContext) -> None:
        bodies = [message.body for message in context.messages]
        self.seen.append((moment, context.group, context.is_success, context.status, bodies))


def test_hooks_see_what_a_program_fetches(tmp_path: Path) -> None:
    pulled, polled = _Hook(), _Hook()

    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 2)
            puller = _puller(site)
            puller.consume_hooks.append(pulled)
            async with puller:
                await puller.pull(ORDERS, 0)
                await puller.pull(ORDERS, 2)  # finds nothing
            lite = _lite(site)
            lite.consume_hooks.append(polled)
            async with lite:
                await lite.poll()

    run(main())
    expected = [
        ("before", "g", False, "", [b"0", b"1"]),
        ("after", "g", True, "CONSUME_SUCCESS", [b"0", b"1"]),
    ]
    assert pulled.seen == polled.seen == expected


def test_what_a_program_fetches_is_traced(tmp_path: Path) -> None:
    async def main() -> None:
        traced = BrokerSettings(trace_topic_enabled=True)
        async with Site(tmp_path, broker_settings=traced) as site:
            await site.create("orders")
            await site.send("orders", b"x")
            async with _puller(site, trace=True) as consumer:
                (message,) = (await consumer.pull(ORDERS, 0)).messages
            async with _lite(site, trace=True) as lite:
                assert len(await lite.poll()) == 1
            bodies = [one.body for one in await stored(site, "RMQ_SYS_TRACE_TOPIC")]
            lines = [line.split("\x01") for text in bodies for line in text.decode().split("\x02")]
            kinds = [line[0] for line in lines if len(line) > 1]
            assert sorted(kinds) == ["SubAfter", "SubAfter", "SubBefore", "SubBefore"]
            before = next(line for line in lines if line[0] == "SubBefore")
            assert (before[3], before[5]) == ("g", message.message_id)

    run(main())


def test_every_message_knows_the_bounds_of_its_queue(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 3)
            async with _puller(site) as consumer:
                messages = (await consumer.pull(ORDERS, 1)).messages
                for message in messages:
                    assert message.properties["MIN_OFFSET"] == "0"
                    assert message.properties["MAX_OFFSET"] == "3"
                    assert message.properties["UNIQ_KEY"] == message.message_id
                assert len(messages) == 2

    run(main())
