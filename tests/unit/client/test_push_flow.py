"""When a push consumer pulls and when not: full, wrong offsets, connections and brokers lost."""

from pathlib import Path

from unit.broker.one_broker import pass_time
from unit.client.consuming import Seen, Site, until

from downrange.client.listeners import Batch, ConcurrentContext
from downrange.client.push_consumer import PushConsumer
from downrange.model.topics import MessageQueue
from downrange.testing.virtual_time import run

ORDERS = MessageQueue("orders", "b1", 0)


async def _start(consumer: PushConsumer, listener: Seen) -> None:
    consumer.subscribe("orders")
    consumer.listen(listener)
    await consumer.start()


def test_a_slow_listener_holds_the_pull_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 300)
            counts: list[int] = []

            async def listener(_: Batch, __: ConcurrentContext) -> None:
                counts.append(consumer._running().rebalance.working[ORDERS].count)
                await pass_time(0.1)

            consumer = site.consumer(pull_threshold_for_queue=50, consume_threads_max=20)
            consumer.subscribe("orders")
            consumer.listen(listener)
            await consumer.start()
            await until(lambda: len(counts) == 300, 60)
            assert 50 < max(counts) <= 50 + 32
            assert consumer._running().pulls.held_back > 0
            await consumer.shutdown()

    run(main())


def test_a_topics_limit_is_shared_by_the_queues_that_are_ours(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 4)
            consumer = site.consumer(pull_threshold_for_topic=500, pull_threshold_mib_for_topic=3)
            await _start(consumer, Seen())
            await until(lambda: len(consumer.queues) == 5)  # and one of the retry topic
            limits = consumer._running().pulls.limits
            assert (limits.count_max, limits.size_mib_max) == (100, 1)
            await consumer.shutdown()

    run(main())


def test_an_offset_that_the_broker_does_not_have_is_repaired(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 5)
            first = site.consumer()
            await _start(first, Seen())
            await until(lambda: first.consumed_offsets("orders").get(ORDERS) == 5)
            first._running().offsets.update(ORDERS, 1_000_000, increase_only=False)
            await first.shutdown()
            consumer = site.consumer()
            seen = Seen()
            await _start(consumer, seen)
            await pass_time(3)
            await site.send("orders", b"after")
            await until(lambda: b"after" in seen.bodies, 5)
            await pass_time(10)
            assert consumer.consumed_offsets("orders")[ORDERS] == 6
            await consumer.shutdown()

    run(main())


def test_a_broken_connection_costs_less_than_a_second(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 4)
            consumer = site.consumer()
            seen = Seen()
            await _start(consumer, seen)
            await pass_time(30)
            for _ in range(5):
                seen.messages.clear()
                site.network.cut(site.broker_port("b1"))
                cut_s = site.clock.monotonic_s()
                await pass_time(0)  # our own connection is cut, too
                await site.send_many("orders", 8, queues=4)
                await until(lambda: len(seen.messages) == 8, 1)
                assert site.clock.monotonic_s() - cut_s < 1
                await pass_time(20)
                assert len(seen.messages) == 8
            await consumer.shutdown()

    run(main())


def test_a_broker_that_comes_back_is_consumed_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path, "ab") as site:
            await site.create("orders", 2)
            consumer = site.consumer()
            seen = Seen()
            await _start(consumer, seen)
            await site.send("orders", b"1", broker="a")
            await until(lambda: seen.bodies == [b"1"])
            await site.stop_broker("a")
            await site.send("orders", b"2", broker="b")
            await until(lambda: seen.bodies == [b"1", b"2"], 2)
            await pass_time(60)
            await site.start_broker("a")
            await site.send("orders", b"3", broker="a")
            await until(lambda: b"3" in seen.bodies, 40)
            await consumer.shutdown()

    run(main())


def test_a_pull_loop_that_is_lost_begins_anew(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            consumer = site.consumer()
            seen = Seen()
            await _start(consumer, seen)
            await until(lambda: ORDERS in consumer.queues)
            consumer._running().rebalance.table[ORDERS].stop_pulling()
            await pass_time(100)
            await site.send("orders", b"x")
            await pass_time(15)
            assert seen.bodies == []
            await until(lambda: seen.bodies == [b"x"], 50)
            await consumer.shutdown()

    run(main())
