"""Bad input: each gets one clear error, and nothing hangs over its deadline."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from contract.world import Play, Seen, World

from downrange.client.errors import (
    BrokerRefusal,
    ClientStateError,
    InvalidMessageError,
    NoNameServerError,
    NoRouteCause,
    NoRouteError,
    RocketMQError,
    UnknownBrokerError,
)
from downrange.client.message import Message
from downrange.client.producer import Producer
from downrange.client.push_consumer import PushConsumer
from downrange.client.settings import ClientSettings, ProducerSettings
from downrange.model.topics import MessageQueue
from downrange.protocol.response_codes import ResponseCode

NOBODY = "127.0.0.1:1"
MIB = 1024 * 1024

UNSENDABLE: dict[str, Callable[[], Message]] = {
    "127": lambda: Message("t" * 128, b"x"),
    "topic": lambda: Message("no spaces, please", b"x"),
    "is empty": lambda: Message("topic", b""),
    "over 4194304": lambda: Message("topic", bytes(4 * MIB + 1)),
    "belongs to the brokers": lambda: Message("SCHEDULE_TOPIC_XXXX", b"x"),
    "belongs to RocketMQ": lambda: Message("topic", b"x", properties={"KEYS": "k"}),
    "levels begin at 1": lambda: Message("topic", b"x", delay_level=-1),
    "bytes, 32767 are possible": lambda: Message("topic", b"x", properties={"p": "x" * 40_000}),
    "give one of": lambda: Message("topic", b"x", delay_level=1, delay_s=1),
}


@pytest.mark.parametrize("text", UNSENDABLE)
def test_a_message_that_cannot_be_one_is_refused_before_it_is_sent(play: Play, text: str) -> None:
    async def promise(world: World) -> None:
        async with world.producer() as producer:
            with pytest.raises(InvalidMessageError, match=text):
                await producer.send(UNSENDABLE[text]())

    play(promise)


def test_a_message_that_the_broker_finds_too_large_is_refused_with_its_code(play: Play) -> None:
    async def promise(world: World) -> None:
        topic = world.topic()
        await world.create(topic)
        settings = ProducerSettings(
            message_bytes_max=8 * MIB, compress_over_bytes=8 * MIB, send_timeout_s=10
        )
        async with world.producer(settings) as producer:
            with pytest.raises(BrokerRefusal) as refusal:
                await producer.send(Message(topic, bytes(5 * MIB)))
            assert refusal.value.code == ResponseCode.MESSAGE_ILLEGAL
            await producer.send(Message(topic, b"the connection goes on"))

    play(promise)


@pytest.mark.parametrize("group", ["", "g" * 256, "no spaces", "DEFAULT_PRODUCER"])
def test_a_group_that_cannot_be_one_is_refused(play: Play, group: str) -> None:
    async def promise(world: World) -> None:
        with pytest.raises(InvalidMessageError, match="group"):
            await Producer(group, client=world.client()).start()
        with pytest.raises(InvalidMessageError, match="group"):
            PushConsumer(group.replace("PRODUCER", "CONSUMER"), client=world.client())

    play(promise)


def test_unknown_brokers_and_topics_are_named(play: Play) -> None:
    async def promise(world: World) -> None:
        topic = world.topic()
        await world.create(topic)
        async with world.producer() as producer, world.pull() as consumer:
            with pytest.raises(UnknownBrokerError, match="nobody"):
                await producer.send(Message(topic, b"x"), queue=MessageQueue(topic, "nobody", 0))
            with pytest.raises(NoRouteError, match="nowhere") as no_route:
                await consumer.fetch_queues(world.topic("nowhere"))
            assert no_route.value.cause is NoRouteCause.TOPIC_UNKNOWN
            with pytest.raises(RocketMQError, match="offset -1"):
                await consumer.pull(MessageQueue(topic, "broker-a", 0), -1)

    play(promise)


def test_an_expression_that_is_no_sql_fails_the_start(play: Play) -> None:
    async def promise(world: World) -> None:
        topic = world.topic()
        await world.create(topic)
        consumer = world.push()
        consumer.subscribe_sql(topic, "number >")
        consumer.listen(Seen())
        with pytest.raises(RocketMQError) as error:
            await consumer.start()
        assert error.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED

    play(promise)


def test_without_a_name_server_every_call_ends_in_time(play: Play) -> None:
    async def promise(world: World) -> None:
        elsewhere = replace(world, name_servers=(NOBODY,))
        consumer = elsewhere.push()
        consumer.subscribe("topic")
        consumer.listen(Seen())

        async def send() -> None:
            async with elsewhere.producer() as producer:
                await producer.send(Message("topic", b"x"))

        async def pull() -> None:
            async with elsewhere.pull() as reader:
                await reader.fetch_queues("topic")

        calls: list[Callable[[], Awaitable[None]]] = [send, pull]
        for call in calls:
            started_s = world.now_s()
            with pytest.raises(NoNameServerError, match=NOBODY):
                await call()
            assert world.now_s() - started_s < 15
        started_s = world.now_s()
        async with consumer:  # as in Java it waits for its name server
            assert not consumer.queues
        assert world.now_s() - started_s < 15

    play(promise)


def test_what_is_not_started_or_over_says_so(play: Play) -> None:
    async def promise(world: World) -> None:
        producer, consumer = world.producer(), world.push()
        with pytest.raises(ClientStateError, match="start"):
            await producer.send(Message(world.topic(), b"x"))
        with pytest.raises(ClientStateError, match="no listener"):
            await consumer.start()
        async with producer:
            pass
        with pytest.raises(ClientStateError):
            await producer.send(Message(world.topic(), b"x"))

    play(promise)


def test_an_address_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(RocketMQError, match="give addresses like"):
        ClientSettings(name_servers="no address")
