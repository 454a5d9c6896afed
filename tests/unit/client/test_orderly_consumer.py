"""Consuming in order: one call a queue at a time, locks, rests, commits and roll-backs."""

import asyncio
from pathlib import Path

import pytest
from unit.broker.one_broker import pass_time
from unit.client.consuming import Seen, Site, until

from downrange.client.listeners import Batch, OrderlyContext, OrderlyListener, OrderlyStatus
from downrange.client.message import Message
from downrange.client.push_consumer import PushConsumer
from downrange.model.topics import MessageQueue
from downrange.testing.virtual_time import run

ORDERS = MessageQueue("orders", "b1", 0)
SUSPEND = OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


async def _start(consumer: PushConsumer, listener: OrderlyListener) -> None:
    consumer.subscribe("orders")
    consumer.listen_in_order(listener)
    await consumer.start()


def test_a_queue_has_one_call_at_a_time_and_queues_run_side_by_side(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 4)
            sent = await site.send_many("orders", 80, queues=4)
            active: set[int] = set()
            most, seen = [0], Seen()

            async def listener(batch: Batch, context: OrderlyContext) -> None:
                assert context.queue.queue_id not in active
                active.add(context.queue.queue_id)
                most.append(len(active))
                await pass_time(0.02)
                seen.take(batch)
                active.remove(context.queue.queue_id)

            consumer = site.consumer(consume_batch_size=3)
            await _start(consumer, listener)
            await until(lambda: len(seen.messages) == 80)
            for queue in range(4):
                got = [one.body for one in seen.messages if one.queue_id == queue]
                assert got == [body for body in sent if int(body) % 4 == queue]
            assert max(most) == 4
            await consumer.shutdown()

    run(main())


def test_the_number_of_calls_is_bounded(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 8)
            await site.send_many("orders", 80, queues=8)
            active, most, seen = [0], [0], Seen()

            async def listener(batch: Batch, _: OrderlyContext) -> None:
                active[0] += 1
                most.append(active[0])
                await pass_time(0.01)
                seen.take(batch)
                active[0] -= 1

            consumer = site.consumer(consume_threads_min=2, consume_threads_max=2)
            await _start(consumer, listener)
            await until(lambda: len(seen.messages) == 80)
            assert max(most) == 2
            await consumer.shutdown()

    run(main())


@pytest.mark.parametrize(("suspend_ms", "rest_s"), [(None, 1.0), (200, 0.2), (1, 0.01)])
def test_a_batch_that_failed_comes_again_before_all_others(
    tmp_path: Path, suspend_ms: int | None, rest_s: float
) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 4)
            seen, times_s = Seen(), []

            async def listener(batch: Batch, context: OrderlyContext) -> OrderlyStatus:
                seen.take(batch)
                times_s.append(site.clock.monotonic_s())
                context.suspend_ms = suspend_ms
                if seen.bodies.count(b"1") == 1 and batch[0].body == b"1":
                    return SUSPEND
                if seen.bodies.count(b"2") == 1 and batch[0].body == b"2":
                    raise ValueError("bad")
                return OrderlyStatus.SUCCESS

            consumer = site.consumer()
            await _start(consumer, listener)
            await until(lambda: len(seen.messages) == 6)
            assert seen.bodies == [b"0", b"1", b"1", b"2", b"2", b"3"]
            for first in (1, 3):
                assert times_s[first + 1] - times_s[first] == pytest.approx(rest_s)
            assert seen.messages[2].reconsume_times == 1
            assert consumer.consumed_offsets("orders")[ORDERS] == 4
            await consumer.shutdown()

    run(main())


def test_after_too_many_tries_a_message_makes_room_for_the_next(tmp_path: Path) -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 2)
            seen = Seen()

            async def listener(batch: Batch, _: OrderlyContext) -> OrderlyStatus:
                seen.take(batch)
                return SUSPEND if batch[0].body == b"0" else OrderlyStatus.SUCCESS

            consumer = site.consumer(max_reconsume_times=2)
            consumer._retry_sender = send
            await _start(consumer, listener)
            await until(lambda: b"1" in seen.bodies)
            assert seen.bodies == [b"0", b"0", b"0", b"1"]
            assert consumer.consumed_offsets("orders")[ORDERS] == 2
            await consumer.shutdown()

    run(main())
    (message,) = sent
    assert message.topic == "%RETRY%g"
    assert message.properties["MAX_RECONSUME_TIMES"] == "2"
    assert message.properties["RECONSUME_TIME"] == "3"


def test_a_message_with_too_many_tries_ends_in_the_dead_letters(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send("orders", b"0")

            async def listener(_: Batch, __: OrderlyContext) -> OrderlyStatus:
                return SUSPEND

            consumer = site.consumer(max_reconsume_times=1)
            await _start(consumer, listener)
            await until(lambda: consumer.consumed_offsets("orders").get(ORDERS) == 1)
            undertaker, graves = site.consumer("undertaker"), Seen()
            undertaker.subscribe("%DLQ%g")
            undertaker.listen(graves)
            await undertaker.start()
            await until(lambda: graves.bodies == [b"0"])
            await undertaker.shutdown()
            await consumer.shutdown()

    run(main())


def test_without_auto_commit_the_listener_decides_what_is_done(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 6)
            seen, commits = Seen(), []

            async def listener(batch: Batch, context: OrderlyContext) -> OrderlyStatus:
                context.auto_commit = False
                seen.take(batch)
                commits.append(consumer.consumed_offsets("orders").get(ORDERS))
                if batch[0].body == b"2":
                    return OrderlyStatus.COMMIT
                if batch[0].body == b"4" and seen.bodies.count(b"4") == 1:
                    return OrderlyStatus.ROLLBACK
                return OrderlyStatus.SUCCESS

            consumer = site.consumer()
            await _start(consumer, listener)
            await until(lambda: len(seen.messages) == 8)
            assert [int(body) for body in seen.bodies] == [0, 1, 2, 3, 4, 3, 4, 5]
            await pass_time(5)
            assert consumer.consumed_offsets("orders")[ORDERS] == 3
            assert commits[2:4] == [0, 3]
            await consumer.shutdown()
            again = site.consumer()
            rest = Seen()
            await _start(again, rest.in_order)
            await until(lambda: rest.bodies == [b"3", b"4", b"5"])
            await again.shutdown()

    run(main())


def test_commit_with_auto_commit_on_counts_as_success(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 3)
            seen = Seen()

            async def listener(batch: Batch, _: OrderlyContext) -> OrderlyStatus:
                seen.take(batch)
                return OrderlyStatus.ROLLBACK

            consumer = site.consumer()
            await _start(consumer, listener)
            await until(lambda: consumer.consumed_offsets("orders").get(ORDERS) == 3)
            assert len(seen.messages) == 3
            await consumer.shutdown()

    run(main())


def test_a_queue_is_handed_over_when_its_call_has_ended_and_nothing_comes_twice(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 2)
            log: list[tuple[str, int, bytes]] = []
            active: set[int] = set()

            def listener_of(name: str, call_s: float) -> OrderlyListener:
                async def listener(batch: Batch, context: OrderlyContext) -> None:
                    queue = context.queue.queue_id
                    assert queue not in active, "two members have one queue"
                    active.add(queue)
                    await pass_time(call_s)
                    log.extend((name, queue, message.body) for message in batch)
                    active.remove(queue)

                return listener

            first = site.consumer()
            await _start(first, listener_of("first", 2.0))
            await site.send_many("orders", 60, queues=2)
            await until(lambda: len(log) >= 4)
            second = site.consumer()
            await _start(second, listener_of("second", 0.01))
            await until(lambda: len(log) == 60, 120)
            for queue in range(2):
                got = [int(body) for _, number, body in log if number == queue]
                assert got == list(range(queue, 60, 2))
            assert {name for name, _, _ in log} == {"first", "second"}
            await first.shutdown()
            await second.shutdown()

    run(main())


def test_without_its_lock_a_queue_rests(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            seen = Seen()
            consumer = site.consumer()
            await _start(consumer, seen.in_order)
            await until(lambda: ORDERS in consumer.queues)
            held = consumer._running().rebalance.working[ORDERS]
            locks = consumer._running().calls
            await locks.unlock([ORDERS], wait=True)
            stranger = site.consumer("g")  # same group, takes the lock without being a member
            thief = stranger._sessions.acquire(stranger._client)
            await thief.start()
            address = site.broker_address("b1")
            assert await thief.calls.lock_queues(address, "g", "thief", [ORDERS])
            await pass_time(25)
            assert not held.is_locked
            await site.send("orders", b"1")
            await pass_time(30)
            assert seen.bodies == []
            await thief.calls.unlock_queues(address, "g", "thief", [ORDERS])
            await until(lambda: seen.bodies == [b"1"], 30)
            await thief.shutdown()
            await consumer.shutdown()

    run(main())


def test_a_consumer_that_cannot_renew_its_locks_stops_before_others_begin(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 400)
            times_s: list[float] = []

            async def listener(_: Batch, __: OrderlyContext) -> None:
                times_s.append(site.clock.monotonic_s())
                await pass_time(1)

            consumer = site.consumer(pull_batch_size=1024, shutdown_timeout_s=2)
            await _start(consumer, listener)
            await pass_time(22)
            for link in site.network.links_to(site.broker_port("b1")):
                link.is_deaf = True
            deaf_s = site.clock.monotonic_s()
            await pass_time(90)
            assert 25 < times_s[-1] - deaf_s < 32, "messages were here, the lock was not"
            await consumer.shutdown()

    run(main())


def test_a_member_that_leaves_gives_its_locks_back_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders", 4)
            first, second = site.consumer(), site.consumer()
            seen_first, seen_second = Seen(), Seen()
            await _start(first, seen_first.in_order)
            await _start(second, seen_second.in_order)
            await until(lambda: len(first.queues) + len(second.queues) == 5)
            await pass_time(5)
            await site.send_many("orders", 40, queues=4)
            await pass_time(1)
            await first.shutdown()
            left_s = site.clock.monotonic_s()
            await site.send_many("orders", 40, queues=4, first=40)
            await until(lambda: len(seen_first.messages + seen_second.messages) == 80, 1)
            assert site.clock.monotonic_s() - left_s < 1
            bodies = seen_first.bodies + seen_second.bodies
            assert len(set(bodies)) == 80
            await second.shutdown()

    run(main())


def test_shutdown_waits_for_the_call_that_runs(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 3)
            done: list[bytes] = []
            begun = asyncio.Event()

            async def listener(batch: Batch, _: OrderlyContext) -> None:
                begun.set()
                await pass_time(2)
                done.append(batch[0].body)

            consumer = site.consumer()
            await _start(consumer, listener)
            await begun.wait()
            await consumer.shutdown()
            assert done == [b"0"]
            again = site.consumer()
            seen = Seen()
            await _start(again, seen.in_order)
            await until(lambda: seen.bodies == [b"1", b"2"])
            await again.shutdown()

    run(main())
