"""A broker that stands still for a while: who waits is told in time, then everything goes on."""

import asyncio
import signal
import time
from pathlib import Path

import pytest
from faults.broker.cluster import SYNC_FLUSH, Cluster
from faults.broker.peers import Peer, RecordProperty, pause
from faults.broker.routes import brokers_of, wait_for_route
from faults.broker.traffic import TOPIC, Ledger, Producer, Readers, read_everything
from faults.stores import the_seed, trial

from downrange.remoting.errors import RequestTimeoutError

STOPPED_SECONDS = 2.0
LONG_STOPPED_SECONDS = 30.0
EXPIRED_SECONDS = 135.0  # beyond the 120 s after which a name server forgets a silent broker
DEADLINE_SECONDS = 0.5
LATE_SECONDS_MAX = 15.0  # a busy machine wakes a process late


async def call_until(address: str, end_s: float) -> int:
    """Call a broker that stands still, on old and new connections; every call ends in time."""
    calls = 0
    peer = Peer(address)
    while time.monotonic() < end_s:
        start_s = time.monotonic()
        with pytest.raises(RequestTimeoutError, match=f"{address} did not answer code 310 in"):
            await peer.send("unknown-outcome", b"body", timeout_s=DEADLINE_SECONDS)
        assert time.monotonic() - start_s < DEADLINE_SECONDS + LATE_SECONDS_MAX
        calls += 1
        if calls % 2:
            peer.close()
    peer.close()
    return calls


async def stop_and_go_on(cluster: Cluster, seconds: float, *, is_forgotten: bool) -> str:
    ledger = Ledger(the_seed())
    cluster.start_names()
    broker = await asyncio.to_thread(cluster.start_broker)
    producers = [Producer(f"p{n}", broker.address, ledger, DEADLINE_SECONDS) for n in range(3)]
    async with Readers(broker.address, ledger) as readers:
        end = asyncio.Event()
        work = asyncio.gather(*(producer.run(end) for producer in producers))
        await pause(0.5)
        broker.process.send_signal(signal.SIGSTOP)
        calls = await call_until(broker.address, time.monotonic() + seconds)
        await work  # those in flight were told too
        kept = await brokers_of(cluster.names_address, "TBW102")
        assert kept == ([] if is_forgotten else [broker.address])
        broker.process.send_signal(signal.SIGCONT)
        again_s = await wait_for_route(cluster.names_address, TOPIC, [broker.address])
        for producer in producers:
            await producer.run(asyncio.Event(), count_max=20)
        await readers.catch_up()
    await read_everything(broker.address, ledger)
    ledger.check()
    broker.stop()
    assert broker.process.returncode == 0
    cluster.check_logs()
    return (
        f"stopped={seconds}s calls_that_ended_in_time={calls} routed_again_after={again_s:.1f}s "
        f"{ledger.report()}"
    )


def test_a_broker_that_stands_still_for_a_moment_loses_nothing(
    scratch: Path, record_property: RecordProperty
) -> None:
    name = "test_a_broker_that_stands_still_for_a_moment_loses_nothing"
    with trial(name), Cluster(scratch, SYNC_FLUSH) as cluster:
        seen = asyncio.run(stop_and_go_on(cluster, STOPPED_SECONDS, is_forgotten=False))
        record_property("seen", seen)


@pytest.mark.long
def test_a_broker_that_stands_still_for_half_a_minute_loses_nothing(
    tmp_path: Path, record_property: RecordProperty
) -> None:
    name = "test_a_broker_that_stands_still_for_half_a_minute_loses_nothing"
    with trial(name), Cluster(tmp_path, SYNC_FLUSH) as cluster:
        seen = asyncio.run(stop_and_go_on(cluster, LONG_STOPPED_SECONDS, is_forgotten=False))
        record_property("seen", seen)


@pytest.mark.long
def test_a_broker_that_was_forgotten_while_it_stood_still_registers_again(
    tmp_path: Path, record_property: RecordProperty
) -> None:
    name = "test_a_broker_that_was_forgotten_while_it_stood_still_registers_again"
    with trial(name), Cluster(tmp_path, SYNC_FLUSH) as cluster:
        seen = asyncio.run(stop_and_go_on(cluster, EXPIRED_SECONDS, is_forgotten=True))
        record_property("seen", seen)
