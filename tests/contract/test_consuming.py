"""What a push consumer promises."""

from collections import defaultdict

from contract.world import Play, Seen, World

from downrange.client.consumer_settings import MessageModel
from downrange.client.listeners import (
    Batch,
    ConcurrentContext,
    ConsumeStatus,
    OrderlyContext,
    OrderlyStatus,
)
from downrange.client.message import Message
from downrange.client.producer import Producer
from downrange.client.push_consumer import PushConsumer
from downrange.model.topics import MessageQueue
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.headers.send import SendRequestV2
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.sys_flag import COMPRESSED

DELAY_LEVEL_ONE_SECOND = 1
COUNT = 40


async def send_numbers(producer: Producer, queues: list[MessageQueue], first: int = 0) -> None:
    for number in range(first, first + COUNT):
        queue = queues[number % len(queues)]
        await producer.send(Message(queue.topic, b"%d" % number), queue=queue)


def numbers(seen: Seen) -> list[int]:
    return [int(body) for body in seen.bodies]


def test_members_share_the_queues_and_one_takes_over_what_another_leaves(play: Play) -> None:
    async def promise(world: World) -> None:
        topic = world.topic()
        queues = await world.create(topic)
        members: list[PushConsumer] = []
        views = [Seen(), Seen()]
        for seen in views:
            member = world.push(consume_batch_size=4)
            member.subscribe(topic)
            member.listen(seen)
            members.append(member)
        async with world.producer() as producer, members[0]:
            async with members[1]:
                await world.until(lambda: all(_count(one, topic) == 2 for one in members))
                await send_numbers(producer, queues)
                await world.until(lambda: sum(len(one.messages) for one in views) >= COUNT)
                assert all(one.messages for one in views)
            await world.until(lambda: _count(members[0], topic) == len(queues))
            await send_numbers(producer, queues, COUNT)
            await world.until(lambda: sum(len(one.messages) for one in views) >= 2 * COUNT)
            await world.pause(0.5)
        assert sorted(numbers(views[0]) + numbers(views[1])) == list(range(2 * COUNT))

    play(promise)


def _count(member: PushConsumer, topic: str) -> int:
    return sum(queue.topic == topic for queue in member.queues)


def test_a_new_group_begins_where_it_was_told_and_a_known_one_where_it_stopped(play: Play) -> None:
    async def promise(world: World) -> None:
        topic = world.topic()
        queues = await world.create(topic)
        async with world.producer() as producer:
            await send_numbers(producer, queues)
            for first, expected in ((0, COUNT), (COUNT, 2 * COUNT)):
                seen = Seen()
                consumer = world.push()
                consumer.subscribe(topic)
                consumer.listen(seen)
                async with consumer:
                    await world.until(lambda seen=seen: len(seen.messages) >= COUNT)  # type: ignore[misc]
                assert sorted(numbers(seen)) == list(range(first, expected))
                await send_numbers(producer, queues, expected)

    play(promise)


def test_in_order_a_queue_waits_for_the_message_that_fails(play: Play) -> None:
    async def promise(world: World) -> None:
        topic = world.topic()
        queues = await world.create(topic)
        by_queue: defaultdict[int, list[int]] = defaultdict(list)
        failures = 0

        async def listen(batch: Batch, context: OrderlyContext) -> OrderlyStatus:
            nonlocal failures
            (message,) = batch
            by_queue[message.queue_id].append(int(message.body))
            if int(message.body) == 6 and failures < 2:
                failures += 1
                context.suspend_ms = 100
                return OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
            return OrderlyStatus.SUCCESS

        consumer = world.push()
        consumer.subscribe(topic)
        consumer.listen_in_order(listen)
        async with world.producer() as producer, consumer:
            await send_numbers(producer, queues)
            await world.until(lambda: sum(len(one) for one in by_queue.values()) >= COUNT + 2)
        for key in range(len(queues)):
            expected = list(range(key, COUNT, 4))
            if key == 2:
                expected[1:1] = [6, 6]
            assert by_queue[key] == expected

    play(promise)


def test_broadcasting_gives_every_member_every_message(play: Play) -> None:
    async def promise(world: World) -> None:
        topic = world.topic()
        queues = await world.create(topic)
        views = [Seen(), Seen()]
        members = []
        for seen in views:
            member = world.push("everyone", message_model=MessageModel.BROADCASTING)
            member.subscribe(topic)
            member.listen(seen)
            members.append(member)
        async with world.producer() as producer, members[0], members[1]:
            await send_numbers(producer, queues)
            await world.until(lambda: all(len(seen.messages) >= COUNT for seen in views))
        assert [sorted(numbers(seen)) for seen in views] == [list(range(COUNT))] * 2

    play(promise)


def test_tags_and_sql_choose_the_messages(play: Play) -> None:
    async def promise(world: World) -> None:
        topic = world.topic()
        await world.create(topic)
        async with world.producer() as producer:
            # "Aa" and "BB" have the same hash, which is all that a consume queue knows of a tag.
            for number, tag in enumerate(("Aa", "BB", "red", "blue", None)):
                properties = {"number": str(number), "colour": "warm" if number % 2 else "cold"}
                body = b"%d" % number
                await producer.send(Message(topic, body, tag=tag, properties=properties))
        wanted = {
            "Aa": {0},
            "red || blue": {2, 3},
            "*": {0, 1, 2, 3, 4},
            "number BETWEEN 1 AND 3 AND colour = 'warm'": {1, 3},
            "TAGS IS NULL OR number < 1": {0, 4},
        }
        for index, (expression, expected) in enumerate(wanted.items()):
            seen = Seen()
            consumer = world.push(f"by-{index}")
            if "number" in expression:
                consumer.subscribe_sql(topic, expression)
            else:
                consumer.subscribe(topic, expression)
            consumer.listen(seen)
            async with consumer:
                await world.until(
                    lambda seen=seen, expected=expected: len(seen.messages) >= len(expected)  # type: ignore[misc]
                )
                await world.pause(0.2)
            assert set(numbers(seen)) == expected, expression

    play(promise)


def test_what_fails_too_often_is_a_dead_letter(play: Play) -> None:
    async def promise(world: World) -> None:
        topic, tries = world.topic(), list[tuple[int, str]]()
        await world.create(topic)

        async def listen(batch: Batch, context: ConcurrentContext) -> ConsumeStatus:
            (message,) = batch
            if message.body == b"good":
                return ConsumeStatus.CONSUME_SUCCESS
            tries.append((message.reconsume_times, message.topic))
            context.delay_level = DELAY_LEVEL_ONE_SECOND
            return ConsumeStatus.RECONSUME_LATER

        consumer = world.push(max_reconsume_times=2)
        consumer.subscribe(topic)
        consumer.listen(listen)
        async with world.producer() as producer, consumer:
            bad = await producer.send(Message(topic, b"bad", keys="k"))
            await producer.send(Message(topic, b"good"))
            await world.until(lambda: len(tries) == 3)
            dead = Seen()
            undertaker = world.push("undertaker")
            undertaker.subscribe(f"%DLQ%{world.group('consumers')}")
            undertaker.listen(dead)
            async with undertaker:
                await world.until(lambda: len(dead.messages) == 1)
        assert tries == [(0, topic), (1, topic), (2, topic)]
        (letter,) = dead.messages
        assert (letter.body, letter.message_id) == (b"bad", bad.message_id)
        assert letter.keys == ["k"]
        assert letter.properties["RETRY_TOPIC"] == topic
        assert letter.properties["ORIGIN_MESSAGE_ID"] == bad.offset_message_id

    play(promise)


def test_a_message_that_cannot_be_decoded_is_a_dead_letter(play: Play) -> None:
    async def promise(world: World) -> None:
        topic, seen, dead = world.topic(), Seen(), Seen()
        (queue,) = await world.create(topic, 1)
        consumer = world.push()
        consumer.subscribe(topic)
        consumer.listen(seen)
        header = SendRequestV2(
            producer_group="defect",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=COMPRESSED,
            born_timestamp=1,
            flag=0,
            properties="KEYS\x01k\x02UNIQ_KEY\x01ID1\x02",
        )
        async with world.producer() as producer, consumer:
            await producer.send(Message(topic, b"first"), queue=queue)
            fields = encode_header(header)
            await world.ask_broker(RequestCode.SEND_MESSAGE_V2, fields, b"not compressed")
            await producer.send(Message(topic, b"second"), queue=queue)
            await world.until(lambda: consumer.consumed_offsets(topic).get(queue) == 3)
            undertaker = world.push("undertaker")
            undertaker.subscribe(f"%DLQ%{world.group('consumers')}")
            undertaker.listen(dead)
            async with undertaker:
                await world.until(lambda: len(dead.messages) == 1)
        assert sorted(seen.bodies) == [b"first", b"second"]
        (letter,) = dead.messages
        assert (letter.body, letter.keys) == (b"not compressed", ["k"])
        assert letter.properties["RETRY_TOPIC"] == topic
        assert letter.properties["INVALID_MESSAGE_QUEUE_OFFSET"] == "1"
        assert "ZLIB" in letter.properties["INVALID_MESSAGE_REASON"]

    play(promise)


def test_an_error_in_the_listener_brings_the_message_again(play: Play) -> None:
    async def promise(world: World) -> None:
        topic, times = world.topic(), list[int]()
        await world.create(topic, 1)

        async def listen(batch: Batch, context: ConcurrentContext) -> None:
            context.delay_level = DELAY_LEVEL_ONE_SECOND
            times.append(batch[0].reconsume_times)
            if len(times) == 1:
                raise ValueError("cannot do that yet")

        consumer = world.push()
        consumer.subscribe(topic)
        consumer.listen(listen)
        async with world.producer() as producer, consumer:
            await producer.send(Message(topic, b"x"))
            await world.until(lambda: len(times) == 2)
        assert times == [0, 1]

    play(promise)
