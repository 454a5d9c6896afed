"""What a push consumer does when the listener, a broker or the way between them fails."""

import asyncio
import threading
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path

import pytest
from unit.broker.one_broker import pass_time
from unit.client.consuming import Seen, Site, until
from unit.client.received import received

from downrange.client.consumer_settings import MessageModel
from downrange.client.errors import RocketMQError
from downrange.client.listeners import (
    Batch,
    ConcurrentContext,
    ConsumeStatus,
    OnTheLoop,
    OrderlyContext,
    OrderlyStatus,
    ThreadPool,
    caller,
    is_coroutine_function,
)
from downrange.client.message import Message
from downrange.client.push_consumer import PushConsumer
from downrange.client.queue_calls import QueueCalls
from downrange.client.send_back import SendBack, retry_message
from downrange.model.topics import MessageQueue
from downrange.testing.virtual_time import run

ORDERS = MessageQueue("orders", "b1", 0)
LATER = ConsumeStatus.RECONSUME_LATER


class Choosy(Seen):
    """Fails for some bodies, in one of the ways that a listener can."""

    def __init__(self, bad: set[bytes], how: object = LATER) -> None:
        super().__init__()
        self.bad = bad
        self.how = how

    async def __call__(self, batch: Batch, context: ConcurrentContext) -> ConsumeStatus | None:
        self.take(batch)
        for index, message in enumerate(batch):
            if message.body in self.bad:
                if isinstance(self.how, Exception):
                    raise self.how
                if self.how == "ack index":
                    context.ack_index = index - 1
                    return ConsumeStatus.CONSUME_SUCCESS
                return self.how  # type: ignore[return-value]
        return None


async def _start(consumer: PushConsumer, listener: Seen, topic: str = "orders") -> None:
    consumer.subscribe(topic)
    consumer.listen(listener)
    await consumer.start()


@pytest.mark.parametrize("how", [LATER, ValueError("bad order"), "no status", True])
def test_what_failed_comes_again_later_and_ends_in_the_dead_letters(
    tmp_path: Path, how: object
) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send("orders", b"good")
            await site.send("orders", b"bad")
            consumer = site.consumer(max_reconsume_times=2)
            seen = Choosy({b"bad"}, how)
            await _start(consumer, seen)
            await until(lambda: len(seen.messages) == 4, 120)
            await pass_time(120)
            assert Counter(seen.bodies) == {b"good": 1, b"bad": 3}
            bad = [message for message in seen.messages if message.body == b"bad"]
            assert [message.reconsume_times for message in bad] == [0, 1, 2]
            assert {message.topic for message in bad} == {"orders"}
            assert consumer.consumed_offsets("orders")[ORDERS] == 2
            await consumer.shutdown()
            dead = site.consumer("undertaker")
            graves = Seen()
            await _start(dead, graves, "%DLQ%g")
            await until(lambda: graves.bodies == [b"bad"])
            await dead.shutdown()

    run(main())


def test_messages_behind_the_ack_index_come_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 6)
            consumer = site.consumer(consume_batch_size=32)
            seen = Choosy({b"3"}, "ack index")
            await _start(consumer, seen)
            await until(lambda: len(seen.messages) == 6)
            seen.bad = set()
            await until(lambda: len(seen.messages) == 9, 120)
            await pass_time(60)
            assert Counter(seen.bodies) == {
                b"0": 1, b"1": 1, b"2": 1, b"3": 2, b"4": 2, b"5": 2
            }  # fmt: skip
            await consumer.shutdown()

    run(main())


def test_a_listener_can_say_when_a_message_comes_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send("orders", b"x")
            times_s: list[float] = []

            async def listener(_: Batch, context: ConcurrentContext) -> ConsumeStatus | None:
                times_s.append(site.clock.monotonic_s())
                context.delay_level = 2  # 5 s; the broker's own choice is 10 s
                return LATER if len(times_s) == 1 else None

            consumer = site.consumer()
            consumer.subscribe("orders")
            consumer.listen(listener)
            async with consumer:
                await until(lambda: len(times_s) == 2)
            assert 5 <= times_s[1] - times_s[0] <= 6.5

    run(main())


def test_what_nobody_takes_back_is_tried_again_here_after_five_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> bool:
        return False

    monkeypatch.setattr(SendBack, "give_back", refuse)

    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 2)
            consumer = site.consumer()
            seen = Choosy({b"0"})
            await _start(consumer, seen)
            await until(lambda: len(seen.messages) == 2)
            await pass_time(4.5)
            assert len(seen.messages) == 2
            assert consumer.consumed_offsets("orders")[ORDERS] == 0
            seen.bad = set()
            await pass_time(1)
            assert seen.bodies == [b"0", b"1", b"0"]
            assert seen.messages[-1].reconsume_times == 1
            assert consumer.consumed_offsets("orders")[ORDERS] == 2
            await consumer.shutdown()

    run(main())


def test_without_its_broker_a_message_is_sent_to_the_retry_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def refuse(*_: object, **__: object) -> None:
        raise RocketMQError("away")

    monkeypatch.setattr(QueueCalls, "send_back", refuse)

    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send("orders", b"0", properties="mine\x01yes\x02")
            consumer = site.consumer()
            consumer._retry_sender = send
            await _start(consumer, Choosy({b"0"}))
            await until(lambda: len(sent) == 1)
            assert consumer.consumed_offsets("orders")[ORDERS] == 1
            await consumer.shutdown()

    run(main())
    (message,) = sent
    assert message.topic == "%RETRY%g"
    assert message.properties["RETRY_TOPIC"] == "orders"
    assert message.properties["RECONSUME_TIME"] == "1"
    assert message.properties["MAX_RECONSUME_TIMES"] == "16"
    assert message.properties["DELAY"] == "3"
    assert message.properties["mine"] == "yes"


def test_without_its_broker_a_message_comes_again_through_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise RocketMQError("away")

    monkeypatch.setattr(QueueCalls, "send_back", refuse)

    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send("orders", b"0", properties="KEYS\x01k\x02")
            consumer, seen = site.consumer(), Choosy({b"0"})
            await _start(consumer, seen)
            await until(lambda: len(seen.messages) == 1)
            seen.bad = set()
            await until(lambda: len(seen.messages) == 2)
            again = seen.messages[1]
            assert (again.topic, again.reconsume_times, again.keys) == ("orders", 1, ["k"])
            assert again.properties["ORIGIN_MESSAGE_ID"] == seen.messages[0].message_id
            await consumer.shutdown()

    run(main())


def test_a_retry_message_keeps_its_first_id() -> None:
    message = received(5)
    message.properties["ORIGIN_MESSAGE_ID"] = "first"
    message.properties["TRAN_MSG"] = "true"
    message.reconsume_times = 2
    again = retry_message(message, "g", "orders", 16)
    assert again.properties["ORIGIN_MESSAGE_ID"] == "first"
    assert "TRAN_MSG" not in again.properties
    assert again.delay_level == 5


def test_what_a_listener_has_for_too_long_is_given_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send_many("orders", 3)
            never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            seen: list[tuple[bytes, int]] = []

            async def listener(batch: Batch, _: ConcurrentContext) -> None:
                seen.append((batch[0].body, batch[0].reconsume_times))
                if batch[0].body == b"0" and not batch[0].reconsume_times:
                    await never

            consumer = site.consumer(consume_timeout_min=15, shutdown_timeout_s=0.1)
            consumer.subscribe("orders")
            consumer.listen(listener)
            await consumer.start()
            await pass_time(14 * 60)
            assert len(seen) == 3
            assert consumer.consumed_offsets("orders")[ORDERS] == 0
            await pass_time(17 * 60)
            assert seen[3:] == [(b"0", 1)]
            assert consumer.consumed_offsets("orders")[ORDERS] == 3
            await consumer.shutdown()

    run(main())


def test_broadcasting_gives_everything_to_everybody_and_drops_what_fails(tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(tmp_path / "cluster") as site:
            await site.create("orders", 2)
            sent = await site.send_many("orders", 10, queues=2)
            consumers, listeners = [], []
            for _ in range(2):
                consumer = site.consumer(
                    message_model=MessageModel.BROADCASTING, offsets_folder=str(tmp_path / "off")
                )
                listeners.append(Choosy({b"3"}))
                await _start(consumer, listeners[-1])
                consumers.append(consumer)
            await until(lambda: all(len(one.messages) == 10 for one in listeners))
            await pass_time(60)
            assert all(sorted(one.bodies) == sorted(sent) for one in listeners)
            client = consumers[0]._client
            for consumer in consumers:
                await consumer.shutdown()
            await site.send("orders", b"later")
            again = site.consumer(
                client=client,
                message_model=MessageModel.BROADCASTING,
                offsets_folder=str(tmp_path / "off"),
            )
            seen = Seen()
            await _start(again, seen)
            await pass_time(20)
            assert seen.bodies == [b"later"], "its own file says how far it has come"
            await again.shutdown()

    run(main())


def test_plain_functions_run_in_threads_and_coroutines_on_the_loop() -> None:
    async def on_the_loop(_: Batch, __: ConcurrentContext) -> None:
        places.append(threading.current_thread().name)

    def in_a_thread(_: Batch, __: ConcurrentContext) -> ConsumeStatus:
        places.append(threading.current_thread().name)
        return LATER

    def gives_a_coroutine(batch: Batch, context: ConcurrentContext) -> Coroutine[None, None, None]:
        return on_the_loop(batch, context)

    places: list[str] = []

    async def main() -> None:
        threads = ThreadPool(2, "g")
        context = ConcurrentContext(ORDERS)
        await caller(on_the_loop, threads)([received(1)], context)
        assert await caller(in_a_thread, threads)([received(1)], context) is LATER
        await caller(gives_a_coroutine, OnTheLoop())([], context)
        threads.close()

    asyncio.run(main())
    assert places[0] == places[2] == "MainThread"
    assert places[1].startswith("ConsumeMessageThread_g_")
    assert is_coroutine_function(Seen())
    assert not is_coroutine_function(in_a_thread)


@pytest.mark.parametrize("is_orderly", [False, True])
def test_a_shutdown_waits_until_a_refused_message_is_back_at_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_orderly: bool
) -> None:
    taken: list[str] = []

    async def slowly(*_: object) -> bool:
        await pass_time(0.5)
        taken.append("message")
        return True

    monkeypatch.setattr(SendBack, "give_back", slowly)
    monkeypatch.setattr(SendBack, "send_again", slowly)

    async def main() -> None:
        async with Site(tmp_path) as site:
            await site.create("orders")
            await site.send("orders", b"bad")
            consumer = site.consumer(max_reconsume_times=0)
            consumer.subscribe("orders")
            refused = asyncio.Event()

            async def refuse(_batch: Batch, _context: ConcurrentContext) -> ConsumeStatus:
                refused.set()
                return LATER

            async def refuse_in_order(_batch: Batch, _context: OrderlyContext) -> OrderlyStatus:
                refused.set()
                return OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT

            if is_orderly:
                consumer.listen_in_order(refuse_in_order)
            else:
                consumer.listen(refuse)
            await consumer.start()
            await refused.wait()
            await consumer.shutdown()
            assert taken == ["message"]

    run(main())
