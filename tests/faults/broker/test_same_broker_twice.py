"""A second broker process with the port, or with the name, of one that runs."""

import asyncio
from pathlib import Path

import processes
from faults.broker.cluster import SMALL_FILES, Cluster
from faults.broker.routes import brokers_of, wait_for_route

EXIT_SECONDS_MAX = 60.0


def test_a_second_process_on_the_same_port_ends_and_the_first_stays_registered(
    tmp_path: Path,
) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.start_names()
        broker = await asyncio.to_thread(cluster.start_broker)
        _, port = broker.address.split(":")
        second = processes.start_broker(
            tmp_path / "second", cluster.names_address, SMALL_FILES, port=int(port), ready=""
        )
        assert await asyncio.to_thread(second.process.wait, EXIT_SECONDS_MAX) == 1
        assert "cannot start" in second.log
        assert not (tmp_path / "second" / "store" / "commitlog").exists()
        assert await brokers_of(cluster.names_address, "TBW102") == [broker.address]

    with Cluster(tmp_path / "cluster") as cluster:
        asyncio.run(main(cluster))


def test_a_second_process_of_the_same_name_waits_until_the_first_is_killed(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.start_names()
        first = await asyncio.to_thread(cluster.start_broker)
        with await asyncio.to_thread(
            processes.start_broker, tmp_path / "second", cluster.names_address, SMALL_FILES
        ) as second:
            assert f"already registered by the live broker at {first.address}" in second.log
            assert "already registered by the live broker" in cluster.names.log
            assert await brokers_of(cluster.names_address, "TBW102") == [first.address]
            first.kill()
            await wait_for_route(cluster.names_address, "TBW102", [second.address])

    with Cluster(tmp_path / "cluster") as cluster:
        asyncio.run(main(cluster))
