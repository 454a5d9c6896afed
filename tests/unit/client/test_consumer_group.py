"""Members of a group come, leave and die; the others share what is there."""

from collections import Counter
from pathlib import Path

import msgspec
from unit.broker.one_broker import pass_time
from unit.client.consuming import Seen, Site, until

from downrange.client.allocation import AllocationStrategy, Averagely, ByCircle
from downrange.client.broker_calls import PullAnswer
from downrange.client.push_consumer import PushConsumer
from downrange.model.topics import MessageQueue
from downrange.testing.virtual_time import run


async def _join(
    site: Site, strategy: AllocationStrategy | None = None
) -> tuple[PushConsumer, Seen]:
    consumer, seen = site.consumer(strategy=strategy or Averagely()), Seen()
    consumer.subscribe("orders")
    consumer.listen(seen)
    await consumer.start()
    return consumer, seen


def _orders(consumer: PushConsumer) -> set[int]:
    return {queue.queue_id for queue in consumer.queues if queue.topic == "orders"}


def test_members_share_the_queues_and_each_message_has_one_consumer(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 8)
            members = [await _join(site, ByCircle()) for _ in range(3)]
            await pass_time(3)
            assert [_orders(one) for one, _ in members] == [{0, 3, 6}, {1, 4, 7}, {2, 5}]
            sent = await site.send_many("orders", 80, queues=8)
            await pass_time(2)
            assert Counter(body for _, seen in members for body in seen.bodies) == Counter(sent)
            for consumer, _ in members:
                await consumer.shutdown()

    run(main())


def test_a_member_that_joins_gets_its_share_at_once_and_nothing_comes_twice(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 4)
            first, seen_first = await _join(site)
            changes: list[tuple[str, int, int]] = []
            first.on_queues_changed = lambda topic, queues, mine: changes.append(
                (topic, len(queues), len(mine))
            )
            await pass_time(3)
            await site.send_many("orders", 40, queues=4)
            await pass_time(1)
            second, seen_second = await _join(site)
            joined_s = site.clock.monotonic_s()
            await until(lambda: _orders(second) == {2, 3}, 1)
            assert site.clock.monotonic_s() - joined_s < 1
            assert _orders(first) == {0, 1}
            assert ("orders", 4, 2) in changes
            await site.send_many("orders", 40, queues=4, first=40)
            await pass_time(2)
            assert len(seen_first.bodies + seen_second.bodies) == 80
            assert len(set(seen_first.bodies + seen_second.bodies)) == 80
            await first.shutdown()
            await second.shutdown()

    run(main())


def test_the_queues_of_a_member_that_leaves_are_consumed_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 4)
            first, seen_first = await _join(site)
            second, seen_second = await _join(site)
            await pass_time(3)
            await site.send_many("orders", 40, queues=4)
            await pass_time(1)
            await first.shutdown()
            left_s = site.clock.monotonic_s()
            sent = await site.send_many("orders", 40, queues=4, first=40)
            await until(lambda: set(sent) <= set(seen_second.bodies), 1)
            assert site.clock.monotonic_s() - left_s < 1
            assert len(seen_first.bodies + seen_second.bodies) == 80
            await second.shutdown()

    run(main())


def test_the_queues_of_a_member_that_dies_are_consumed_within_a_second(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 4)
            first, seen_first = await _join(site)
            second, seen_second = await _join(site)
            await pass_time(15)
            await site.send_many("orders", 40, queues=4)
            await pass_time(6)  # so that all offsets are kept
            site.kill(first)
            dead_s = site.clock.monotonic_s()
            sent = await site.send_many("orders", 40, queues=4, first=40)
            await until(lambda: set(sent) <= set(seen_second.bodies), 1)
            assert site.clock.monotonic_s() - dead_s < 1
            assert _orders(second) == {0, 1, 2, 3}
            assert len(seen_first.bodies + seen_second.bodies) == 80
            await second.shutdown()

    run(main())


def test_queues_that_are_added_are_consumed(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 2)
            consumer, seen = await _join(site)
            await pass_time(3)
            await site.create("orders", 6)
            await site.send("orders", b"x", 5)
            await until(lambda: seen.bodies == [b"x"], 31)
            assert _orders(consumer) == set(range(6))
            await consumer.shutdown()

    run(main())


def test_a_broker_that_forgot_the_group_does_not_cost_the_queues(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 2)
            consumer, seen = await _join(site)
            await pass_time(3)
            queues = consumer.queues
            session = consumer._running().session
            await session.calls.unregister(
                site.broker_address("b1"), consumer.client_id, consumer_group="g"
            )
            assert await site.members("g") == []
            consumer.rebalance_soon()
            await pass_time(0.5)
            assert consumer.queues == queues
            assert await site.members("g") == [consumer.client_id], "it was greeted anew"
            await site.send("orders", b"x")
            await until(lambda: seen.bodies == [b"x"], 4)
            await consumer.shutdown()

    run(main())


def test_a_replica_is_asked_when_the_broker_suggests_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            consumer, seen = await _join(site)
            await pass_time(1)
            calls, puller = consumer._running().session.calls, consumer._running().puller
            asked: list[int] = []
            pull, readable = calls.pull, puller._calls.readable

            async def suggest_a_replica(*args: object, **options: object) -> PullAnswer:
                answer = await pull(*args, **options)  # type: ignore[arg-type]
                header = msgspec.structs.replace(answer.header, suggest_which_broker_id=1)
                return answer._replace(header=header)

            async def remember(queue: MessageQueue, broker_id: int) -> tuple[str, bool]:
                asked.append(broker_id)
                return await readable(queue, broker_id)

            calls.pull = suggest_a_replica  # type: ignore[method-assign]
            puller._calls.readable = remember  # type: ignore[method-assign]
            await pass_time(20)
            calls.pull = pull  # type: ignore[method-assign]
            await pass_time(40)
            assert 1 in asked, "there is none, so the master was taken"
            assert puller.broker_id(MessageQueue("orders", "b1", 0)) == 0
            await site.send("orders", b"x")
            await until(lambda: seen.bodies == [b"x"], 2)
            await consumer.shutdown()

    run(main())
