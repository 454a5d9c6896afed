"""A name server that dies, hangs or is not there yet: the broker serves, and registers again."""

import asyncio
import signal
import time
from pathlib import Path

from faults.broker.cluster import Cluster
from faults.broker.peers import Peer, RecordProperty, records
from faults.broker.routes import brokers_of, wait_for_route
from faults.stores import trial

SEND_SECONDS_MAX = 3.0  # as long as a RocketMQ producer waits
SLACK_SECONDS = 10.0  # for a busy machine


async def send_and_pull(peer: Peer, topic: str, body: bytes, offset: int = 0) -> float:
    """One message in and out; returns how long the broker took to take it."""
    start_s = time.monotonic()
    answer = await peer.send(topic, body, timeout_s=SEND_SECONDS_MAX + SLACK_SECONDS)
    took_s = time.monotonic() - start_s
    assert answer.code == 0, answer
    assert [one.body for one in records(await peer.pull(topic, offset))] == [body]
    return took_s


async def dies_and_comes_back(cluster: Cluster) -> str:
    cluster.start_names()
    broker = await asyncio.to_thread(cluster.start_broker)
    peer = Peer(broker.address)
    await send_and_pull(peer, "before", b"1")
    assert await brokers_of(cluster.names_address, "before") == [broker.address]
    cluster.names.kill()
    await send_and_pull(peer, "before", b"2", offset=1)
    created_s = await send_and_pull(peer, "meanwhile", b"3")
    await asyncio.to_thread(cluster.start_names)
    back_s = await wait_for_route(cluster.names_address, "before", [broker.address])
    assert await brokers_of(cluster.names_address, "meanwhile") == [broker.address]
    peer.close()
    broker.stop()
    # A broker that goes says so: nobody is sent to it any more.
    assert await brokers_of(cluster.names_address, "before") == []
    assert "knows this broker again" in broker.log
    cluster.check_logs()
    return f"topic_created_in={created_s:.2f}s routes_back_after={back_s:.2f}s"


async def starts_later(cluster: Cluster) -> str:
    broker = await asyncio.to_thread(cluster.start_broker)
    peer = Peer(broker.address)
    await send_and_pull(peer, "early", b"1")
    assert "does not know this broker" in broker.log
    await asyncio.to_thread(cluster.start_names)
    known_s = await wait_for_route(cluster.names_address, "early", [broker.address])
    peer.close()
    broker.stop()
    cluster.check_logs()
    return f"known_after={known_s:.2f}s"


async def hangs(cluster: Cluster) -> str:
    names = cluster.start_names()
    broker = await asyncio.to_thread(cluster.start_broker)
    peer = Peer(broker.address)
    await send_and_pull(peer, "before", b"1")
    names.process.send_signal(signal.SIGSTOP)
    await send_and_pull(peer, "before", b"2", offset=1)
    created_s = await send_and_pull(peer, "meanwhile", b"3")
    peer.close()
    start_s = time.monotonic()
    await asyncio.to_thread(broker.stop)
    stopped_s = time.monotonic() - start_s
    # The next one starts while the name server still hangs.
    broker = await asyncio.to_thread(cluster.start_broker, ready="")
    peer = Peer(broker.address)
    await peer.wait_until_reachable()
    await send_and_pull(peer, "before", b"4", offset=2)
    names.process.send_signal(signal.SIGCONT)
    back_s = await wait_for_route(cluster.names_address, "meanwhile", [broker.address])
    peer.close()
    broker.stop()
    cluster.check_logs()
    return f"created_in={created_s:.2f}s stopped_in={stopped_s:.2f}s back_after={back_s:.2f}s"


def test_a_broker_outlives_its_name_server(scratch: Path, record_property: RecordProperty) -> None:
    with trial("test_a_broker_outlives_its_name_server"), Cluster(scratch) as cluster:
        record_property("seen", asyncio.run(dies_and_comes_back(cluster)))


def test_a_broker_starts_without_a_name_server(
    scratch: Path, record_property: RecordProperty
) -> None:
    with trial("test_a_broker_starts_without_a_name_server"), Cluster(scratch) as cluster:
        record_property("seen", asyncio.run(starts_later(cluster)))


def test_a_name_server_that_hangs_does_not_hold_up_a_broker(
    scratch: Path, record_property: RecordProperty
) -> None:
    name = "test_a_name_server_that_hangs_does_not_hold_up_a_broker"
    with trial(name), Cluster(scratch) as cluster:
        record_property("seen", asyncio.run(hangs(cluster)))
