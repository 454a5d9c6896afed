"""A broker that dies under a writing job: nothing is lost, and a job that fails says why."""

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

    def write() -> None:
        try:
            writing.save()
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    job = threading.Thread(target=write)
    job.start()
    for part in (1, 2):
        wait_until(lambda part=part: stored(mortal, "mortal") >= part * ROWS // 8)  # type: ignore[misc]
        mortal.broker.kill()
        mortal.start_broker()
    job.join(300)
    assert not job.is_alive()
    assert not failures, failures
    found = messages(mortal.names.address, "mortal")
    assert {message.body for message in found} == {b"row-%d" % row for row in range(ROWS)}
    # What was sent twice says so.
    by_stamp = dict(zip(stamps(found), (message.body for message in found), strict=True))
    assert len(by_stamp) == ROWS
    assert sorted(by_stamp.values()) == sorted(b"row-%d" % row for row in range(ROWS))


def test_a_broker_that_stays_away_fails_the_job_with_its_address(
    spark: SparkSession, mortal: RocketMQCluster
) -> None:
    mortal.create("gone", 2)
    mortal.broker.kill()
    rows = spark.range(0, 100, 1, 1).selectExpr("cast(id as string) as body")
    writing = (
        rows.write.format("rocketmq")
        .mode("append")
        .options(nameServers=mortal.names.address, topic="gone", deliveryTimeoutMs="3000")
    )
    with pytest.raises(PySparkException) as caught:
        writing.save()
    text = str(caught.value)
    assert "not stored: 100 rows from 0 to 99, topic 'gone'" in text
    assert mortal.broker.address in text
    mortal.start_broker()
    assert messages(mortal.names.address, "gone") == []
