"""Answers that cover a whole broker are made in slices: others are served meanwhile."""

import asyncio
from pathlib import Path

import pytest

from downrange.broker.server import Broker
from downrange.protocol.bodies.heartbeat import ConsumerGroup, Subscription
from downrange.protocol.command import Command
from downrange.protocol.request_codes import RequestCode as Code
from downrange.remoting.client import RemotingClient
from downrange.remoting.connection import Connection
from downrange.runtime.slices import STEPS_PER_SLICE
from downrange.testing.cluster import MemoryCluster
from downrange.testing.virtual_time import run

COUNT = 2_000


def fill(broker: Broker, connection: Connection) -> None:
    view = broker.view()
    assert view is not None
    tables = view.tables
    for number in range(COUNT):
        topic, group = f"orders-{number}", f"group-{number}"
        tables.topics.create_for_send(topic, "TBW102", 4, 0)
        tables.groups.find(group)
        tables.offsets.commit(group, topic, 0, 1)
        tables.producers.register(connection, "a", group)
        subscriptions = (Subscription(topic=topic, sub_string="*"),)
        consumer = ConsumerGroup(group_name=group, subscription_data_set=subscriptions)
        tables.consumers.register(connection, "a", consumer)


@pytest.mark.parametrize(
    "code",
    [
        Code.GET_ALL_TOPIC_CONFIG,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        Code.GET_ALL_CONSUMER_OFFSET,
        Code.GET_ALL_PRODUCER_INFO,
        Code.GET_BROKER_CONSUME_STATS,
    ],
    ids=lambda code: code.name,
)
def test_it_is_made_in_slices(tmp_path: Path, code: Code) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path) as cluster:
            client = RemotingClient(cluster.network)
            loop, turns, is_counting = asyncio.get_running_loop(), [0], [True]

            def tick() -> None:
                turns[0] += 1
                if is_counting[0]:
                    loop.call_soon(tick)

            async def ask() -> Command:
                fields = {"isOrder": "false"}
                address = cluster.broker_address("b1")
                return await client.call(address, code, fields, timeout_s=60)

            await ask()
            (connection,) = cluster.brokers["b1"]._server.connections
            fill(cluster.brokers["b1"], connection)
            loop.call_soon(tick)
            answer = await ask()
            is_counting[0] = False
            assert answer.code == 0
            body = answer.body or b""
            assert body.count(b"group-") + body.count(b"orders-") >= COUNT
            assert turns[0] >= COUNT / STEPS_PER_SLICE  # a small answer takes 5
            client.close()

    run(main())
