"""Streams in a local Spark: exact row sets over triggers, restarts, failures and lost offsets."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from spark.rocketmq_cluster import BROKER, RocketMQCluster, wait_until

from downrange.model.topics import MessageQueue
from downrange.protocol.headers.admin_topic import DeleteTopicInBrokerRequest
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.request_codes import RequestCode
from downrange.spark import GroupProgressListener
from downrange.spark.cluster import Cluster
from downrange.spark.link import Link

QUERY_S_MAX = 240
STARTS_MAX = 5
NOT_STARTED = "Python worker failed to connect back"


def numbered(prefix: str, count: int, start: int = 0) -> list[bytes]:
    return [f"{prefix}-{number:04d}".encode() for number in range(start, start + count)]


class Collector:
    """Takes the batches of a query; a batch that comes again replaces itself, as in a real sink."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.fail_at: int | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = sorted(bytes(row.body) for row in frame.collect())
        if self.fail_at == batch_id:
            raise RuntimeError("the sink fails after writing")

    @property
    def bodies(self) -> list[bytes]:
        return sorted(body for batch in self.batches.values() for body in batch)

    @property
    def sizes(self) -> list[int]:
        return [len(self.batches[number]) for number in sorted(self.batches)]


def start(
    spark: SparkSession,
    options: dict[str, str],
    sink: Callable[[DataFrame, int], None],
    checkpoint: Path,
    *,
    available_now: bool = True,
) -> StreamingQuery:
    frame = spark.readStream.format("rocketmq").options(**options).load()
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    if available_now:
        writer = writer.trigger(availableNow=True)
    for _ in range(STARTS_MAX - 1):
        query = writer.start()
        wait_until(partial(_is_up, query))
        # Spark waits 10 s for a process of Python to start, which a busy machine may not keep.
        if NOT_STARTED not in str(query.exception()):
            return query
    return writer.start()


def _is_up(query: StreamingQuery) -> bool:
    return not query.isActive or query.lastProgress is not None


def run(
    spark: SparkSession,
    options: dict[str, str],
    sink: Callable[[DataFrame, int], None],
    checkpoint: Path,
) -> StreamingQuery:
    query = start(spark, options, sink, checkpoint)
    assert query.awaitTermination(QUERY_S_MAX), "the query did not end"
    return query


def test_available_now_reads_what_is_there_in_limited_batches_and_goes_on_from_the_checkpoint(
    spark: SparkSession, cluster: RocketMQCluster, tmp_path: Path
) -> None:
    queues = cluster.create("stream", 3)
    cluster.send(queues[0], numbered("a", 50))
    cluster.send(queues[1], numbered("b", 10))
    sink = Collector()
    options = cluster.options(
        "stream", startingOffsets="earliest", maxOffsetsPerTrigger="25", groupId="stream-group"
    )
    query = run(spark, options, sink, tmp_path)
    assert sink.bodies == numbered("a", 50) + numbered("b", 10)
    assert sink.sizes == [25, 25, 10]
    progress = query.lastProgress
    assert progress is not None
    source = progress.sources[0]
    final = {"stream": {BROKER: {"0": 50, "1": 10, "2": 0}}}
    assert json.loads(source.endOffset) == final
    assert json.loads(source.latestOffset) == final
    with Cluster(cluster.connecting) as asked:
        committed = asked.group_offsets("stream-group", queues)
    assert committed == {queues[0]: 50, queues[1]: 10, queues[2]: 0}

    cluster.send(queues[2], numbered("c", 5))
    more = cluster.create("stream", 5)
    cluster.send(more[4], numbered("d", 5))
    run(spark, options, sink, tmp_path)
    assert sink.bodies == (
        numbered("a", 50) + numbered("b", 10) + numbered("c", 5) + numbered("d", 5)
    )
    run(spark, options, sink, tmp_path)
    assert len(sink.bodies) == 70


def test_a_batch_that_was_not_committed_comes_again_as_it_was(
    spark: SparkSession, cluster: RocketMQCluster, tmp_path: Path
) -> None:
    queues = cluster.create("again", 2)
    cluster.send(queues[0], numbered("a", 30))
    sink = Collector()
    sink.fail_at = 1
    options = cluster.options(
        "again", startingOffsets="earliest", maxOffsetsPerTrigger="10", groupId="again-group"
    )
    query = start(spark, options, sink, tmp_path)
    with pytest.raises(PySparkException, match="the sink fails after writing"):
        query.awaitTermination(QUERY_S_MAX)
    failed = sink.batches[1]
    with Cluster(cluster.connecting) as asked:
        # Batch 1 is not in the commit log, so the group is told of batch 0 only.
        assert asked.group_offsets("again-group", queues)[queues[0]] == 10
    sink.fail_at = None
    cluster.send(queues[1], numbered("b", 10))
    run(spark, options, sink, tmp_path)
    assert sink.batches[1] == failed
    assert sink.bodies == numbered("a", 30) + numbered("b", 10)


@pytest.mark.slow
def test_a_stream_begins_at_the_end_unless_told_otherwise_and_lives_through_a_broker_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    with RocketMQCluster(tmp_path / "own") as own:
        queues = own.create("live", 2)
        own.send(queues[0], numbered("old", 5))
        sink = Collector()
        options = own.options("live", groupId="live-group") | {"fetchRetries": "600"}
        listener = GroupProgressListener(options)
        spark.streams.addListener(listener)
        query = start(spark, options, sink, tmp_path / "checkpoint", available_now=False)
        try:
            own.send(queues[0], numbered("a", 7))
            wait_until(lambda: sink.bodies == numbered("a", 7))
            own.broker.stop()
            own.start_broker()
            wait_until(lambda: _sent(own, queues[1], numbered("b", 6)))
            wait_until(lambda: len(sink.bodies) >= 13)
            assert sink.bodies == numbered("a", 7) + numbered("b", 6)
            assert query.isActive
            own.broker.kill()
            own.start_broker()
            wait_until(lambda: _sent(own, queues[0], numbered("c", 3)))
            wait_until(lambda: len(sink.bodies) >= 16)
            with Cluster(own.connecting) as asked:
                final = {queues[0]: 15, queues[1]: 6}
                wait_until(lambda: asked.group_offsets("live-group", queues) == final)
        finally:
            query.stop()
            spark.streams.removeListener(listener)


def _sent(cluster: RocketMQCluster, queue: MessageQueue, bodies: list[bytes]) -> bool:
    cluster.send(queue, bodies)
    return True


@pytest.mark.slow
def test_expired_offsets_are_an_error_or_a_gap(
    spark: SparkSession, cluster: RocketMQCluster, tmp_path: Path
) -> None:
    queue = cluster.create("expired", 1)[0]
    cluster.send(queue, numbered("a", 20))
    sink = Collector()
    options = cluster.options("expired", startingOffsets="earliest")
    run(spark, options, sink, tmp_path)
    # The topic is made anew: what the checkpoint says has never been there.
    link = Link(cluster.broker.address, timeout_s=10.0)
    header = encode_header(DeleteTopicInBrokerRequest(topic="expired"))
    assert link.ask(RequestCode.DELETE_TOPIC_IN_BROKER, header).code == 0
    link.close()
    queue = cluster.create("expired", 1)[0]
    cluster.send(queue, numbered("b", 5))
    with pytest.raises(PySparkException, match="15 offsets are gone"):
        run(spark, options, sink, tmp_path)
    run(spark, options | {"failOnDataLoss": "false"}, sink, tmp_path)
    cluster.send(queue, numbered("c", 4))
    run(spark, options, sink, tmp_path)
    assert sink.bodies == numbered("a", 20) + numbered("c", 4)


@pytest.mark.slow
def test_bytes_per_trigger_bound_a_batch(
    spark: SparkSession, cluster: RocketMQCluster, tmp_path: Path
) -> None:
    queue = cluster.create("bytes", 1)[0]
    cluster.send(queue, [body.ljust(10_000) for body in numbered("a", 40)])
    sink = Collector()
    options = cluster.options("bytes", startingOffsets="earliest", maxBytesPerTrigger="110000")
    run(spark, options, sink, tmp_path)
    assert sink.bodies == [body.ljust(10_000) for body in numbered("a", 40)]
    assert sink.sizes == [10, 10, 10, 10]


@pytest.mark.slow
def test_both_limits_hold_and_filters_do_not_count(
    spark: SparkSession, cluster: RocketMQCluster, tmp_path: Path
) -> None:
    queue = cluster.create("both", 1)[0]
    for number, body in enumerate(numbered("a", 30)):
        cluster.send(queue, [body], tag="odd" if number % 2 else "even")
    sink = Collector()
    options = cluster.options(
        "both",
        startingOffsets="earliest",
        maxOffsetsPerTrigger="10",
        maxBytesPerTrigger="100000000",
        tags="odd",
        fields="body,queueOffset",
    )
    run(spark, options, sink, tmp_path)
    assert sink.sizes == [5, 5, 5]
    assert sink.bodies == numbered("a", 30)[1::2]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"endingOffsets": "latest"}, "is for reading a batch"),
        ({"startingOffsets": '{"wrong": {"broker-a": {"0": 99}}}'}, "ends at 0"),
    ],
)
def test_a_wrong_option_of_a_stream_fails_with_its_name(
    spark: SparkSession,
    cluster: RocketMQCluster,
    tmp_path: Path,
    change: dict[str, str],
    expected: str,
) -> None:
    cluster.create("wrong", 1)
    with pytest.raises(PySparkException) as caught:
        run(spark, cluster.options("wrong") | change, Collector(), tmp_path)
    assert expected.lower() in str(caught.value).lower()
