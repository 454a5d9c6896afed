"""Thousands of idle connections: they cost memory that is known, and the others nothing."""

import asyncio
import contextlib
import resource
import socket
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from faults.broker.cluster import Cluster
from faults.broker.peers import Peer, RecordProperty, own_memory_kib, records
from faults.stores import trial

CONNECTIONS = 2_000
FILES_BESIDE = 300  # that a process has open besides
CALLS = 200
KIB_EACH_MAX = 40


@contextlib.contextmanager
def many_files(count: int) -> Iterator[int]:
    """Let this process and those that it starts open so many files; gives how many it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    try:
        yield max(soft, most)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def median_ms(peer: Peer, topic: str) -> float:
    """Milliseconds that a send and the pull of the same message take."""
    times = []
    for number in range(CALLS):
        start_s = time.perf_counter()
        assert (await peer.send(topic, b"%d" % number)).code == 0
        assert [one.body for one in records(await peer.pull(topic, number))] == [b"%d" % number]
        times.append(time.perf_counter() - start_s)
    return statistics.median(times) * 1000


async def idle_connections(cluster: Cluster, count: int) -> str:
    cluster.start_names()
    broker = await asyncio.to_thread(cluster.start_broker)
    host, _, port = broker.address.rpartition(":")
    good = Peer(broker.address)
    alone_ms = await median_ms(good, "alone")
    before_kib = own_memory_kib(broker.process.pid)
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=20))
        late = Peer(broker.address)  # the last one in the line is accepted, so all are
        assert (await late.send("late", b"body")).code == 0
        beside_ms = await median_ms(good, "beside")
        during_kib = own_memory_kib(broker.process.pid)
    assert (await late.send("late", b"body")).code == 0  # and when all have left at once
    late.close()
    good.close()
    broker.stop()
    cluster.check_logs()
    each_kib = (during_kib - before_kib) / count
    assert each_kib < KIB_EACH_MAX
    return (
        f"connections={count} memory_each={each_kib:.1f}KiB "
        f"send_and_pull_alone={alone_ms:.2f}ms beside={beside_ms:.2f}ms"
    )


def test_two_thousand_idle_connections_harm_nobody(
    scratch: Path, record_property: RecordProperty
) -> None:
    name = "test_two_thousand_idle_connections_harm_nobody"
    wanted = CONNECTIONS + FILES_BESIDE
    with trial(name), many_files(wanted) as possible, Cluster(scratch) as cluster:
        count = min(CONNECTIONS, possible - FILES_BESIDE)  # fewer where the system allows fewer
        record_property("seen", asyncio.run(idle_connections(cluster, count)))
