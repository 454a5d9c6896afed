"""What a producer promises, against brokers and name servers in memory."""

import asyncio
from pathlib import Path

import pytest
from unit.broker.one_broker import pass_time
from unit.client.producing import producer_of, settings, stored

from downrange.client.errors import (
    ClientStateError,
    DuplicateGroupError,
    InvalidMessageError,
    RocketMQError,
)
from downrange.client.message import Message, SendReceipt, SendStatus
from downrange.client.session_table import SessionTable
from downrange.client.settings import ClientSettings
from downrange.model.topics import MessageQueue
from downrange.protocol.batch import encode_batch
from downrange.protocol.properties import encode_properties
from downrange.testing.cluster import MemoryCluster
from downrange.testing.virtual_time import run


def test_a_message_arrives_as_it_was_sent(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            async with producer_of(cluster) as producer:
                message = Message(
                    "orders", b"hello", tag="new", keys=["k1", "k2"], properties={"a": "ü"}, flag=7
                )
                receipt = await producer.send(message)
            (found,) = await stored(cluster, "orders")
            assert (found.body, found.tag, found.keys, found.flag) == (
                b"hello", "new", ["k1", "k2"], 7,
            )  # fmt: skip
            assert found.properties["a"] == "ü"
            assert receipt.status is SendStatus.SEND_OK
            assert receipt.message_id == found.message_id
            assert receipt.offset_message_id == found.offset_message_id
            assert receipt.queue == found.queue
            assert receipt.queue_offset == 0
            assert len(receipt.message_id) == 32

    run(main())


def test_messages_go_to_all_queues_in_turn(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=("a", "b")) as cluster:
            async with producer_of(cluster) as producer:
                receipts = [await producer.send(Message("orders", b"x")) for _ in range(16)]
            queues = [receipt.queue for receipt in receipts]
            assert len(set(queues)) == 8
            assert queues[:8] == queues[8:]

    run(main())


def test_a_queue_can_be_named_or_selected(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster, producer_of(cluster) as producer:
            queue = MessageQueue("orders", "b1", 3)
            assert (await producer.send(Message("orders", b"1"), queue=queue)).queue == queue
            receipt = await producer.send(
                Message("orders", b"2", keys="42"),
                selector=lambda queues, message: queues[int(message.keys[0]) % len(queues)],
            )
            assert receipt.queue.queue_id == 42 % 4
            with pytest.raises(InvalidMessageError, match="for a message of topic"):
                await producer.send(Message("other", b"3"), queue=queue)
            with pytest.raises(RocketMQError, match="no route of topic 'orders' has a broker 'x'"):
                await producer.send(Message("orders", b"4"), queue=MessageQueue("orders", "x", 0))

    run(main())


def test_a_batch_is_stored_message_by_message(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            async with producer_of(cluster) as producer:
                batch = [Message("orders", b"%d" % i, tag=f"t{i}") for i in range(5)]
                receipt = await producer.send_batch(batch)
                with pytest.raises(InvalidMessageError, match="one topic"):
                    await producer.send_batch([Message("a", b"1"), Message("b", b"2")])
                with pytest.raises(InvalidMessageError, match="delay level"):
                    await producer.send_batch([Message("a", b"1", delay_level=1)])
                with pytest.raises(InvalidMessageError, match="without a message"):
                    await producer.send_batch([])
            found = await stored(cluster, "orders")
            assert [m.body for m in found] == [b"0", b"1", b"2", b"3", b"4"]
            assert [m.tag for m in found] == ["t0", "t1", "t2", "t3", "t4"]
            assert receipt.message_id == ",".join(m.message_id for m in found)
            assert receipt.offset_message_id == ",".join(m.offset_message_id for m in found)

    run(main())


def test_a_batch_that_is_encoded_already_goes_out_as_it_is(tmp_path: Path) -> None:
    texts = [encode_properties({"UNIQ_KEY": f"id{i}", "a": str(i)}) for i in range(3)]
    body = encode_batch((7, b"%d" % i, text) for i, text in enumerate(texts))

    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            async with producer_of(cluster) as producer:
                queue = (await producer.queues("orders"))[2]
                receipt = await producer.send_encoded_batch("orders", body, queue=queue)
                assert (receipt.queue, receipt.status) == (queue, SendStatus.SEND_OK)
                for topic, wrong, reason in (
                    ("orders", b"", "empty"),
                    ("%RETRY%group", body, "no retry topic"),
                    ("or ders", body, "or ders"),
                    ("orders", bytes(5 << 20), "over 4194304"),
                ):
                    with pytest.raises(InvalidMessageError, match=reason):
                        await producer.send_encoded_batch(topic, wrong)
            found = await stored(cluster, "orders")
            assert [(m.body, m.flag, m.queue_id) for m in found] == [
                (b"%d" % i, 7, queue.queue_id) for i in range(3)
            ]
            assert [m.message_id for m in found] == ["id0", "id1", "id2"]

    run(main())


def test_a_delay_level_delays(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster, producer_of(cluster) as producer:
            await producer.send(Message("orders", b"now"))
            await producer.send(Message("orders", b"later", delay_level=2))
            assert [m.body for m in await stored(cluster, "orders")] == [b"now"]
            await pass_time(6)
            assert {m.body for m in await stored(cluster, "orders")} == {b"now", b"later"}

    run(main())


def test_one_way_needs_no_answer(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster, producer_of(cluster) as producer:
            await producer.send_one_way(Message("orders", b"1"))
            await producer.send_one_way(
                Message("orders", b"2"), queue=MessageQueue("orders", "b1", 0)
            )
            await pass_time(0.1)
            assert {m.body for m in await stored(cluster, "orders")} == {b"1", b"2"}

    run(main())


def test_a_callback_hears_the_receipt_or_the_error(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster, producer_of(cluster) as producer:
            heard: list[SendReceipt | RocketMQError] = []
            for _ in range(3):
                await producer.send_async(Message("orders", b"1"), heard.append)
                await pass_time(0.5)
            assert [isinstance(one, SendReceipt) for one in heard] == [True] * 3
            await cluster.stop_broker("b1")
            await producer.send_async(Message("orders", b"2"), heard.append, timeout_s=2)
            await pass_time(3)
            assert isinstance(heard[-1], RocketMQError)
            with pytest.raises(InvalidMessageError):
                await producer.send_async(Message("orders", b""), heard.append)
            assert len(heard) == 4

    run(main())


def test_large_bodies_travel_compressed_and_arrive_whole(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            async with producer_of(cluster) as producer:
                await producer.send(Message("orders", b"x" * 10_000))
                await producer.send(Message("orders", b"x" * 4_095))
            by_size = sorted(await stored(cluster, "orders"), key=lambda m: len(m.body))
            small, large = by_size
            assert small.store_size > 4_095
            assert large.body == b"x" * 10_000
            assert large.store_size < 1_000

    run(main())


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Message("t" * 128, b"x"), "128 characters, over 127"),
        (Message("bad topic", b"x"), "other characters"),
        (Message("", b"x"), "blank"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "belongs to the brokers"),
        (Message("orders", b"x", properties={"a": "\ud800"}), "half a character"),
        (Message("orders", b"x", properties={"a": "é" * 20_000}), "bytes, 32767 are possible"),
        (Message("orders", b""), "empty"),
        (Message("orders", b"x" * (4 * 1024 * 1024 + 1)), "over 4194304"),
        (Message("orders", "text"), "str, not bytes"),  # type: ignore[arg-type]
        (Message("orders", b"x", properties={"a": "\x01"}), "0x01"),
        (Message("orders", b"x", properties={"a": "x" * 33_000}), "32767 are possible"),
    ],
)
def test_what_no_broker_would_take_is_one_clear_error(
    tmp_path: Path, message: Message, text: str
) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster, producer_of(cluster) as producer:
            with pytest.raises(InvalidMessageError, match=text):
                await producer.send(message)

    run(main())


@pytest.mark.parametrize(
    ("group", "text"),
    [
        ("g" * 121, "over 120"),
        ("", "blank"),
        ("a b", "other characters"),
        ("DEFAULT_PRODUCER", "choose one"),
    ],
)
def test_a_group_that_cannot_be_one_is_refused_at_once(group: str, text: str) -> None:
    with pytest.raises(InvalidMessageError, match=text):
        producer_of(MemoryCluster(Path("unused")), group)


def test_a_producer_lives_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            table = SessionTable(nonce=7, around=cluster.surroundings())
            producer = producer_of(cluster, table=table)
            with pytest.raises(ClientStateError, match="CREATE_JUST"):
                await producer.send(Message("orders", b"x"))
            await producer.start()
            with pytest.raises(ClientStateError, match="RUNNING"):
                await producer.start()
            twin = producer_of(cluster, table=table)
            with pytest.raises(DuplicateGroupError, match="instance_name"):
                await twin.start()
            other = producer_of(cluster, "others", table=table)
            await other.start()
            await producer.shutdown()
            await producer.shutdown()
            with pytest.raises(ClientStateError, match="SHUTDOWN_ALREADY"):
                await producer.send(Message("orders", b"x"))
            assert (await other.send(Message("orders", b"x"))).status is SendStatus.SEND_OK
            await other.shutdown()

    run(main())


def test_names_of_a_namespace_stay_inside(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            client = ClientSettings(
                name_servers=cluster.name_server_addresses, client_ip="10.0.0.1", namespace="NS"
            )
            async with producer_of(cluster, client=client) as producer:
                receipt = await producer.send(Message("orders", b"x"))
                assert receipt.queue.topic == "orders"
                assert producer.group == "NS%senders"
                (queue, *_) = await producer.queues("orders")
                assert queue.topic == "orders"
                assert (await producer.send(Message("orders", b"y"), queue=queue)).queue == queue
            found = await stored(cluster, "NS%orders")
            assert {m.body for m in found} == {b"x", b"y"}
            assert found[0].properties["INSTANCE_ID"] == "NS"

    run(main())


def test_the_second_port_of_a_broker(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            client = ClientSettings(
                name_servers=cluster.name_server_addresses, client_ip="10.0.0.1", vip_channel=True
            )
            async with producer_of(cluster, client=client) as producer:
                await producer.send(Message("orders", b"x"))
                assert cluster.network.links_to(10909)

    run(main())


def test_back_pressure_makes_the_sender_wait(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            bounded = settings(backpressure=True, backpressure_count_max=10)
            async with producer_of(cluster, settings=bounded) as producer:
                await producer.send(Message("orders", b"x"))
                heard: list[SendReceipt | RocketMQError] = []
                for link in cluster.network.links_to(10911):
                    link.delay_s = 1.0
                loop = asyncio.get_running_loop()
                started_s = loop.time()
                for _ in range(25):
                    await producer.send_async(Message("orders", b"x"), heard.append, timeout_s=9)
                assert loop.time() - started_s >= 2.9, "two answers had to come first"
                await pass_time(5)
                assert [isinstance(one, SendReceipt) for one in heard] == [True] * 25
                for link in cluster.network.links_to(10911):
                    link.is_deaf = True
                for _ in range(10):
                    await producer.send_async(Message("orders", b"x"), heard.append, timeout_s=9)
                with pytest.raises(RocketMQError, match="backpressure_count_max"):
                    await producer.send_async(Message("orders", b"x"), heard.append, timeout_s=2)

    run(main())


def test_a_shutdown_ends_what_is_under_way(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            producer = producer_of(cluster)
            await producer.start()
            await producer.send(Message("orders", b"x"))
            for link in cluster.network.links_to(10911):
                link.is_deaf = True
            heard: list[SendReceipt | RocketMQError] = []
            await producer.send_async(Message("orders", b"x"), heard.append, timeout_s=60)
            waiting = asyncio.ensure_future(producer.send(Message("orders", b"x"), timeout_s=60))
            await pass_time(1)
            await producer.shutdown()
            loop = asyncio.get_running_loop()
            started_s = loop.time()
            with pytest.raises(ClientStateError, match="SHUTDOWN_ALREADY"):
                await waiting
            await pass_time(1)
            assert loop.time() - started_s <= 1.1
            assert isinstance(heard[0], ClientStateError)

    run(main())
