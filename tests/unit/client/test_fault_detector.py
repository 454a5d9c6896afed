"""Brokers that do not answer are left alone until they answer again."""

from pathlib import Path

import pytest
from unit.broker.one_broker import pass_time
from unit.client.producing import producer_of, settings

from downrange.client.errors import RocketMQError
from downrange.client.message import Message
from downrange.client.producer import Producer
from downrange.client.queue_choice import FaultTable
from downrange.testing.cluster import MemoryCluster
from downrange.testing.virtual_time import run


def test_a_broker_is_asked_once_in_an_interval() -> None:
    faults = FaultTable()
    faults.update("a", 1, 0, failed=True, reachable=False)
    assert faults.due(100, 2_000) == ["a"]
    assert faults.due(2_099, 2_000) == []
    assert faults.due(2_100, 2_000) == ["a"]
    assert faults.reached("a")
    assert not faults.reached("a"), "it is no news a second time"
    faults.forget("a")
    assert faults.due(9_000, 2_000) == []
    assert not faults.reached("a")


async def _brokers(producer: Producer, count: int) -> set[str]:
    return {(await producer.send(Message("orders", b"x"))).queue.broker_name for _ in range(count)}


def test_who_is_silent_is_left_until_he_answers(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=("a", "b")) as cluster:
            chosen = settings(
                latency_fault_tolerance=True,
                fault_detector=True,
                send_timeout_s=4.0,
                send_timeout_per_try_s=1.0,
            )
            async with producer_of(cluster, settings=chosen) as producer:
                assert await _brokers(producer, 16) == {"a", "b"}
                links = cluster.network.links_to(cluster.broker_port("a"))
                for link in links:
                    link.is_deaf = True
                assert await _brokers(producer, 16) == {"b"}
                assert producer._sender is not None
                faults = producer._sender.faults
                assert faults is not None
                assert not faults.is_reachable("a")
                await pass_time(12)
                assert not faults.is_reachable("a"), "asked, and still silent"
                for link in links:
                    link.is_deaf = False
                await pass_time(6)
                assert faults.is_reachable("a")
                assert await _brokers(producer, 16) == {"a", "b"}

    run(main())


def test_a_broker_that_is_gone_from_the_routes_is_forgotten(tmp_path: Path) -> None:
    async def main() -> None:
        async with MemoryCluster(tmp_path, broker_names=("a",)) as cluster:
            chosen = settings(latency_fault_tolerance=True, fault_detector=True)
            async with producer_of(cluster, settings=chosen) as producer:
                await producer.send(Message("orders", b"x"))
                assert producer._sender is not None
                faults = producer._sender.faults
                assert faults is not None
                faults.update("gone", 1, 0, failed=True, reachable=False)
                await pass_time(4)
                assert faults.is_reachable("gone"), "nothing is remembered of it"

    run(main())


def test_a_detector_needs_what_it_works_for() -> None:
    with pytest.raises(RocketMQError, match="latency_fault_tolerance; switch that on"):
        settings(fault_detector=True)
