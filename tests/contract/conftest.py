"""The places in which every promise is tried.

`make test` plays them in memory; `make interop` against downrange's processes and against Apache's
of the 4.9 line, which serve all tests of a run; `make oracle` against Apache's newest.
"""

import asyncio
import random
import re
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest
from contract.world import BROKER_NAME, Play, Promise, World
from interop.client_cluster import ClientCluster, running_cluster
from interop.releases import APACHE_4_9_SERVERS

from downrange.broker.settings import BrokerSettings
from downrange.client.session import ClientSurroundings
from downrange.client.tls import client_network
from downrange.runtime.blocking import BlockingThread, InLine
from downrange.runtime.clock import SystemClock
from downrange.testing import virtual_time
from downrange.testing.cluster import MemoryCluster

PROMISE_S_MAX = 120.0
SEED = 5


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientCluster]:
    with running_cluster(tmp_path_factory.mktemp("contract")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def old_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientCluster]:
    with running_cluster(
        tmp_path_factory.mktemp("contract-4.9"), of_apache=True, release=APACHE_4_9_SERVERS
    ) as cluster:
        yield cluster


@pytest.fixture(
    params=[
        "memory",
        pytest.param("servers", marks=pytest.mark.interop),
        pytest.param("old_servers", marks=pytest.mark.interop),
    ]
)
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    prefix = re.sub(r"[^a-z0-9]+", "-", request.node.originalname.removeprefix("test_"))[:40]
    prefix += f"-{crc32(request.node.name.encode()) % 100_000}"

    def in_memory(promise: Promise) -> None:
        async def main() -> None:
            settings = BrokerSettings(transaction_check_interval_ms=1_000, sql92_enabled=True)
            async with MemoryCluster(
                tmp_path, broker_names=(BROKER_NAME,), broker_settings=settings
            ) as cluster:
                names = cluster.name_server_addresses
                await promise(World(names, cluster.surroundings(), prefix, tmp_path, InLine))

        virtual_time.run(main())

    def with_processes(promise: Promise) -> None:
        cluster: ClientCluster = request.getfixturevalue(request.param)

        async def main() -> None:
            around = ClientSurroundings(
                network=client_network(),
                clock=SystemClock(),
                chance=random.Random(SEED),
            )
            world = World(
                (cluster.name_server,), around, prefix, tmp_path, lambda: BlockingThread("offsets")
            )
            async with asyncio.timeout(PROMISE_S_MAX):
                await promise(world)

        asyncio.run(main())

    return in_memory if request.param == "memory" else with_processes
