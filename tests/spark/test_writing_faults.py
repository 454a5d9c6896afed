"""A broker that dies under a writing job: nothing is lost, and a job that fails says why."""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from spark.rocketmq_cluster import RocketMQCluster, wait_until
from spark.written import messages, reader, stamps

pytestmark = pytest.mark.slow

ROWS = 60_000


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[RocketMQCluster]:
    """A cluster of the test's own."""
    with RocketMQCluster(tmp_path) as running:
        yield running


def stored(cluster: RocketMQCluster, topic: str) -> int:
    with reader(cluster.names.address) as consumer:
        return sum(consumer.max_offset(queue) for queue in consumer.fetch_queues(topic))


def test_a_broker_killed_and_started_again_loses_no_row(
    spark: SparkSession, mortal: RocketMQCluster
) -> None:
    mortal.create("mortal", 4)
    rows = spark.range(0, ROWS, 1, 2).selectExpr("concat('row-', id) as body")
    writing = (
        rows.write.format("rocketmq")
        .mode("append")
        .options(
            nameServers=mortal.names.address, topic="mortal", batchBytes="4096", maxInFlight="2"
        )
    )
    failures: list[BaseException] = []

    def kill_twice() -> None:
        try:
            for part in (1, 2):
                wait_until(lambda part=part: stored(mortal, "mortal") >= part * ROWS // 8)  # type: ignore[misc]
                mortal.broker.kill()
                mortal.start_broker()
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    # Not the other way round: in a thread of its own Spark finds no source written in Python.
    killer = threading.Thread(target=kill_twice)
    killer.start()
    writing.save()
    killer.join(120)
    assert not killer.is_alive()
    assert not failures, failures
    found = messages(mortal.names.address, "mortal")
    assert {message.body for message in found} == {b"row-%d" % row for row in range(ROWS)}
    # What was sent twice says so.
    by_stamp = dict(zip(stamps(found), (message.body for message in found), strict=True))
    assert len(by_stamp) == ROWS
    assert sorted(by_stamp.values()) == sorted(b"row-%d" % row for row in range(ROWS))


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "hanging"])
def test_a_broker_that_does_not_answer_fails_the_job_with_the_reason(
    spark: SparkSession, mortal: RocketMQCluster, *, is_killed: bool
) -> None:
    mortal.create("gone", 2)
    if is_killed:
        mortal.broker.kill()
    else:
        mortal.broker.process.send_signal(signal.SIGSTOP)
    rows = spark.range(0, 100, 1, 1).selectExpr("cast(id as string) as body")
    writing = (
        rows.write.format("rocketmq")
        .mode("append")
        .options(
            nameServers=mortal.names.address, topic="gone",
            deliveryTimeoutMs="3000", sendTimeoutMs="1000",
        )
    )  # fmt: skip
    try:
        with pytest.raises(PySparkException) as caught:
            writing.save()
    finally:
        if not is_killed:
            mortal.broker.process.send_signal(signal.SIGCONT)
    text = str(caught.value)
    assert "not stored: 100 rows from 0 to 99, topic 'gone'" in text
    # The name server misses a broker that was killed at once, and one that hangs much later.
    assert ("no route to topic 'gone'" if is_killed else mortal.broker.address) in text
    if is_killed:
        mortal.start_broker()
        assert messages(mortal.names.address, "gone") == []
