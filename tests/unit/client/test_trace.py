"""The trace of messages, byte for byte as Java's TraceDataEncoder writes it."""

import asyncio
from pathlib import Path

from unit.broker.one_broker import pass_time
from unit.client.producing import producer_of, stored

from downrange.broker.settings import BrokerSettings
from downrange.client.message import Message
from downrange.client.settings import ClientSettings
from downrange.client.trace import (
    LINES_MAX,
    TraceLine,
    end_transaction_line,
    pub_line,
    sub_after_line,
    sub_before_line,
)
from downrange.testing.cluster import MemoryCluster
from downrange.testing.virtual_time import START_MS, run


def test_lines_have_the_fields_of_java_in_their_order() -> None:
    assert pub_line(
        time_ms=1, region="R", group="g", topic="t", message_id="ID", tags=None, keys="k1 k2",
        store_host="h:1", body_bytes=5, cost_ms=7, message_type="Trans_Msg_Half",
        offset_message_id="OFF", is_success=True,
    ) == TraceLine(
        "t",
        "Pub\x011\x01R\x01g\x01t\x01ID\x01null\x01k1 k2\x01h:1\x015\x017\x011\x01OFF\x01true\x02",
        ("ID", "k1", "k2"),
    )  # fmt: skip
    assert (
        sub_before_line(
            time_ms=1, region="R", group="g", topic="t", request_id="Q", message_id="ID",
            retry_times=2, keys=None,
        ).text
        == "SubBefore\x011\x01R\x01g\x01Q\x01ID\x012\x01null\x02"
    )  # fmt: skip
    assert (
        sub_after_line(
            time_ms=1, group="g", topic="t", request_id="Q", message_id="ID", cost_ms=3,
            is_success=False, keys="k", context_code=4,
        ).text
        == "SubAfter\x01Q\x01ID\x013\x01false\x01k\x014\x011\x01g\x02"
    )  # fmt: skip
    assert (
        end_transaction_line(
            time_ms=1, region="R", group="g", topic="t", message_id="ID", tags="T", keys="k",
            store_host="h:1", transaction_id="X", state="COMMIT_MESSAGE", is_from_check=True,
        ).text
        == "EndTransaction\x011\x01R\x01g\x01t\x01ID\x01T\x01k\x01h:1\x012\x01X\x01COMMIT_MESSAGE"
        "\x01true\x02"
    )  # fmt: skip


def test_what_is_sent_is_traced_in_the_background(tmp_path: Path) -> None:
    async def main() -> None:
        traced = BrokerSettings(trace_topic_enabled=True)
        async with MemoryCluster(tmp_path, broker_settings=traced) as cluster:
            client = ClientSettings(
                name_servers=cluster.name_server_addresses, client_ip="10.0.0.1", trace=True
            )
            async with producer_of(cluster, client=client) as producer:
                receipt = await producer.send(Message("orders", b"hello", tag="new", keys="k1"))
                await pass_time(6)
                (trace,) = await stored(cluster, "RMQ_SYS_TRACE_TOPIC")
                fields = trace.body.decode().removesuffix("\x02").split("\x01")
                assert fields == [
                    "Pub", str(START_MS), "DefaultRegion", "senders", "orders",
                    receipt.message_id, "new", "k1", "127.0.0.1:10911", "5", "0", "0",
                    receipt.offset_message_id, "true",
                ]  # fmt: skip
                assert trace.keys == [receipt.message_id, "k1"]
                for _ in range(25):
                    await producer.send(Message("orders", b"more"))
            lines = [
                line
                for message in await stored(cluster, "RMQ_SYS_TRACE_TOPIC")
                for line in message.body.split(b"\x02")
                if line
            ]
            assert len(lines) == 26, "what is left is sent at the end"

    run(main())


def test_too_many_lines_are_dropped_and_counted(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            client = ClientSettings(
                name_servers=cluster.name_server_addresses, client_ip="10.0.0.1", trace=True
            )
            async with producer_of(cluster, client=client) as producer:
                tracer = producer._tracer
                assert tracer is not None
                for _ in range(LINES_MAX + 50):
                    tracer.append(TraceLine("t", "x\x02", ("k",)))
                assert tracer.dropped == 50

    run(main())


def test_a_dead_broker_does_not_hold_up_the_end(tmp_path: Path) -> None:
    async def main() -> None:
        traced = BrokerSettings(trace_topic_enabled=True)
        async with MemoryCluster(tmp_path, broker_settings=traced) as cluster:
            client = ClientSettings(
                name_servers=cluster.name_server_addresses, client_ip="10.0.0.1", trace=True
            )
            producer = producer_of(cluster, client=client)
            await producer.start()
            for _ in range(9):
                await producer.send(Message("orders", b"x"))
            for link in cluster.network.links_to(10911):
                link.is_deaf = True
            loop = asyncio.get_running_loop()
            started_s = loop.time()
            await producer.shutdown()
            assert loop.time() - started_s <= 6.1

    run(main())
