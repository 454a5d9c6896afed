"""What operators can ask of a consumer through its broker; hooks and statistics."""

from dataclasses import replace
from pathlib import Path

from unit.broker.one_broker import pass_time
from unit.client.consuming import Seen, Site, until

from downrange.client.hooks import ConsumeContext
from downrange.client.listeners import Batch, ConcurrentContext, ConsumeStatus, OrderlyContext
from downrange.client.message import ReceivedMessage
from downrange.client.push_consumer import PushConsumer
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.consumer import ConsumeDirectlyResult, RunningInfo
from downrange.protocol.bodies.json_body import decode_body, encode_body
from downrange.protocol.bodies.queues import ConsumerStatus, ResetOffset
from downrange.protocol.command import Command
from downrange.protocol.request_codes import RequestCode
from downrange.testing.virtual_time import run

ORDERS = MessageQueue("orders", "b1", 0)


async def _ask(site: Site, code: int, fields: dict[str, str]) -> Command:
    """Ask the consumer as an operator does: the broker hands the question on."""
    return await site.client.call(site.broker_address("b1"), code, fields, timeout_s=15)


async def _started(site: Site, seen: Seen | None = None) -> PushConsumer:
    consumer = site.consumer("g", consume_batch_size=4)
    consumer.subscribe("orders")
    consumer.listen(seen or Seen())
    await consumer.start()
    await until(lambda: ORDERS in consumer.queues)
    return consumer


def test_running_info_has_the_real_figures(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            consumer = await _started(site)
            consumer.user_info["release"] = "7"
            for step in range(7):
                await site.send_many("orders", 20, first=20 * step)
                await pass_time(10)
            fields = {"consumerGroup": "g", "clientId": consumer.client_id, "jstackEnable": "true"}
            answer = await _ask(site, RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
            assert answer.code == 0, answer.remark
            info = decode_body(RunningInfo, answer.body)
            assert info.properties["PROP_CONSUMEORDERLY"] == "false"
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert info.properties["PROP_NAMESERVER_ADDR"] == "127.0.0.1:9876;"
            assert info.properties["PROP_CLIENT_VERSION"] == "V5_5_0"
            assert info.properties["consumeMessageBatchMaxSize"] == "4"
            assert int(info.properties["PROP_CONSUMER_START_TIMESTAMP"]) < site.clock.wall_ms()
            assert [one.topic for one in info.subscription_set] == ["%RETRY%g", "orders"]
            assert info.mq_table[ORDERS].commit_offset == 140
            assert info.mq_table[ORDERS].cached_msg_count == 0
            rates = info.status_table["orders"]
            assert 1.9 <= rates.consume_ok_tps <= 2.4
            assert 1.9 <= rates.pull_tps <= 2.4
            assert rates.consume_failed_tps == 0
            assert info.user_consumer_info == {"release": "7"}
            assert "thread MainThread" in (info.jstack or "")
            assert "pull orders/0" in (info.jstack or "")
            fields["clientId"] = "nobody"
            answer = await _ask(site, RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
            assert "not online" in (answer.remark or "")
            await consumer.shutdown()

    run(main())


def test_brokers_can_ask_how_far_a_consumer_has_come(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            seen = Seen()
            consumer = await _started(site, seen)
            await site.send_many("orders", 5)
            await until(lambda: len(seen.messages) == 5)
            fields = {"topic": "orders", "group": "g"}
            answer = await _ask(site, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, fields)
            status = decode_body(ConsumerStatus, answer.body)
            assert status.consumer_table == {consumer.client_id: {ORDERS: 5}}
            await consumer.shutdown()

    run(main())


def test_a_message_can_be_consumed_on_demand(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            seen: list[ReceivedMessage] = []
            answers: list[ConsumeStatus | None] = [None, None, ConsumeStatus.RECONSUME_LATER]

            async def listener(batch: Batch, _: ConcurrentContext) -> ConsumeStatus | None:
                seen.extend(batch)
                if not answers:
                    raise ValueError("no more")
                return answers.pop(0)

            consumer = site.consumer()
            consumer.subscribe("orders")
            consumer.listen(listener)
            await consumer.start()
            await site.send("orders", b"x")
            await until(lambda: len(seen) == 1)
            fields = {
                "consumerGroup": "g",
                "clientId": consumer.client_id,
                "msgId": seen[0].offset_message_id,
                "topic": "orders",
            }
            results = []
            for _ in range(3):
                answer = await _ask(site, RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)
                results.append(decode_body(ConsumeDirectlyResult, answer.body))
            assert [one.consume_result for one in results] == [
                "CR_SUCCESS",
                "CR_LATER",
                "CR_THROW_EXCEPTION",
            ]
            assert results[2].remark == "ValueError: no more"
            assert seen[1].body == b"x"
            assert seen[1].broker_name == "b1"
            await consumer.shutdown()

    run(main())


def test_a_message_can_be_consumed_on_demand_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            seen: list[ReceivedMessage] = []

            async def listener(batch: Batch, context: OrderlyContext) -> None:
                seen.extend(batch)
                context.auto_commit = False

            consumer = site.consumer()
            consumer.subscribe("orders")
            consumer.listen_in_order(listener)
            await consumer.start()
            await site.send("orders", b"x")
            await until(lambda: len(seen) == 1)
            result = await consumer.consume_directly(seen[0], "b1")
            assert result is not None
            assert (result.order, result.auto_commit, result.consume_result) == (
                True,
                False,
                "CR_SUCCESS",
            )
            await consumer.shutdown()

    run(main())


def test_offsets_can_be_set_anew_at_the_client(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            seen = Seen()
            consumer = await _started(site, seen)
            await site.send_many("orders", 10)
            await until(lambda: len(seen.messages) == 10)
            seen.messages.clear()
            body = encode_body(ResetOffset(offset_table={ORDERS: 6}))
            fields = {"topic": "orders", "group": "g", "timestamp": "0", "isForce": "true"}
            for connection in site.brokers["b1"]._server.connections:
                connection.send_one_way(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body)
            await until(lambda: len(seen.messages) == 4, 3)
            assert seen.bodies == [b"6", b"7", b"8", b"9"]
            await pass_time(20)
            assert len(seen.messages) == 4
            await consumer.shutdown()

    run(main())


def test_offsets_can_be_set_anew_at_the_broker(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            seen = Seen()
            consumer = await _started(site, seen)
            await site.send_many("orders", 10)
            await until(lambda: len(seen.messages) == 10)
            seen.messages.clear()
            fields = {
                "topic": "orders",
                "group": "g",
                "timestamp": "0",
                "isForce": "true",
                "offset": "7",
                "queueId": "0",
            }
            answer = await _ask(site, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
            assert answer.code == 0, answer.remark
            await until(lambda: seen.bodies == [b"7", b"8", b"9"], 20)
            await pass_time(20)
            assert len(seen.messages) == 3
            await consumer.shutdown()

    run(main())


class Watcher:
    """A hook that remembers, and one that fails."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bool, str, str]] = []

    def before_consume(self, context: ConsumeContext) -> None:
        context.shared["mark"] = len(context.messages)

    def after_consume(self, context: ConsumeContext) -> None:
        assert context.shared["mark"] == len(context.messages)
        kind = context.properties["ConsumeContextType"]
        self.seen.append((context.queue.topic, context.is_success, context.status, kind))
        raise RuntimeError("a hook that fails changes nothing")

    def filter_messages(
        self, group: str, queue: MessageQueue, messages: list[ReceivedMessage]
    ) -> list[ReceivedMessage]:
        assert (group, queue.broker_name) == ("g", "b1")
        return [message for message in messages if message.body != b"out"]


def test_hooks_look_on_and_filter(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            for body in (b"good", b"out", b"late", b"bad"):
                await site.send("orders", body)

            async def listener(batch: Batch, _: ConcurrentContext) -> ConsumeStatus | None:
                seen.take(batch)
                if batch[0].reconsume_times:
                    return None
                if batch[0].body == b"bad":
                    raise ValueError("bad")
                return ConsumeStatus.RECONSUME_LATER if batch[0].body == b"late" else None

            seen, hook = Seen(), Watcher()
            consumer = site.consumer()
            consumer.consume_hooks.append(hook)
            consumer.filter_hooks.append(hook)
            consumer.subscribe("orders")
            consumer.listen(listener)
            await consumer.start()
            await until(lambda: len(hook.seen) == 3)
            assert seen.bodies == [b"good", b"late", b"bad"]
            assert hook.seen == [
                ("orders", True, "CONSUME_SUCCESS", "SUCCESS"),
                ("orders", False, "RECONSUME_LATER", "FAILED"),
                ("orders", False, "RECONSUME_LATER", "EXCEPTION"),
            ]
            assert consumer.consumed_offsets("orders")[ORDERS] == 4
            await consumer.shutdown()

    run(main())


def test_what_a_listener_gets_is_traced(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.create("traces")

            async def listener(batch: Batch, _: ConcurrentContext) -> ConsumeStatus | None:
                await pass_time(0.25)
                return ConsumeStatus.RECONSUME_LATER if batch[0].body == b"bad" else None

            client = replace(
                site.client_settings(), instance_name="1", trace=True, trace_topic="traces"
            )
            consumer = site.consumer("g", client=client)
            consumer.subscribe("orders")
            consumer.listen(listener)
            await consumer.start()
            await site.send("orders", b"good", properties="KEYS\x01k1 k2\x02")
            await pass_time(1)
            await site.send("orders", b"bad")
            await pass_time(1)
            await consumer.shutdown()
            traces, reader = Seen(), site.consumer("reader")
            reader.subscribe("traces")
            reader.listen(traces)
            await reader.start()
            await until(lambda: bool(traces.messages))
            await pass_time(1)
            await reader.shutdown()
            text = b"".join(traces.bodies).decode()
            lines = [line.split("\x01") for line in text.split("\x02") if line]
            assert [line[0] for line in lines] == ["SubBefore", "SubAfter"] * 2
            before, after, _, failed = lines
            assert before[2:4] == ["DefaultRegion", "g"]
            assert before[4] == after[1], "one request"
            assert before[5] == after[2], "one message"
            assert before[6:] == ["0", "k1 k2"]
            assert int(after[3]) in {249, 250, 251}
            assert after[4:7] == ["true", "k1 k2", "0"]
            assert failed[4] == "false"
            assert failed[6] == "4"
            assert "k2" in traces.messages[0].keys

    run(main())
