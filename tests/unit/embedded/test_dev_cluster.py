"""A cluster inside a program: starts, serves, stops, and does so again."""

import asyncio
import socket
from pathlib import Path

import pytest

import downrange
from downrange import sync
from downrange.embedded import ClusterPlan, DevCluster, EmbeddedCluster
from downrange.embedded.cluster import ClusterError, PortTakenError
from downrange.embedded.ports import FREE_PORTS, FreePorts, is_free


def test_a_blocking_program_has_a_cluster_in_one_line() -> None:
    with DevCluster() as cluster:
        with sync.connect(cluster.name_servers) as mq:
            assert mq.send("orders", b"hello").queue.broker_name == "broker-a"
        assert cluster.failures == []
    with pytest.raises(ClusterError, match="does not run"):
        cluster.stop_broker()
    cluster.stop()


def test_a_program_of_asyncio_has_one_too() -> None:
    async def main() -> bytes:
        async with DevCluster() as cluster, downrange.connect(cluster.name_servers) as mq:
            await mq.send("orders", b"hello")
            async for message in mq.consume("orders", group="g", start_at="first"):
                return message.body
        raise AssertionError

    assert asyncio.run(main()) == b"hello"


def test_a_cluster_can_live_on_the_loop_of_the_program(tmp_path: Path) -> None:
    async def main() -> None:
        plan = ClusterPlan(data=tmp_path, broker_count=2)
        async with EmbeddedCluster(plan) as cluster:
            assert list(cluster.broker_addresses) == ["broker-a", "broker-b"]
            async with downrange.connect(cluster.name_servers) as mq:
                await mq.send("orders", b"hello")
        assert (tmp_path / "broker-a" / "commitlog").is_dir()
        assert not (tmp_path / "broker-a" / "abort").exists()

    asyncio.run(main())


def test_messages_survive_a_restart_and_a_kill_at_the_same_address() -> None:
    with DevCluster() as cluster, sync.connect(cluster.name_servers) as mq:
        address = cluster.broker_addresses["broker-a"]
        mq.send("orders", b"1")
        cluster.restart_broker()
        mq.send("orders", b"2")
        cluster.kill_broker()
        with pytest.raises(ClusterError, match="start_broker"):
            cluster.stop_broker()
        cluster.start_broker()
        mq.send("orders", b"3")
        assert cluster.broker_addresses["broker-a"] == address
        stream = mq.consume("orders", group="g", start_at="first", idle_timeout_s=30)
        found = {message.body for _, message in zip(range(3), stream, strict=False)}
        assert found == {b"1", b"2", b"3"}


def test_a_killed_broker_leaves_the_mark_of_a_crash(tmp_path: Path) -> None:
    with DevCluster(data=tmp_path) as cluster:
        cluster.kill_broker()
        assert (tmp_path / "broker-a" / "abort").exists()
        cluster.start_broker()
        with pytest.raises(ClusterError, match="runs already"):
            cluster.start_broker()
        cluster.stop_broker()
        assert not (tmp_path / "broker-a" / "abort").exists()


def test_a_taken_port_is_named_and_everything_is_taken_back() -> None:
    port = FREE_PORTS.take("127.0.0.1")
    with socket.create_server(("127.0.0.1", port)):
        cluster = DevCluster(plan=ClusterPlan(first_broker_port=port))
        with pytest.raises(PortTakenError, match=f"broker-a cannot listen on 127.0.0.1:{port}"):
            cluster.start()
    with pytest.raises(ClusterError):
        cluster.start_broker()


def test_an_unknown_broker_is_named_with_those_that_exist() -> None:
    with DevCluster(brokers=2) as cluster:
        with pytest.raises(ClusterError, match="no broker 'x'; there are broker-a, broker-b"):
            cluster.stop_broker("x")
        cluster.stop_name_server()
        cluster.start_name_server()
    with pytest.raises(ValueError, match="1 to 26"):
        ClusterPlan(broker_count=27)


def test_free_ports_are_free_and_differ() -> None:
    ports = FreePorts(process_id=4711)
    found = [ports.take("127.0.0.1") for _ in range(20)]
    assert len(set(found)) == 20
    with socket.create_server(("127.0.0.1", found[0])):
        assert not is_free("127.0.0.1", found[0])
