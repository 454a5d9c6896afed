"""What consumers promise about offsets: where they begin, stop and are sent to."""

from functools import partial

import pytest
from contract.world import Play, Seen, World

from downrange.client.errors import RocketMQError
from downrange.client.lite_pull_consumer import LitePullConsumer
from downrange.client.message import Message
from downrange.client.pull_consumer import PullConsumer
from downrange.client.pulling import PullStatus
from downrange.client.session import FIRST_PERSIST_S
from downrange.model.topics import MessageQueue
from downrange.protocol.headers.broker_to_client import ResetOffsetRequest
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.request_codes import RequestCode

COUNT = 10


async def filled_queue(world: World, topic: str) -> MessageQueue:
    """A topic of one queue with ten numbered messages, every other one tagged."""
    (queue,) = await world.create(topic, 1)
    async with world.producer() as producer, world.pull("lookers") as reader:
        for number in range(COUNT):
            tag = "even" if number % 2 == 0 else "odd"
            await producer.send(Message(topic, b"%d" % number, tag=tag), queue=queue)
        await world.soon(partial(_has, reader, queue, COUNT))
    return queue


async def _has(reader: PullConsumer, queue: MessageQueue, count: int) -> bool | None:
    return True if await reader.max_offset(queue) >= count else None


async def polled(consumer: LitePullConsumer, count: int) -> list[int]:
    """The next messages, by number; fewer if no more come in time."""
    found: list[int] = []
    while len(found) < count:
        batch = await consumer.poll(10)
        if not batch:
            break
        found += [int(message.body) for message in batch]
    return found


def test_a_pull_says_what_it_found_and_where_to_go_on(play: Play) -> None:
    async def promise(world: World) -> None:
        queue = await filled_queue(world, world.topic())
        async with world.pull(suspend_max_s=1.0) as consumer:
            found = await consumer.pull(queue, 4, count_max=3)
            assert found.status is PullStatus.FOUND
            assert [int(message.body) for message in found.messages] == [4, 5, 6]
            assert (found.next_offset, found.min_offset, found.max_offset) == (7, 0, COUNT)
            even = await consumer.pull(queue, 0, tags="even")
            assert [int(message.body) for message in even.messages] == [0, 2, 4, 6, 8]
            nothing_wanted = await consumer.pull(queue, 0, tags="neither")
            assert nothing_wanted.status is PullStatus.NO_MATCHED_MSG
            assert (nothing_wanted.next_offset, nothing_wanted.messages) == (COUNT, [])
            at_the_end = await consumer.pull(queue, COUNT)
            assert (at_the_end.status, at_the_end.messages) == (PullStatus.NO_NEW_MSG, [])
            beyond = await consumer.pull(queue, COUNT + 5)
            assert (beyond.status, beyond.next_offset) == (PullStatus.OFFSET_ILLEGAL, COUNT)
            started_s = world.now_s()
            waited = await consumer.pull_blocking(queue, COUNT)
            assert waited.status is PullStatus.NO_NEW_MSG
            assert world.now_s() - started_s >= 0.9

    play(promise)


def test_offsets_of_a_pull_consumer_stay_with_the_group(play: Play) -> None:
    async def promise(world: World) -> None:
        queue = await filled_queue(world, world.topic())
        async with world.pull() as consumer:
            assert await consumer.consumed_offset(queue) == 0
            consumer.update_consumed_offset(queue, 6)
            await consumer.persist(queue)
            assert await consumer.offset_at(queue, 0) == 0
            assert await consumer.min_offset(queue) == 0
        async with world.pull() as consumer:
            assert await consumer.consumed_offset(queue, from_store=True) == 6

    play(promise)


def test_lite_pull_goes_where_it_is_sent(play: Play) -> None:
    async def promise(world: World) -> None:
        queue = await filled_queue(world, world.topic())
        async with world.lite(auto_commit=False) as consumer:
            await consumer.assign([queue])
            assert consumer.assignment == {queue}
            assert await polled(consumer, COUNT) == list(range(COUNT))
            await consumer.seek(queue, 6)
            assert await polled(consumer, 4) == [6, 7, 8, 9]
            await consumer.seek_to_begin(queue)
            assert await polled(consumer, COUNT) == list(range(COUNT))
            await consumer.seek_to_end(queue)
            assert await consumer.poll(0.5) == []
            await consumer.seek_to_time(queue, 0)
            assert await polled(consumer, COUNT) == list(range(COUNT))
            with pytest.raises(RocketMQError, match="cannot seek to offset 99"):
                await consumer.seek(queue, 99)
            await consumer.commit({queue: 5})
        async with world.lite(auto_commit=False) as consumer:
            await consumer.assign([queue])
            assert await consumer.committed(queue) == 5
            assert await polled(consumer, 5) == [5, 6, 7, 8, 9]

    play(promise)


def test_lite_pull_gives_nothing_from_a_paused_queue(play: Play) -> None:
    async def promise(world: World) -> None:
        queue = await filled_queue(world, world.topic())
        async with world.producer() as producer, world.lite() as consumer:
            consumer.pause([queue])
            await consumer.assign([queue])
            assert await consumer.poll(0.5) == []
            consumer.resume([queue])
            assert await polled(consumer, COUNT) == list(range(COUNT))
            await producer.send(Message(queue.topic, b"10"), queue=queue)
            assert await polled(consumer, 1) == [10]

    play(promise)


def test_lite_pull_shares_by_subscription_and_commits_what_was_polled(play: Play) -> None:
    async def promise(world: World) -> None:
        queue = await filled_queue(world, world.topic())
        consumer = world.lite()
        consumer.subscribe(queue.topic, "even")
        async with consumer:
            assert await polled(consumer, 5) == [0, 2, 4, 6, 8]
        async with world.lite("lite") as consumer:
            await consumer.assign([queue])
            committed = await consumer.committed(queue)
            assert committed is not None
            assert committed >= 9

    play(promise)


def test_an_administrator_sends_a_running_group_back(play: Play) -> None:
    async def promise(world: World) -> None:
        queue, seen = await filled_queue(world, world.topic()), Seen()
        consumer = world.push()
        consumer.subscribe(queue.topic)
        consumer.listen(seen)
        async with world.producer() as producer, consumer:
            await world.until(lambda: len(seen.messages) == COUNT)
            # The broker has heard how far the group has come; 4.9 sends no other group back.
            await world.pause(FIRST_PERSIST_S + 2)
            request = ResetOffsetRequest(
                group=consumer.group, topic=queue.topic, timestamp=0, is_force=True
            )
            fields = encode_header(request)
            await world.ask_broker(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
            # A pull that waits hears of it when a message comes, or when its time is over.
            await producer.send(Message(queue.topic, b"10"), queue=queue)
            await world.until(lambda: len(seen.messages) > 2 * COUNT)
        assert sorted({int(body) for body in seen.bodies[COUNT:]}) == list(range(COUNT + 1))

    play(promise)
