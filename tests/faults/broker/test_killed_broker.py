"""A broker killed again and again under load: nothing that it acknowledged is lost."""

import asyncio
from pathlib import Path

import pytest
from faults.broker.cluster import SYNC_FLUSH, Cluster
from faults.broker.peers import RecordProperty, pause
from faults.broker.traffic import Ledger, Producer, Readers, read_everything
from faults.stores import Trial, the_seed, trial

ROUNDS = 20
LONG_ROUNDS = 200
PRODUCERS = 3
LOAD_SECONDS_MAX = 0.3
START_SECONDS = 0.5  # about as long as a start takes, to kill in the middle of one


async def killed_while_starting(cluster: Cluster, rng: Trial) -> None:
    """Start the broker and kill it, most likely before it is up."""
    await asyncio.to_thread(cluster.start_broker, ready="")
    await pause(rng.random() * START_SECONDS)
    cluster.broker.kill()


async def killed_under_load(cluster: Cluster, producers: list[Producer], rng: Trial) -> None:
    """Start the broker, load it, kill it at some instant."""
    await asyncio.to_thread(cluster.start_broker)
    end = asyncio.Event()
    work = asyncio.gather(*(producer.run(end) for producer in producers))
    await pause(rng.random() * LOAD_SECONDS_MAX)
    cluster.broker.kill()
    end.set()
    await work


async def kill_rounds(cluster: Cluster, rng: Trial, rounds: int) -> str:
    ledger = Ledger(the_seed())
    cluster.start_names()
    producers = [Producer(f"p{n}", cluster.broker_address, ledger) for n in range(PRODUCERS)]
    async with Readers(cluster.broker_address, ledger) as readers:
        for number in range(rounds):
            rng.case = f"round {number}"
            if number % 5 == 4:
                ledger.seen["killed while starting"] += 1
                await killed_while_starting(cluster, rng)
            else:
                await killed_under_load(cluster, producers, rng)
        rng.case = "the end"
        await asyncio.to_thread(cluster.start_broker)
        for producer in producers:  # it serves as before
            await producer.run(asyncio.Event(), count_max=10)
        await readers.catch_up()
    await read_everything(cluster.broker_address, ledger)
    ledger.check()
    cluster.broker.stop()
    assert cluster.broker.process.returncode == 0
    cluster.check_logs()
    assert ledger.seen["acknowledged"] > rounds * 10
    files = {
        folder: sum(1 for path in (cluster.store / folder).rglob("*") if path.is_file())
        for folder in ("commitlog", "consumequeue", "index")
    }
    assert files["commitlog"] > 1, "no file was ever full"
    return f"rounds={rounds} {ledger.report()} files={files}"


def test_a_broker_killed_twenty_times_loses_nothing_that_it_acknowledged(
    scratch: Path, record_property: RecordProperty
) -> None:
    name = "test_a_broker_killed_twenty_times_loses_nothing_that_it_acknowledged"
    with trial(name) as rng, Cluster(scratch, SYNC_FLUSH) as cluster:
        record_property("seen", asyncio.run(kill_rounds(cluster, rng, ROUNDS)))


@pytest.mark.long
def test_a_broker_killed_two_hundred_times_loses_nothing_that_it_acknowledged(
    tmp_path: Path, record_property: RecordProperty
) -> None:
    name = "test_a_broker_killed_two_hundred_times_loses_nothing_that_it_acknowledged"
    with trial(name) as rng, Cluster(tmp_path, SYNC_FLUSH) as cluster:
        record_property("seen", asyncio.run(kill_rounds(cluster, rng, LONG_ROUNDS)))
