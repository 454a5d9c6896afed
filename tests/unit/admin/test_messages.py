"""Finding and reading messages without a group, and giving dead letters another life."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from unit.admin.operating import admin_of
from unit.broker.one_broker import pass_time
from unit.client.consuming import Seen, Site, until

from downrange.admin.dead_letters import ResendTo, origin_topic, resent
from downrange.admin.errors import NothingThereError
from downrange.admin.offset_plan import Target, TargetKind
from downrange.admin.reading import Span, TopicReader
from downrange.client.listeners import Batch, ConcurrentContext, ConsumeStatus
from downrange.client.message import ReceivedMessage
from downrange.client.producer import Producer
from downrange.client.session_table import SessionTable
from downrange.model.topics import MessageQueue
from downrange.testing.virtual_time import run

EARLIEST = Target(TargetKind.EARLIEST)


def test_a_message_is_found_by_each_of_its_names(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path, broker_names=("a", "b")) as site, admin_of(site) as admin:
            await site.create("orders")
            await site.send("orders", b"1", broker="a", properties="KEYS\x01k1 k2\x02")
            await site.send("orders", b"2", broker="b", properties="KEYS\x01k2\x02")
            both = await admin.messages.by_key("orders", "k2")
            assert [message.body for message in both] == [b"1", b"2"]
            assert [message.broker_name for message in both] == ["a", "b"]
            (newest,) = await admin.messages.by_key("orders", "k2", count_max=1)
            assert newest.body == b"2"
            assert await admin.messages.by_key("orders", "k3") == []
            by_name = await admin.messages.by_id("KEY00000002", "orders")
            assert by_name.body == b"2"
            by_place = await admin.messages.by_id(both[0].offset_message_id)
            assert by_place.body == b"1"
            assert (await admin.messages.by_id(both[0].offset_message_id, "orders")).body == b"1"
            with pytest.raises(NothingThereError, match="name the topic with -t"):
                await admin.messages.by_id("KEY00000002")
            with pytest.raises(NothingThereError, match="can not find message by the offset"):
                await admin.messages.by_id("7F00000100002A9F00000000000FFFFF")
            with pytest.raises(NothingThereError, match="the id names the broker 127"):
                await admin.messages.by_id("7F00000100002AF70000000000000000")
            with pytest.raises(NothingThereError, match="topic 'nix' does not exist"):
                await admin.messages.by_id("KEY00000002", "nix")

    run(main())


async def bodies(reader: TopicReader, start: Target) -> list[bytes]:
    return [message.body async for message in reader.read(await reader.spans(start))]


def test_a_topic_is_read_in_the_order_of_time_over_queues_and_brokers(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path, broker_names=("a", "b")) as site, admin_of(site) as admin:
            await site.create("orders", 2)
            for number in range(90):
                broker = "ab"[number % 2]
                await site.send("orders", b"%d" % number, number // 2 % 2, broker=broker)
                await pass_time(0.01)
            everything = [b"%d" % number for number in range(90)]
            reader = TopicReader(admin.session, "orders")
            assert await bodies(reader, EARLIEST) == everything
            assert await bodies(reader, Target(TargetKind.LATEST)) == []
            assert await bodies(reader, Target(TargetKind.SHIFT, -1)) == everything[-4:]
            one = TopicReader(admin.session, "orders", queue_ids=[1], broker="b")
            assert await bodies(one, Target(TargetKind.OFFSET, 20)) == [b"83", b"87"]
            with pytest.raises(NothingThereError, match="no such queue"):
                await TopicReader(admin.session, "orders", queue_ids=[7]).queues()

    run(main())


def test_tags_choose_and_a_stretch_ends_where_it_is_told_to(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, admin_of(site) as admin:
            await site.create("orders")
            for number in range(40):
                tag = "even" if number % 2 == 0 else "odd"
                await site.send("orders", b"%d" % number, properties=f"TAGS\x01{tag}\x02")
            reader = TopicReader(admin.session, "orders", tags="odd")
            queue = MessageQueue("orders", "b1", 0)
            found = [message.body async for message in reader.read({queue: Span(30, 36)})]
            assert found == [b"31", b"33", b"35"]
            none = TopicReader(admin.session, "orders", tags="nix")
            assert await bodies(none, EARLIEST) == []

    run(main())


def test_following_hands_over_what_comes_until_it_is_enough(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path, broker_names=("a", "b")) as site, admin_of(site) as admin:
            await site.create("orders")
            reader = TopicReader(admin.session, "orders")
            seen: list[bytes] = []

            def take(messages: Sequence[ReceivedMessage]) -> bool:
                seen.extend(message.body for message in messages)
                return len(seen) < 3

            offsets = dict.fromkeys(await reader.queues(), 0)
            following = asyncio.ensure_future(reader.follow(offsets, take))
            for number in range(3):
                await pass_time(20)  # longer than a broker holds a pull
                await site.send("orders", b"%d" % number, broker="ab"[number % 2])
            await asyncio.wait_for(following, 60)
            assert seen == [b"0", b"1", b"2"]

    run(main())


def test_following_survives_a_broker_that_is_away(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, admin_of(site) as admin:
            await site.create("orders")
            reader = TopicReader(admin.session, "orders")
            seen: list[bytes] = []

            def take(messages: Sequence[ReceivedMessage]) -> bool:
                seen.extend(message.body for message in messages)
                return False

            offsets = dict.fromkeys(await reader.queues(), 0)
            following = asyncio.ensure_future(reader.follow(offsets, take))
            await pass_time(1)
            await site.stop_broker("b1")
            await pass_time(5)
            await site.start_broker("b1")
            await site.send("orders", b"late")
            await asyncio.wait_for(following, 60)
            assert seen == [b"late"]

    run(main())


async def _refuse(batch: Batch, context: ConcurrentContext) -> ConsumeStatus:
    del batch, context
    return ConsumeStatus.RECONSUME_LATER


@pytest.mark.parametrize("to", list(ResendTo))
def test_dead_letters_are_listed_and_come_again(tmp_path: Path, to: ResendTo) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, admin_of(site) as admin:
            await site.create("orders")
            assert await admin.dead_letters.groups() == []
            with pytest.raises(NothingThereError, match="group 'g' has no dead letters"):
                await admin.dead_letters.of("g")
            failing = site.consumer("g", max_reconsume_times=0)
            failing.subscribe("orders", "*")
            failing.listen(_refuse)
            await failing.start()
            await site.send("orders", b"bad", properties="TAGS\x01t\x02KEYS\x01k\x02")
            reader = TopicReader(admin.session, "%DLQ%g")
            for _ in range(60):
                await pass_time(1)
                if "%DLQ%g" in await admin.topics.names():
                    break
            await failing.shutdown()
            (letters,) = await admin.dead_letters.groups()
            assert (letters.group, letters.topic, letters.count) == ("g", "%DLQ%g", 1)
            (letter,) = [one async for one in reader.read(await reader.spans(EARLIEST))]
            assert origin_topic(letter) == "orders"
            again = resent(letter, "g", to)
            assert again.topic == ("orders" if to is ResendTo.TOPIC else "%RETRY%g")
            others, mine = Seen(), Seen()
            consumers = [site.consumer("other"), site.consumer("g")]
            for consumer, seen in zip(consumers, (others, mine), strict=True):
                consumer.subscribe("orders", "*")
                consumer.listen(seen)
                await consumer.start()
            await until(lambda: len(others.bodies) == 1)
            sessions = SessionTable(nonce=2, around=site.surroundings())
            async with Producer("p", client=site.client_settings(), sessions=sessions) as producer:
                await producer.send(again)
            await until(lambda: len(mine.bodies) == 1)
            await pass_time(1)
            assert len(others.bodies) == (2 if to is ResendTo.TOPIC else 1)
            (message,) = mine.messages
            assert (message.body, message.topic, message.tag, message.keys) == (
                b"bad", "orders", "t", ["k"],
            )  # fmt: skip
            assert message.reconsume_times == 0
            for consumer in consumers:
                await consumer.shutdown()

    run(main())
