"""What a producer says when it finds no broker for a topic."""

import asyncio
from pathlib import Path

import pytest
from unit.broker.one_broker import pass_time
from unit.client.producing import ScriptedBroker, accepts, producer_of

from downrange.broker.settings import BrokerSettings
from downrange.client.errors import (
    NoNameServerError,
    NoRouteCause,
    NoRouteError,
)
from downrange.client.message import Message
from downrange.client.settings import ClientSettings
from downrange.testing.cluster import MemoryCluster
from downrange.testing.virtual_time import run


def test_an_unknown_topic_where_none_may_be_made(tmp_path: Path) -> None:
    async def main() -> None:
        closed = BrokerSettings(auto_create_topics=False)
        async with (
            MemoryCluster(tmp_path, broker_settings=closed) as cluster,
            producer_of(cluster) as producer,
        ):
            with pytest.raises(NoRouteError, match="autoCreateTopicEnable") as caught:
                await producer.send(Message("orders", b"x"))
            assert caught.value.cause is NoRouteCause.TOPIC_UNKNOWN
            assert caught.value.topic == "orders"

    run(main())


def test_a_topic_that_nobody_may_write(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=()) as cluster:
            broker = ScriptedBroker(cluster, "b", 20_000, accepts)
            await broker.start("orders", perm=4)
            async with producer_of(cluster) as producer:
                with pytest.raises(NoRouteError, match="write permission") as caught:
                    await producer.send(Message("orders", b"x"))
                assert caught.value.cause is NoRouteCause.NO_QUEUE
            await broker.stop()

    run(main())


def test_a_topic_whose_masters_are_gone(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=()) as cluster:
            master = ScriptedBroker(cluster, "b", 20_000, accepts)
            replica = ScriptedBroker(cluster, "b", 20_100, accepts)
            await master.start("orders")
            await replica.start("orders", broker_id=1)
            await master.stop()
            await pass_time(1)
            async with producer_of(cluster) as producer:
                with pytest.raises(NoRouteError, match="master") as caught:
                    await producer.send(Message("orders", b"x"))
                assert caught.value.cause is NoRouteCause.NO_MASTER
            await replica.stop()

    run(main())


def test_a_name_server_that_is_down_at_the_start(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            await cluster.stop_name_server()
            async with producer_of(cluster) as producer:
                loop = asyncio.get_running_loop()
                started_s = loop.time()
                with pytest.raises(NoNameServerError, match=r"127\.0\.0\.1:9876"):
                    await producer.send(Message("orders", b"x"))
                assert loop.time() - started_s <= 3.0
                await cluster.start_name_server()
                await pass_time(31)
                assert (await producer.send(Message("orders", b"x"))).queue_offset == 0

    run(main())


def test_a_name_server_that_goes_down_later_stops_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster, producer_of(cluster) as producer:
            await producer.send(Message("orders", b"x"))
            await cluster.stop_name_server()
            await pass_time(300)
            await producer.send(Message("orders", b"y"))
            with pytest.raises(NoNameServerError):
                await producer.send(Message("another", b"z"))

    run(main())


def test_no_name_server_was_given(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            client = ClientSettings(client_ip="10.0.0.1")
            async with producer_of(cluster, client=client) as producer:
                with pytest.raises(NoNameServerError, match="set name_servers"):
                    await producer.send(Message("orders", b"x"))

    run(main())
