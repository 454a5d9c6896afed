"""What can go wrong in a cluster: a table of faults, each of which strikes, lasts and is over.

To add one: write a coroutine function that takes the cluster, a random source and a duration, makes
the trouble, waits, and puts things right; then name it in FAULTS.
"""

import errno
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from simulation.cluster import BROKERS, TOPICS, Cluster
from simulation.machine import SYNC_S_MAX
from simulation.network import DELAY_S_MAX
from simulation.waiting import pass_time

Fault = Callable[[Cluster, random.Random, float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault at a time; the seed decides what it hits, whatever else happens."""

    at_s: float
    fault: str
    seed: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.fault} at {self.at_s:.2f} s for {self.seconds:.2f} s"


async def delay(cluster: Cluster, rng: random.Random, seconds: float) -> None:
    """A host answers late."""
    host = rng.choice((*BROKERS, "ns"))
    cluster.note("delay", host)
    cluster.network.delay_s_max = 1.0
    cluster.network.delay(host, 1.0)
    await pass_time(seconds)
    cluster.network.delay_s_max = DELAY_S_MAX
    cluster.network.delay(host, DELAY_S_MAX)
    cluster.note("delay", host, is_over=True)


async def drop(cluster: Cluster, rng: random.Random, _seconds: float) -> None:
    """Connections die and nobody hears of it."""
    host = rng.choice(BROKERS)
    cluster.network.lose(host, rng.choice((0.3, 1.0)))
    cluster.note("drop", host)


async def partition(cluster: Cluster, rng: random.Random, seconds: float) -> None:
    """A broker and some other hosts do not hear of each other."""
    broker = rng.choice(BROKERS)
    others = ["ns", "p1", "p2", *(name for name in cluster.consumers)]
    cut_off = [host for host in others if rng.random() < 0.5]
    cluster.note("partition", broker)
    for host in cut_off:
        cluster.network.part(broker, host)
    await pass_time(seconds)
    for host in cut_off:
        cluster.network.join(broker, host)
    cluster.note("partition", broker, is_over=True)


async def reordering(cluster: Cluster, rng: random.Random, seconds: float) -> None:
    """Each connection has a delay of its own, so that what was sent later arrives earlier."""
    cluster.note("reordering", "everybody")
    cluster.network.delay_s_max = 0.3
    for host in BROKERS:
        cluster.network.delay(host, rng.choice((0.1, 0.5)))
    await pass_time(seconds)
    cluster.network.delay_s_max = DELAY_S_MAX
    for host in BROKERS:
        cluster.network.delay(host, DELAY_S_MAX)
    cluster.note("reordering", "everybody", is_over=True)


async def crash(cluster: Cluster, rng: random.Random, seconds: float) -> None:
    """A broker is killed and starts again."""
    name = rng.choice(BROKERS)
    machine = cluster.machines[name]
    if machine.broker is None:
        return
    cluster.note("crash", name)
    await machine.kill()
    await pass_time(seconds)
    await _start_again(cluster, name)
    cluster.note("crash", name, is_over=True)


async def power_cut(cluster: Cluster, rng: random.Random, seconds: float) -> None:
    """A machine loses power; at the step of a drive or at any other instant."""
    name = rng.choice(BROKERS)
    machine = cluster.machines[name]
    if machine.broker is None:
        return
    if rng.random() < 0.5:
        machine.cut_power_at_step(rng.randrange(1, 60))
        for _ in range(20):
            if machine.has_power:
                await pass_time(0.1)
    if machine.has_power and machine.broker is not None:
        machine.cut_power()
    cluster.note("power cut", name)
    machine.drive.before_step.clear()
    await machine.kill()
    await pass_time(seconds)
    await _start_again(cluster, name)
    cluster.note("power cut", name, is_over=True)


async def _start_again(cluster: Cluster, name: str) -> None:
    if cluster.machines[name].broker is None:  # another fault may have been quicker
        await cluster.start_broker(name)


async def full_disk(cluster: Cluster, rng: random.Random, seconds: float) -> None:
    """Nothing more fits on the disk of a broker."""
    name = rng.choice(BROKERS)
    drive = cluster.machines[name].drive

    def refuse(operation: str, path: Path) -> None:
        if operation in {"write", "allocate", "open_file", "make_directory"}:
            raise OSError(errno.ENOSPC, "the disk is full", str(path))

    cluster.note("full disk", name)
    drive.before_step.append(refuse)
    await pass_time(seconds)
    if refuse in drive.before_step:
        drive.before_step.remove(refuse)
    cluster.note("full disk", name, is_over=True)


async def slow_disk(cluster: Cluster, rng: random.Random, seconds: float) -> None:
    """Syncs and saves of a broker take long."""
    name = rng.choice(BROKERS)
    machine = cluster.machines[name]
    cluster.note("slow disk", name)
    machine.sync_s_max = rng.choice((0.5, 3.0, 8.0))
    await pass_time(seconds)
    machine.sync_s_max = SYNC_S_MAX
    cluster.note("slow disk", name, is_over=True)


async def clock_jump(cluster: Cluster, rng: random.Random, _seconds: float) -> None:
    """Somebody sets the clock of a broker."""
    name = rng.choice(BROKERS)
    cluster.note("clock jump", name)
    cluster.machines[name].clock.ahead_ms += rng.choice((-3_600_000, -10_000, 10_000, 3_600_000))


async def consumer_death(cluster: Cluster, rng: random.Random, seconds: float) -> None:
    """A consumer disappears, and another one joins later."""
    topic = rng.choice(TOPICS)
    alive = [
        name
        for name in cluster.consumers
        if name.endswith(topic) and name not in cluster.dead_consumers
    ]
    if len(alive) < 2:
        return
    name = rng.choice(alive)
    cluster.note("consumer death", name)
    cluster.kill_consumer(name)
    await pass_time(seconds)
    await cluster.start_consumer(topic)
    cluster.note("consumer death", name, is_over=True)


async def name_server_restart(cluster: Cluster, _rng: random.Random, seconds: float) -> None:
    """The name server is gone for a while and comes back knowing nothing."""
    cluster.note("name server restart", "ns")
    await cluster.stop_name_server()
    await pass_time(seconds)
    await cluster.start_name_server()
    cluster.note("name server restart", "ns", is_over=True)


FAULTS: dict[str, Fault] = {
    "delay": delay,
    "drop": drop,
    "partition": partition,
    "reordering": reordering,
    "crash": crash,
    "power cut": power_cut,
    "full disk": full_disk,
    "slow disk": slow_disk,
    "clock jump": clock_jump,
    "consumer death": consumer_death,
    "name server restart": name_server_restart,
}


def plan_of(rng: random.Random, horizon_s: float) -> list[Strike]:
    """Some faults at random times; those of one kind do not overlap."""
    plan: list[Strike] = []
    names = rng.sample(sorted(FAULTS), rng.randrange(1, 6))
    for name in names:
        at_s = rng.uniform(1.0, horizon_s)
        seconds = rng.choice((0.5, 2.0, 6.0))
        plan.append(Strike(at_s, name, rng.getrandbits(32), seconds))
    return sorted(plan, key=lambda strike: strike.at_s)
