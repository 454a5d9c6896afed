"""What happens when a try fails: other brokers, shared time, codes that are worth another try."""

import asyncio
from pathlib import Path

import pytest
from unit.client.producing import (
    ScriptedBroker,
    accepts,
    producer_of,
    settings,
    stored,
    with_code,
)

from downrange.client.acl_signature import Credentials
from downrange.client.errors import (
    BrokerRefusal,
    BrokerUnreachableError,
    ClientTimeoutError,
    RocketMQError,
)
from downrange.client.message import Message, SendReceipt, SendStatus
from downrange.client.settings import ClientSettings
from downrange.model.topics import MessageQueue
from downrange.protocol.command import Command
from downrange.remoting.connection import Answer
from downrange.testing.cluster import MemoryCluster
from downrange.testing.virtual_time import run


def test_a_dead_broker_costs_a_try_and_no_message(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            MemoryCluster(tmp_path, broker_names=("a", "b")) as cluster,
            producer_of(cluster) as producer,
        ):
            for _ in range(8):
                await producer.send(Message("orders", b"before"))
            await cluster.stop_broker("a")
            receipts = [await producer.send(Message("orders", b"after")) for _ in range(8)]
            assert {receipt.queue.broker_name for receipt in receipts} == {"b"}
            after = [m for m in await stored(cluster, "orders") if m.body == b"after"]
            assert {m.message_id for m in after} == {r.message_id for r in receipts}
            assert len(after) == 8

    run(main())


def test_when_all_brokers_are_dead_the_error_says_what_was_tried(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            MemoryCluster(tmp_path, broker_names=("a", "b")) as cluster,
            producer_of(cluster) as producer,
        ):
            await producer.send(Message("orders", b"before"))
            for name in "ab":
                await cluster.stop_broker(name)
            with pytest.raises(BrokerUnreachableError) as caught:
                await producer.send(Message("orders", b"x"))
            assert caught.value.code == 10001
            (note,) = caught.value.__notes__
            assert "sent 3 of 3 times" in note
            assert "a, b, a" in note or "b, a, b" in note

    run(main())


def test_a_named_queue_is_tried_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            MemoryCluster(tmp_path, broker_names=("a", "b")) as cluster,
            producer_of(cluster) as producer,
        ):
            await producer.send(Message("orders", b"before"))
            await cluster.stop_broker("a")
            with pytest.raises(BrokerUnreachableError):
                await producer.send(Message("orders", b"x"), queue=MessageQueue("orders", "a", 0))

    run(main())


def test_all_tries_share_the_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            MemoryCluster(tmp_path, broker_names=("a", "b")) as cluster,
            producer_of(cluster) as producer,
        ):
            for _ in range(8):
                await producer.send(Message("orders", b"before"))
            for name in "ab":
                for link in cluster.network.links_to(cluster.broker_port(name)):
                    link.is_deaf = True
            loop = asyncio.get_running_loop()
            for timeout_s in (None, 0.5):
                started_s = loop.time()
                with pytest.raises(ClientTimeoutError) as caught:
                    await producer.send(Message("orders", b"x"), timeout_s=timeout_s)
                assert loop.time() - started_s == pytest.approx(timeout_s or 3.0, abs=0.01)
                assert caught.value.code == 10002

    run(main())


def test_a_limit_for_each_try_leaves_time_for_another_broker(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=("a", "b")) as cluster:
            limited = settings(send_timeout_per_try_s=1.0)
            async with producer_of(cluster, settings=limited) as producer:
                for _ in range(8):
                    await producer.send(Message("orders", b"before"))
                for link in cluster.network.links_to(cluster.broker_port("a")):
                    link.is_deaf = True
                loop = asyncio.get_running_loop()
                started_s = loop.time()
                receipts = [await producer.send(Message("orders", b"x")) for _ in range(2)]
                assert {receipt.queue.broker_name for receipt in receipts} == {"b"}
                assert loop.time() - started_s == pytest.approx(1.0, abs=0.01)

    run(main())


async def _two(cluster: MemoryCluster, code: int) -> tuple[ScriptedBroker, ScriptedBroker]:
    bad = ScriptedBroker(cluster, "bad", 20_000, with_code(code))
    good = ScriptedBroker(cluster, "good", 20_100, accepts)
    for broker in (bad, good):
        await broker.start("orders")
    return bad, good


@pytest.mark.parametrize("code", [17, 14, 1, 2, 16, 204, 205, 1500])
def test_these_refusals_are_worth_another_broker(tmp_path: Path, code: int) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=()) as cluster:
            bad, good = await _two(cluster, code)
            async with producer_of(cluster) as producer:
                receipts = [await producer.send(Message("orders", b"x")) for _ in range(8)]
            assert {receipt.queue.broker_name for receipt in receipts} == {"good"}
            assert bad.requests
            assert len(good.requests) == 8
            for broker in (bad, good):
                await broker.stop()

    run(main())


@pytest.mark.parametrize("code", [13, 3, 215])
def test_other_refusals_are_final(tmp_path: Path, code: int) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=()) as cluster:
            bad, good = await _two(cluster, code)
            async with producer_of(cluster) as producer:
                for queue_id in range(3):
                    with pytest.raises(BrokerRefusal, match="as scripted") as caught:
                        await producer.send(
                            Message("orders", b"x"), queue=MessageQueue("orders", "bad", queue_id)
                        )
                    assert caught.value.code == code
                    assert caught.value.broker == "broker 127.0.0.1:20000"
                sends = (producer.send(Message("orders", b"x")) for _ in range(8))
                results = await asyncio.gather(*sends, return_exceptions=True)
                assert sum(isinstance(result, BrokerRefusal) for result in results) == 4
            assert len(bad.requests) == 7
            for broker in (bad, good):
                await broker.stop()

    run(main())


def test_a_callback_send_is_not_tried_again_after_a_refusal(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=()) as cluster:
            bad, good = await _two(cluster, 2)
            heard: list[SendReceipt | RocketMQError] = []
            async with producer_of(cluster) as producer:
                for _ in range(8):
                    await producer.send_async(Message("orders", b"x"), heard.append)
                while len(heard) < 8:
                    await asyncio.get_running_loop().run_in_executor(None, lambda: None)
            assert sum(isinstance(one, BrokerRefusal) for one in heard) == len(bad.requests) == 4
            for broker in (bad, good):
                await broker.stop()

    run(main())


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
def test_stored_but_not_safely(tmp_path: Path, code: int, status: SendStatus) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=()) as cluster:
            bad, good = await _two(cluster, code)
            async with producer_of(cluster) as producer:
                receipts = [await producer.send(Message("orders", b"x")) for _ in range(8)]
            assert sum(receipt.status is status for receipt in receipts) == 4
            eager = settings(retry_another_broker_when_not_stored=True)
            async with producer_of(cluster, settings=eager) as producer:
                receipts = [await producer.send(Message("orders", b"x")) for _ in range(8)]
                assert {receipt.status for receipt in receipts} == {SendStatus.SEND_OK}
                await good.stop()
                assert (await producer.send(Message("orders", b"x"))).status is status
            await bad.stop()

    run(main())


def test_a_retried_message_keeps_its_id(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=()) as cluster:
            bad = ScriptedBroker(cluster, "bad", 20_000, with_code(2))
            await bad.start("orders")
            async with producer_of(cluster) as producer:
                with pytest.raises(BrokerRefusal):
                    await producer.send(Message("orders", b"x"))
            texts = {(request.ext_fields or {})["i"] for request in bad.requests}
            assert len(bad.requests) == 3
            assert len(texts) == 1
            await bad.stop()

    run(main())


def test_requests_are_signed(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=()) as cluster:
            broker = ScriptedBroker(cluster, "b", 20_000, accepts)
            await broker.start("orders")
            credentials = Credentials("key", "secret")
            client = ClientSettings(
                name_servers=cluster.name_server_addresses,
                client_ip="10.0.0.1",
                credentials=credentials,
            )
            async with producer_of(cluster, client=client) as producer:
                await producer.send(Message("orders", b"x"))
            (request,) = broker.requests
            fields = dict(request.ext_fields or {})
            signature = fields.pop("Signature")
            assert credentials.sign(fields, b"x")["Signature"] == signature
            await broker.stop()

    run(main())


def test_the_quick_header_says_what_the_typed_one_says(tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []

    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=()) as cluster:

            def answer(request: Command) -> Command:
                fields = dict(request.ext_fields or {})
                for changing in ("AccessKey", "Signature"):
                    fields.pop(changing, None)
                fields["i"] = fields["i"].partition("UNIQ_KEY")[0]
                seen.append(fields)
                return accepts(request)

            broker = ScriptedBroker(cluster, "b", 20_000, answer)
            await broker.start("orders")
            for credentials in (None, Credentials("key", "secret")):
                client = ClientSettings(
                    name_servers=cluster.name_server_addresses,
                    client_ip="10.0.0.1",
                    credentials=credentials,
                )
                async with producer_of(cluster, client=client) as producer:
                    queue = MessageQueue("orders", "b", 2)
                    message = Message("orders", b"x", tag='"quoted"', flag=3)
                    await producer.send(message, queue=queue)
                    await producer.send_batch([message], queue=queue)
            await broker.stop()

    run(main())
    assert {name: value for name, value in seen[0].items() if name != "g"} == {
        name: value for name, value in seen[2].items() if name != "g"
    }
    assert {name: value for name, value in seen[1].items() if name != "g"} == {
        name: value for name, value in seen[3].items() if name != "g"
    }
    assert seen[1]["m"] == "true"


def test_a_slow_broker_is_left_alone_for_a_while(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=("a", "b")) as cluster:
            tolerant = settings(latency_fault_tolerance=True)
            async with producer_of(cluster, settings=tolerant) as producer:
                for _ in range(8):
                    await producer.send(Message("orders", b"before"))
                for link in cluster.network.links_to(cluster.broker_port("a")):
                    link.delay_s = 0.4
                brokers = [
                    (await producer.send(Message("orders", b"x"))).queue.broker_name
                    for _ in range(20)
                ]
                assert brokers.count("a") == 1

    run(main())


def test_a_broker_that_wants_to_be_left_gets_a_new_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=()) as cluster:
            answers = [with_code(1500), accepts]

            def answer(request: Command) -> Answer:
                return answers[min(len(broker.requests), 2) - 1](request)

            broker = ScriptedBroker(cluster, "b", 20_000, answer)
            await broker.start("orders")
            async with producer_of(cluster) as producer:
                assert (await producer.send(Message("orders", b"x"))).queue_offset == 5
                assert len(broker.requests) == 2
                assert len(cluster.network.links_to(20_000)) == 2
            await broker.stop()

    run(main())
