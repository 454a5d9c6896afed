"""A push consumer against real brokers in memory: what it consumes, from where, in batches."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from unit.broker.one_broker import pass_time
from unit.client.consuming import Seen, Site, until

from downrange.broker.settings import BrokerSettings
from downrange.client.errors import (
    BrokerRefusal,
    ClientStateError,
    DuplicateGroupError,
    InvalidMessageError,
)
from downrange.client.listeners import OnTheLoop
from downrange.client.push_consumer import PushConsumer
from downrange.client.queue_calls import QueueCalls
from downrange.client.session import ServiceState
from downrange.client.start_offset import ConsumeFromWhere
from downrange.model.topics import MessageQueue
from downrange.testing.virtual_time import run

ORDERS = MessageQueue("orders", "b1", 0)


async def _listening(consumer: PushConsumer, tags: str = "*", topic: str = "orders") -> Seen:
    seen = Seen()
    consumer.subscribe(topic, tags)
    consumer.listen(seen)
    await consumer.start()
    return seen


def test_everything_is_consumed_once_and_committed(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path, "ab") as site:
            await site.create("orders", 4)
            sent = await site.send_many("orders", 100, queues=4, broker="a")
            sent += await site.send_many("orders", 100, queues=4, broker="b", first=100)
            consumer = site.consumer(consume_batch_size=8)
            seen = await _listening(consumer)
            await until(lambda: len(seen.messages) == 200)
            await pass_time(20)
            await consumer.shutdown()
            assert sorted(seen.bodies) == sorted(sent)
            assert max(seen.batches) == 8
            consumer = site.consumer()
            again = await _listening(consumer)
            await pass_time(30)
            await consumer.shutdown()
            assert again.messages == []

    run(main())


def test_by_default_messages_come_one_by_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 40)
            consumer = site.consumer()
            seen = await _listening(consumer)
            await until(lambda: len(seen.messages) == 40)
            assert set(seen.batches) == {1}
            await consumer.shutdown()

    run(main())


def test_only_wanted_tags_come_also_when_their_hashes_are_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            for tag in ("Aa", "BB", "other", "Aa"):  # Aa and BB have one Java hash
                await site.send("orders", tag.encode(), properties=f"TAGS\x01{tag}\x02")
            consumer = site.consumer()
            seen = await _listening(consumer, "Aa || third")
            await until(lambda: len(seen.messages) == 2)
            await pass_time(20)
            assert seen.bodies == [b"Aa", b"Aa"]
            assert consumer.consumed_offsets("orders") == {MessageQueue("orders", "b1", 0): 4}
            await consumer.shutdown()

    run(main())


def test_sql_chooses_by_properties_and_is_compiled_at_the_start(tmp_path: Path) -> None:
    async def main() -> None:
        settings = BrokerSettings(sql92_enabled=True)
        async with Site(tmp_path, broker_settings=settings) as site:
            await site.create("orders")
            for price in (5, 50, 500):
                await site.send("orders", b"%d" % price, properties=f"price\x01{price}\x02")
            seen = Seen()
            consumer = site.consumer()
            consumer.subscribe_sql("orders", "price BETWEEN 10 AND 100")
            consumer.listen(seen)
            await consumer.start()
            await until(lambda: bool(seen.messages))
            await pass_time(5)
            assert seen.bodies == [b"50"]
            await consumer.shutdown()
            wrong = site.consumer("other")
            wrong.subscribe_sql("orders", "price BETWEEN")
            wrong.listen(seen)
            with pytest.raises(BrokerRefusal):
                await wrong.start()
            assert wrong.state is ServiceState.START_FAILED

    run(main())


@pytest.mark.parametrize(
    ("where", "expected", "reason"),
    [
        (ConsumeFromWhere.FIRST_OFFSET, [b"0", b"1", b"2", b"3", b"new"], "CONSUME_FROM_FIRST"),
        (ConsumeFromWhere.TIMESTAMP, [b"2", b"3", b"new"], "first message of a time"),
        (ConsumeFromWhere.LAST_OFFSET, [b"new"], "the end of the queue"),
    ],
)
def test_a_new_group_begins_where_it_was_told_and_says_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: ConsumeFromWhere,
    expected: list[bytes],
    reason: str,
) -> None:
    async def nothing(_calls: QueueCalls, _queue: MessageQueue) -> None:
        """What a broker says once the first messages are out of its memory."""

    monkeypatch.setattr(QueueCalls, "query_offset", nothing)

    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 2)
            await pass_time(60)
            after_ms = site.clock.wall_ms()
            await site.send_many("orders", 2, first=2)
            consumer = site.consumer(consume_from_where=where, consume_timestamp_ms=after_ms)
            seen = await _listening(consumer)
            await pass_time(2)
            await site.send("orders", b"new")
            await until(lambda: b"new" in seen.bodies)
            assert seen.bodies == expected
            assert reason in consumer.start_offsets[ORDERS].reason
            await consumer.shutdown()

    run(main())


def test_a_group_that_begins_on_a_young_queue_gets_everything(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 3)
            consumer = site.consumer(consume_from_where=ConsumeFromWhere.LAST_OFFSET)
            seen = await _listening(consumer)
            await until(lambda: len(seen.messages) == 3)
            assert "the queue is young" in consumer.start_offsets[ORDERS].reason
            await consumer.shutdown()

    run(main())


def test_a_suspended_consumer_rests_until_it_is_resumed(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send("orders", b"before")
            consumer = site.consumer()
            seen = await _listening(consumer)
            await until(lambda: seen.bodies == [b"before"])
            consumer.suspend()
            await pass_time(16)  # the pull that the broker holds may still bring something
            await site.send("orders", b"later")
            await pass_time(40)
            assert seen.bodies == [b"before"]
            assert consumer.queues
            consumer.resume()
            await until(lambda: seen.bodies == [b"before", b"later"], 1.2)
            await consumer.shutdown()

    run(main())


def test_topics_can_be_added_and_left_while_it_runs(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.create("bills")
            consumer = site.consumer()
            seen = await _listening(consumer)
            await pass_time(5)
            consumer.subscribe("bills", "paid")
            await site.send("bills", b"1", properties="TAGS\x01paid\x02")
            await site.send("bills", b"2", properties="TAGS\x01open\x02")
            await until(lambda: seen.bodies == [b"1"], 2)
            assert seen.messages[0].topic == "bills"
            consumer.unsubscribe("bills")
            await until(lambda: "bills" not in {queue.topic for queue in consumer.queues}, 2)
            await site.send("bills", b"3", properties="TAGS\x01paid\x02")
            await pass_time(20)
            assert seen.bodies == [b"1"]
            await consumer.shutdown()

    run(main())


def test_names_of_a_namespace_are_seen_by_brokers_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("NS%orders")
            await site.send("NS%orders", b"1")
            client = replace(site.client_settings(), namespace="NS", instance_name="1")
            consumer = site.consumer("billing", client=client)
            seen = await _listening(consumer)
            await until(lambda: bool(seen.messages))
            assert seen.messages[0].topic == "orders"
            assert consumer.group == "NS%billing"
            assert await consumer.fetch_queues("orders") == (MessageQueue("NS%orders", "b1", 0),)
            ids = await consumer._running().calls.consumer_ids("NS%orders")
            assert ids[0] == [consumer.client_id]
            await consumer.shutdown()

    run(main())


def test_wrong_use_gets_one_clear_error(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            for group, text in (
                ("", "blank"),
                ("DEFAULT_CONSUMER", "name of its own"),
                ("a b", "cha"),
            ):
                with pytest.raises(InvalidMessageError, match=text):
                    site.consumer(group)
            consumer = site.consumer()
            with pytest.raises(ClientStateError, match="no listener"):
                await consumer.start()
            with pytest.raises(ClientStateError, match="not started"):
                consumer.suspend()
            await _listening(consumer)
            with pytest.raises(ClientStateError, match="happens once"):
                await consumer.start()
            with pytest.raises(ClientStateError, match="RUNNING"):
                consumer.listen(Seen())
            twin = PushConsumer(
                "g", client=consumer._client, sessions=consumer._sessions, threads=OnTheLoop()
            )
            twin.listen(Seen())
            with pytest.raises(DuplicateGroupError, match="another instance_name"):
                await twin.start()
            await consumer.shutdown()
            await consumer.shutdown()
            assert consumer.state is ServiceState.SHUTDOWN_ALREADY

    run(main())


def test_a_consumer_waits_for_name_servers_and_topics_that_come_later(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.stop_name_server()
            consumer = site.consumer()
            started_s = site.clock.monotonic_s()
            seen = await _listening(consumer)
            assert site.clock.monotonic_s() - started_s < 10
            await site.start_name_server()
            await pass_time(40)
            await site.create("orders")
            await site.send("orders", b"1")
            await until(lambda: bool(seen.messages), 70)
            await consumer.shutdown()

    run(main())


def test_a_consumer_that_leaves_says_so_and_stops_everything(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 4)
            await site.send_many("orders", 10, queues=4)
            before = len(asyncio.all_tasks())
            consumer = site.consumer()
            seen = await _listening(consumer)
            await until(lambda: len(seen.messages) == 10)
            await consumer.shutdown()
            await pass_time(1)
            assert len(asyncio.all_tasks()) == before
            assert await site.members("g") == []

    run(main())
