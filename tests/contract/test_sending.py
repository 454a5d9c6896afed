"""What a producer promises, seen by a consumer."""

import asyncio
import random
from functools import partial

import pytest
from contract.world import Play, Seen, World

from downrange.client.errors import RequestTimeoutError
from downrange.client.listeners import Batch
from downrange.client.message import Message, ReceivedMessage, SendReceipt, SendStatus
from downrange.client.producer import Producer
from downrange.client.pull_consumer import PullConsumer
from downrange.client.request_reply import make_reply
from downrange.client.settings import ProducerSettings
from downrange.client.transaction_producer import TransactionState
from downrange.model.topics import MessageQueue


def test_every_way_of_sending_arrives_once(play: Play) -> None:
    async def promise(world: World) -> None:
        topic, seen = world.topic(), Seen()
        queues = await world.create(topic)
        consumer = world.push()
        consumer.subscribe(topic)
        consumer.listen(seen)
        async with world.producer() as producer, consumer:
            receipts = [
                await producer.send(Message(topic, b"plain", tag="t", keys=["a", "b"], flag=3)),
                await producer.send(Message(topic, b"queue"), queue=queues[2]),
                await producer.send(
                    Message(topic, b"selector"), selector=lambda found, _: sorted(found)[1]
                ),
                await producer.send_batch([Message(topic, b"batch %d" % i) for i in range(3)]),
                await _with_callback(producer, Message(topic, b"callback")),
            ]
            await producer.send_one_way(Message(topic, b"one way"))
            sent = {
                b"plain", b"queue", b"selector", b"batch 0", b"batch 1", b"batch 2", b"callback",
                b"one way",
            }  # fmt: skip
            await world.until(lambda: len(seen.messages) >= len(sent))
            await world.pause(0.5)  # whatever comes twice has come
        assert sorted(seen.bodies) == sorted(sent)
        assert {receipt.status for receipt in receipts} == {SendStatus.SEND_OK}
        assert receipts[1].queue == queues[2]
        assert receipts[2].queue == queues[1]
        by_body = {message.body: message for message in seen.messages}
        plain = by_body[b"plain"]
        assert (plain.tag, plain.keys, plain.flag) == ("t", ["a", "b"], 3)
        for body, receipt in zip((b"plain", b"queue", b"selector"), receipts, strict=False):
            message = by_body[body]
            assert (message.message_id, message.offset_message_id) == (
                receipt.message_id,
                receipt.offset_message_id,
            )
            assert (message.queue, message.queue_offset) == (receipt.queue, receipt.queue_offset)
        ids = [by_body[b"batch %d" % i].message_id for i in range(3)]
        assert receipts[3].message_id.split(",") == ids

    play(promise)


async def _with_callback(producer: Producer, message: Message) -> SendReceipt:
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    await producer.send_async(message, done.set_result)
    result = await done
    assert isinstance(result, SendReceipt)
    return result


def test_a_large_body_comes_out_as_it_went_in(play: Play) -> None:
    async def promise(world: World) -> None:
        topic, seen = world.topic(), Seen()
        await world.create(topic, 1)
        bodies = [b"again and again " * 5_000, random.Random(5).randbytes(50_000)]
        consumer = world.push()
        consumer.subscribe(topic)
        consumer.listen(seen)
        async with world.producer() as producer, consumer:
            for body in bodies:
                await producer.send(Message(topic, body))
            await world.until(lambda: len(seen.messages) == 2)
        assert seen.bodies == bodies
        assert seen.messages[0].store_size < 5_000

    play(promise)


def test_a_delayed_message_comes_when_its_time_has_come(play: Play) -> None:
    async def promise(world: World) -> None:
        topic, came_s = world.topic(), dict[bytes, float]()
        await world.create(topic, 1)

        async def note(batch: Batch, _context: object) -> None:
            came_s.update({message.body: world.now_s() for message in batch})

        consumer = world.push()
        consumer.subscribe(topic)
        consumer.listen(note)
        async with world.producer() as producer, consumer:
            started_s = world.now_s()
            await producer.send(Message(topic, b"later", delay_level=2))
            await producer.send(Message(topic, b"now"))
            await world.until(lambda: len(came_s) == 2)
        assert came_s[b"now"] - started_s < 4
        assert 4.5 <= came_s[b"later"] - started_s <= 15

    play(promise)


class Verdicts:
    """A transaction listener: bodies that begin with "ask" are decided when the broker asks."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def execute(self, message: Message, _id: str, _argument: object) -> TransactionState:
        """At once."""
        if message.body.startswith(b"ask"):
            return TransactionState.UNKNOW
        return _verdict(message.body)

    def check(self, message: ReceivedMessage) -> TransactionState:
        """When asked."""
        self.asked.append(message.body)
        return _verdict(message.body)


def _verdict(body: bytes) -> TransactionState:
    if body.endswith(b"commit"):
        return TransactionState.COMMIT_MESSAGE
    return TransactionState.ROLLBACK_MESSAGE


def test_a_transaction_ends_as_its_listener_says_at_once_or_when_asked(play: Play) -> None:
    async def promise(world: World) -> None:
        topic, seen, verdicts = world.topic(), Seen(), Verdicts()
        await world.create(topic, 2)
        consumer = world.push()
        consumer.subscribe(topic)
        consumer.listen(seen)
        async with world.transaction_producer(verdicts) as producer, consumer:
            for body in (b"ask commit", b"ask rollback", b"rollback", b"commit"):
                result = await producer.send_in_transaction(Message(topic, body))
                assert result.receipt.status is SendStatus.SEND_OK
            await world.until(lambda: b"commit" in seen.bodies)
            assert seen.bodies == [b"commit"]
            await world.until(lambda: b"ask commit" in seen.bodies)
            await world.until(lambda: len(set(verdicts.asked)) == 2)
        assert set(seen.bodies) == {b"commit", b"ask commit"}
        assert set(verdicts.asked) == {b"ask commit", b"ask rollback"}

    play(promise)


def test_a_request_gets_the_reply_of_a_consumer_or_an_error_in_time(play: Play) -> None:
    async def promise(world: World) -> None:
        topic = world.topic()
        await world.create(topic, 1)
        async with world.producer() as asker, world.producer() as answerer:

            async def answer(batch: Batch, _context: object) -> None:
                for message in batch:
                    if message.body != b"nobody knows":
                        await answerer.send(make_reply(message, b"answer to " + message.body))

            consumer = world.push()
            consumer.subscribe(topic)
            consumer.listen(answer)
            async with consumer:
                replies = await asyncio.gather(
                    *(asker.request(Message(topic, b"%d" % i), timeout_s=30) for i in range(5))
                )
                assert [reply.body for reply in replies] == [b"answer to %d" % i for i in range(5)]
                started_s = world.now_s()
                with pytest.raises(RequestTimeoutError):
                    await asker.request(Message(topic, b"nobody knows"), timeout_s=1)
                assert 0.9 <= world.now_s() - started_s < 4

    play(promise)


def test_messages_of_one_key_go_to_one_queue_in_their_order(play: Play) -> None:
    async def promise(world: World) -> None:
        topic = world.topic()
        queues = await world.create(topic)
        async with world.producer(ProducerSettings(send_timeout_s=10)) as producer:

            def by_key(found: object, message: Message) -> MessageQueue:
                del found
                return queues[int(message.keys[0])]

            for number in range(40):
                message = Message(topic, b"%d" % number, keys=str(number % 4))
                await producer.send(message, selector=by_key)
        async with world.pull() as reader:
            for key, queue in enumerate(queues):
                await world.soon(partial(_is_long, reader, queue, 10))
                found = await reader.pull(queue, 0)
                assert [int(one.body) for one in found.messages] == list(range(key, 40, 4))

    play(promise)


async def _is_long(reader: PullConsumer, queue: MessageQueue, count: int) -> bool | None:
    return True if await reader.max_offset(queue) >= count else None
