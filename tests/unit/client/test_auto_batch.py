"""Messages that wait for others: what goes together, what goes alone, who gets which receipt."""

import asyncio
from pathlib import Path

import pytest
from unit.broker.one_broker import pass_time
from unit.client.producing import ScriptedBroker, accepts, producer_of, settings, stored, with_code

from downrange.client.errors import (
    BadAnswerError,
    BrokerRefusal,
    InvalidMessageError,
    RocketMQError,
)
from downrange.client.message import Message, SendReceipt
from downrange.client.producer import Producer
from downrange.client.settings import ProducerSettings
from downrange.model.topics import MessageQueue
from downrange.protocol.command import Command
from downrange.protocol.request_codes import RequestCode
from downrange.testing.cluster import MemoryCluster
from downrange.testing.virtual_time import run

PLAIN, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE


def batching(**changes: object) -> ProducerSettings:
    return settings(auto_batch=True, retries=0, **changes)


async def _together(producer: Producer, *messages: Message) -> list[SendReceipt]:
    return await asyncio.gather(*(producer.send(message) for message in messages))


def test_messages_of_a_moment_go_in_one_request_and_each_gets_its_receipt(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            MemoryCluster(tmp_path) as cluster,
            producer_of(cluster, settings=batching()) as producer,
        ):
            sent = [Message("orders", b"%d" % number, keys=f"k{number}") for number in range(9)]
            receipts = await _together(producer, *sent)
            found = await stored(cluster, "orders")
            assert [message.body for message in found] == [message.body for message in sent]
            assert [message.keys for message in found] == [[f"k{n}"] for n in range(9)]
            assert len({message.queue for message in found}) == 1
            for message, receipt in zip(found, receipts, strict=True):
                assert receipt.message_id == message.message_id
                assert receipt.offset_message_id == message.offset_message_id
                assert receipt.queue_offset == message.queue_offset

    run(main())


async def _codes(tmp_path: Path, chosen: ProducerSettings, *messages: Message) -> list[int]:
    """The requests that a broker gets, and whatever it answers."""
    async with MemoryCluster(tmp_path, broker_names=()) as cluster:
        broker = ScriptedBroker(cluster, "b", 20_000, with_code(2))
        await broker.start("orders", "bills")
        async with producer_of(cluster, settings=chosen) as producer:
            calls = (producer.send(message) for message in messages)
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(result, BrokerRefusal) for result in results), results
        await broker.stop()
        return [request.code for request in broker.requests]


def test_who_differs_in_topic_or_tag_goes_another_way(tmp_path: Path) -> None:
    messages = [
        Message(topic, b"x", tag=tag) for topic in ("orders", "bills") for tag in "ab" for _ in "12"
    ]
    assert run(_codes(tmp_path, batching(), *messages)) == [BATCH] * 4


def test_delayed_large_and_single_messages_go_alone(tmp_path: Path) -> None:
    messages = [
        Message("orders", b"x", delay_level=1),
        Message("orders", b"x", delay_s=9),
        Message("orders", b"x" * 5_000),
        Message("orders", b"lonely"),
    ]
    assert run(_codes(tmp_path, batching(batch_bytes_max=4_999), *messages)) == [PLAIN] * 4


def test_a_batch_that_is_large_enough_does_not_wait(tmp_path: Path) -> None:
    async def main() -> None:
        chosen = batching(batch_bytes_max=1_000, batch_delay_ms_max=10_000)
        async with (
            MemoryCluster(tmp_path) as cluster,
            producer_of(cluster, settings=chosen) as producer,
        ):
            loop = asyncio.get_running_loop()
            started_s = loop.time()
            await _together(producer, *(Message("orders", b"x" * 400) for _ in range(3)))
            assert loop.time() - started_s < 1
            await producer.send(Message("orders", b"waits"))
            assert loop.time() - started_s > 9.9

    run(main())


def test_beyond_the_total_messages_go_alone(tmp_path: Path) -> None:
    chosen = batching(batch_total_bytes_max=10)
    messages = [Message("orders", b"x" * 10) for _ in range(3)]
    assert run(_codes(tmp_path, chosen, *messages)) == [PLAIN] * 3


def test_a_message_that_cannot_be_one_spoils_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            MemoryCluster(tmp_path) as cluster,
            producer_of(cluster, settings=batching()) as producer,
        ):
            good = asyncio.gather(*(producer.send(Message("orders", b"x")) for _ in range(2)))
            no_bytes = Message("orders", None)  # type: ignore[arg-type]
            for bad in (Message("orders", b""), Message("no good!", b"x"), no_bytes):
                with pytest.raises(InvalidMessageError):
                    await producer.send(bad)
            assert len(await good) == 2

    run(main())


def test_an_error_is_everybodys(tmp_path: Path) -> None:
    heard: list[SendReceipt | RocketMQError] = []

    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=()) as cluster:
            broker = ScriptedBroker(cluster, "b", 20_000, with_code(13))
            await broker.start("orders")
            async with producer_of(cluster, settings=batching()) as producer:
                for _ in range(2):
                    await producer.send_async(Message("orders", b"x"), heard.append)
                await pass_time(1)
            await broker.stop()

    run(main())
    assert [type(error) for error in heard] == [BrokerRefusal, BrokerRefusal]


def test_callbacks_hear_their_own_receipt(tmp_path: Path) -> None:
    heard: list[SendReceipt | RocketMQError] = []

    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            producer = producer_of(cluster, settings=batching(batch_delay_ms_max=30_000))
            await producer.start()
            queue = (await producer.queues("TBW102"))[0]
            target = MessageQueue("orders", queue.broker_name, 3)
            await producer.send(Message("orders", b"first"), queue=target, timeout_s=3)
            for _ in range(3):
                await producer.send_async(Message("orders", b"x"), heard.append, queue=target)
            assert heard == []
            await producer.shutdown()  # sends what is held

    run(main())
    offsets = [one.queue_offset for one in heard if isinstance(one, SendReceipt)]
    assert offsets == [1, 2, 3]


def test_a_selector_chooses_before_messages_meet(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            MemoryCluster(tmp_path) as cluster,
            producer_of(cluster, settings=batching()) as producer,
        ):
            await producer.send(Message("orders", b"first"))
            receipts = await asyncio.gather(
                *(
                    producer.send(
                        Message("orders", b"%d" % number),
                        selector=lambda queues, message: queues[int(message.body) % 2],
                    )
                    for number in range(6)
                )
            )
            assert [receipt.queue.queue_id for receipt in receipts] == [0, 1] * 3

    run(main())


def test_a_broker_that_miscounts_is_not_believed(tmp_path: Path) -> None:
    def answer(request: Command) -> Command:
        plain = accepts(request)
        return Command(
            code=0, opaque=plain.opaque, flag=plain.flag, ext_fields={"msgId": "A", "queueId": "0"}
        )

    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=()) as cluster:
            broker = ScriptedBroker(cluster, "b", 20_000, answer)
            await broker.start("orders")
            async with producer_of(cluster, settings=batching()) as producer:
                with pytest.raises(BadAnswerError, match="2 ids and 1 places for a batch of 2"):
                    await _together(producer, Message("orders", b"1"), Message("orders", b"2"))
            await broker.stop()

    run(main())


@pytest.mark.parametrize(
    "change",
    [{"batch_bytes_max": 0}, {"batch_bytes_max": 3 << 20}, {"batch_delay_ms_max": 30_001}],
)
def test_bounds_are_those_of_java(change: dict[str, int]) -> None:
    with pytest.raises(RocketMQError, match="it must be from 1 to"):
        batching(**change)
