"""A pull consumer: the program says which queue, from where, how many."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from unit.broker.one_broker import pass_time
from unit.client.consuming import Seen, Site, until

from downrange.broker.settings import BrokerSettings
from downrange.client.consumer_settings import MessageModel, PullConsumerSettings
from downrange.client.errors import ClientStateError, NoRouteError, RocketMQError
from downrange.client.pull_consumer import PullConsumer
from downrange.client.pulling import PullStatus
from downrange.client.session import ServiceState
from downrange.client.session_table import SessionTable
from downrange.model.topics import MessageQueue
from downrange.runtime.blocking import InLine
from downrange.testing.virtual_time import run

ORDERS = MessageQueue("orders", "b1", 0)


def _consumer(site: Site, group: str = "g", **changes: object) -> PullConsumer:
    return PullConsumer(
        group,
        client=replace(site.client_settings(), instance_name=group),
        settings=PullConsumerSettings(**changes),  # type: ignore[arg-type]
        sessions=SessionTable(nonce=1, around=site.surroundings()),
        blocking=InLine(),
    )


def test_each_status_says_where_to_go_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, _consumer(site) as consumer:
            await site.create("orders", 2)
            for number in range(40):
                tag = "even" if number % 2 == 0 else "odd"
                await site.send("orders", b"%d" % number, properties=f"TAGS\x01{tag}\x02")
            assert await consumer.fetch_queues("orders") == (
                ORDERS,
                MessageQueue("orders", "b1", 1),
            )
            found = await consumer.pull(ORDERS, 0)
            assert (found.status, found.next_offset) == (PullStatus.FOUND, 32)
            assert (found.min_offset, found.max_offset) == (0, 40)
            assert len(found.messages) == 32
            found = await consumer.pull(ORDERS, 32, count_max=3)
            assert [message.body for message in found.messages] == [b"32", b"33", b"34"]
            found = await consumer.pull(ORDERS, 0, tags="odd", count_max=2)
            assert [message.body for message in found.messages] == [b"1", b"3"]
            found = await consumer.pull(ORDERS, 0, tags="none")
            assert (found.status, found.next_offset) == (PullStatus.NO_MATCHED_MSG, 40)
            assert found.messages == []
            found = await consumer.pull(ORDERS, 40)
            assert (found.status, found.next_offset) == (PullStatus.NO_NEW_MSG, 40)
            found = await consumer.pull(ORDERS, 4_000)
            assert (found.status, found.next_offset) == (PullStatus.OFFSET_ILLEGAL, 40)

    run(main())


def test_sql_chooses_and_tags_and_sql_exclude_each_other(tmp_path: Path) -> None:
    async def main() -> None:
        settings = BrokerSettings(sql92_enabled=True)
        async with (
            Site(tmp_path, broker_settings=settings) as site,
            _consumer(site) as consumer,
        ):
            await site.create("orders")
            for price in (5, 50):
                await site.send("orders", b"%d" % price, properties=f"price\x01{price}\x02")
            found = await consumer.pull(ORDERS, 0, sql="price > 10")
            assert [message.body for message in found.messages] == [b"50"]
            with pytest.raises(RocketMQError, match="not both"):
                await consumer.pull(ORDERS, 0, sql="price > 10", tags="a")

    run(main())


def test_a_blocking_pull_waits_for_the_next_message(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, _consumer(site) as consumer:
            await site.create("orders")
            await site.send("orders", b"0")
            started_s = site.clock.monotonic_s()
            found = await consumer.pull_blocking(ORDERS, 1)
            assert found.status is PullStatus.NO_NEW_MSG
            assert 19 < site.clock.monotonic_s() - started_s < 26
            waiting = asyncio.ensure_future(consumer.pull_blocking(ORDERS, 1))
            await pass_time(3)
            sent_s = site.clock.monotonic_s()
            await site.send("orders", b"1")
            found = await waiting
            assert [message.body for message in found.messages] == [b"1"]
            assert site.clock.monotonic_s() - sent_s < 0.2

    run(main())


def test_offsets_move_as_the_program_says_and_are_kept_for_the_group(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 5)
            async with _consumer(site) as consumer:
                consumer.update_consumed_offset(ORDERS, 3)
                assert await consumer.consumed_offset(ORDERS) == 3
                assert await consumer.consumed_offset(ORDERS, from_store=True) == 0
                consumer.update_consumed_offset(ORDERS, 4)
                await consumer.persist(ORDERS)
                assert await consumer.consumed_offset(ORDERS, from_store=True) == 4
                consumer.update_consumed_offset(ORDERS, 2)
                await pass_time(16)
                assert await consumer.consumed_offset(ORDERS, from_store=True) == 2
                consumer.update_consumed_offset(ORDERS, 5)
            async with _consumer(site) as consumer:
                assert await consumer.consumed_offset(ORDERS) == 5

    run(main())


def test_a_broadcasting_consumer_keeps_offsets_in_its_file(tmp_path: Path) -> None:
    changes = {"message_model": MessageModel.BROADCASTING, "offsets_folder": str(tmp_path / "o")}

    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            async with _consumer(site, **changes) as consumer:
                assert await consumer.consumed_offset(ORDERS) is None
                consumer.update_consumed_offset(ORDERS, 3)
            async with _consumer(site, **changes) as consumer:
                assert await consumer.consumed_offset(ORDERS) == 3

    run(main())
    assert len(list((tmp_path / "o").rglob("offsets.json"))) == 1


def test_the_bounds_of_a_queue_and_its_times_can_be_asked(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, _consumer(site) as consumer:
            await site.create("orders")
            first_ms = site.clock.wall_ms()
            await site.send("orders", b"0")
            await pass_time(10)
            later_ms = site.clock.wall_ms()
            await site.send("orders", b"1")
            assert (await consumer.min_offset(ORDERS), await consumer.max_offset(ORDERS)) == (0, 2)
            assert await consumer.offset_at(ORDERS, later_ms) == 1
            assert abs(await consumer.earliest_store_time_ms(ORDERS) - first_ms) < 1000

    run(main())


def test_a_message_can_be_given_back_to_the_group(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send("orders", b"x")
            async with _consumer(site) as consumer:
                found = await consumer.pull(ORDERS, 0)
                assert await consumer.send_back(found.messages[0], ORDERS, 1)
            seen, push = Seen(), site.consumer("g")
            push.subscribe("other")
            push.listen(seen)
            await push.start()
            await until(lambda: seen.bodies == [b"x"], 30)
            assert (seen.messages[0].topic, seen.messages[0].reconsume_times) == ("orders", 1)
            await push.shutdown()

    run(main())


def test_brokers_show_who_reads_a_topic(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site, _consumer(site) as consumer:
            await site.create("orders")
            await site.send("orders", b"x")
            await consumer.pull(ORDERS, 0)
            await pass_time(1)
            assert await site.members("g") == ["10.0.0.1@g"]

    run(main())


def test_wrong_use_gets_one_clear_error(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            consumer = _consumer(site)
            with pytest.raises(ClientStateError, match="start it first"):
                await consumer.pull(ORDERS, 0)
            await consumer.start()
            with pytest.raises(ClientStateError, match="started once"):
                await consumer.start()
            for offset, count in ((-1, 1), (0, 0)):
                with pytest.raises(RocketMQError, match="offsets begin at 0"):
                    await consumer.pull(ORDERS, offset, count_max=count)
            with pytest.raises(NoRouteError, match="nothing"):
                await consumer.fetch_queues("nothing")
            with pytest.raises(RocketMQError):
                await consumer.pull(MessageQueue("orders", "nobody", 0), 0)
            await consumer.shutdown()
            await consumer.shutdown()
            assert consumer.state is ServiceState.SHUTDOWN_ALREADY

    run(main())
