"""Batch reads in a local Spark: exact row sets for every option."""

import json
import time
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from spark.rocketmq_cluster import BROKER, RocketMQCluster

from downrange.client.message import Message
from downrange.model.topics import MessageQueue
from downrange.spark import register
from downrange.spark.columns import ALL_COLUMNS, spark_schema


def bodies(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row.body) for row in frame.select("body").collect())


def load(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format("rocketmq").options(**options).load()


def numbered(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}-{number:04d}".encode() for number in range(count)]


@pytest.fixture(scope="module")
def orders(cluster: RocketMQCluster) -> list[MessageQueue]:
    """A topic of three queues with 10, 20 and 0 messages; those of queue 1 are tagged."""
    queues = cluster.create("orders", 3)
    cluster.send(queues[0], numbered("a", 10))
    for number, body in enumerate(numbered("b", 20)):
        cluster.send_one(
            queues[1],
            Message(
                "orders",
                body,
                tag="even" if number % 2 == 0 else "odd",
                keys=[f"k{number}", "all"],
                properties={"price": str(number), "name": f"n{number}"},
            ),
        )
    return queues


def test_all_columns_of_every_message(
    spark: SparkSession, cluster: RocketMQCluster, orders: list[MessageQueue]
) -> None:
    del orders
    before = datetime.now(tz=UTC) - timedelta(hours=1)
    frame = load(spark, cluster.options("orders"))
    assert frame.schema == spark_schema()
    assert frame.columns == list(ALL_COLUMNS)
    rows = sorted(frame.collect(), key=lambda row: (row.queueId, row.queueOffset))
    assert [bytes(row.body) for row in rows] == numbered("a", 10) + numbered("b", 20)
    assert [(row.queueId, row.queueOffset) for row in rows] == [
        *((0, at) for at in range(10)),
        *((1, at) for at in range(20)),
    ]
    assert {(row.topic, row.brokerName, row.reconsumeTimes) for row in rows} == {
        ("orders", BROKER, 0)
    }
    last = rows[-1]
    assert last.tags == "odd"
    assert last["keys"] == "k19 all"
    assert last.properties["price"] == "19"
    assert last.properties["UNIQ_KEY"] == last.uniqueKey
    assert len(last.msgId) == 32
    assert last.bornHost.startswith("127.0.0.1:")
    store_time = last.storeTimestamp.replace(tzinfo=None)
    assert store_time > before.replace(tzinfo=None) - timedelta(days=1)
    assert rows[0].tags is None


def test_columns_named_in_fields_only(
    spark: SparkSession, cluster: RocketMQCluster, orders: list[MessageQueue]
) -> None:
    del orders
    frame = load(spark, cluster.options("orders", fields="queueOffset, Body,sinkId"))
    assert frame.columns == ["queueOffset", "body", "sinkId"]
    assert bodies(frame) == numbered("a", 10) + numbered("b", 20)
    assert frame.where("sinkId is not null").count() == 0


def test_without_properties(
    spark: SparkSession, cluster: RocketMQCluster, orders: list[MessageQueue]
) -> None:
    del orders
    frame = load(spark, cluster.options("orders", includeProperties="false"))
    assert frame.where("properties is not null").count() == 0
    assert frame.where("tags = 'odd'").count() == 10


def test_offsets_of_single_queues(
    spark: SparkSession, cluster: RocketMQCluster, orders: list[MessageQueue]
) -> None:
    del orders
    start = json.dumps({"orders": {BROKER: {"0": 7, "1": -2, "2": -1}}})
    end = json.dumps({"orders": {BROKER: {"0": -1, "1": 3}}})
    frame = load(spark, cluster.options("orders", startingOffsets=start, endingOffsets=end))
    assert bodies(frame) == numbered("a", 10)[7:] + numbered("b", 20)[:3]
    nothing = load(spark, cluster.options("orders", startingOffsets="latest"))
    assert bodies(nothing) == []


def test_times_of_messages(spark: SparkSession, cluster: RocketMQCluster) -> None:
    queues = cluster.create("timed", 2)
    for round_ in range(3):
        cluster.send(queues[round_ % 2], numbered(f"r{round_}", 4))
        time.sleep(0.03)  # the next round gets another millisecond
    rows = load(spark, cluster.options("timed")).select("body", "storeTimestamp").collect()
    by_round = {bytes(row.body)[:2]: row.storeTimestamp for row in rows}
    # Collected times are naive in the zone of the driver.
    middle_ms = round(by_round[b"r1"].timestamp() * 1000)
    last_ms = round(by_round[b"r2"].timestamp() * 1000)
    assert bodies(load(spark, cluster.options("timed", startingTimestamp=str(middle_ms)))) == (
        numbered("r1", 4) + numbered("r2", 4)
    )
    assert bodies(
        load(
            spark,
            cluster.options(
                "timed", startingTimestamp=str(middle_ms), endingTimestamp=str(last_ms)
            ),
        )
    ) == numbered("r1", 4)
    per_topic = json.dumps({"timed": last_ms})
    assert bodies(
        load(spark, cluster.options("timed", startingOffsetsByTimestamp=per_topic))
    ) == numbered("r2", 4)
    assert bodies(load(spark, cluster.options("timed", endingOffsetsByTimestamp=per_topic))) == (
        numbered("r0", 4) + numbered("r1", 4)
    )


def test_tags_and_sql92_are_filtered_by_the_broker(
    spark: SparkSession, cluster: RocketMQCluster, orders: list[MessageQueue]
) -> None:
    del orders
    all_b = numbered("b", 20)
    assert bodies(load(spark, cluster.options("orders", tags="even"))) == all_b[0::2]
    assert bodies(load(spark, cluster.options("orders", tags="even || odd"))) == all_b
    assert bodies(load(spark, cluster.options("orders", tags="none"))) == []
    assert bodies(load(spark, cluster.options("orders", sql92="price > 16"))) == all_b[17:]
    # Tags with one hash: the broker lets both through, the reader does not.
    queue = cluster.create("hashes", 1)[0]
    cluster.send(queue, [b"first"], tag="Aa")
    cluster.send(queue, [b"second"], tag="BB")
    frame = load(spark, cluster.options("hashes", tags="Aa", fields="body"))
    assert bodies(frame) == [b"first"]


def test_patterns_and_single_queues(
    spark: SparkSession, cluster: RocketMQCluster, orders: list[MessageQueue]
) -> None:
    del orders
    for name in ("pattern-1", "pattern-2", "pattern-other"):
        cluster.send(cluster.create(name, 2)[1], [name.encode()])
    options = cluster.options("x")
    del options["subscribe"]
    frame = load(spark, options | {"subscribePattern": "pattern-[0-9]"})
    assert bodies(frame) == [b"pattern-1", b"pattern-2"]
    assigned = json.dumps({"orders": {BROKER: [0]}, "pattern-other": {BROKER: [0, 1]}})
    assert bodies(load(spark, options | {"assign": assigned})) == [
        *numbered("a", 10),
        b"pattern-other",
    ]
    several = cluster.options("pattern-1,pattern-other")
    assert bodies(load(spark, several)) == [b"pattern-1", b"pattern-other"]


def test_ranges_are_split_and_every_message_comes_once(
    spark: SparkSession, cluster: RocketMQCluster
) -> None:
    queues = cluster.create("split", 2)
    cluster.send(queues[0], numbered("s", 1000))
    cluster.send(queues[1], numbered("t", 10))
    frame = load(spark, cluster.options("split", minPartitions="7", pullBatchSize="33"))
    assert frame.rdd.getNumPartitions() == 8
    assert bodies(frame) == numbered("s", 1000) + numbered("t", 10)
    frame = load(spark, cluster.options("split", maxRecordsPerPartition="300", checkCrc="true"))
    assert frame.rdd.getNumPartitions() == 5
    assert bodies(frame) == numbered("s", 1000) + numbered("t", 10)


def test_64_queues_large_bodies_and_an_empty_topic(
    spark: SparkSession, cluster: RocketMQCluster
) -> None:
    queues = cluster.create("wide", 64)
    for queue in queues:
        cluster.send(queue, [f"q{queue.queue_id:02d}".encode()])
    frame = load(spark, cluster.options("wide"))
    assert bodies(frame) == [f"q{number:02d}".encode() for number in range(64)]
    large = cluster.create("large", 2)
    sent = [bytes([number]) * 1_000_000 for number in range(6)]
    for number, body in enumerate(sent):
        cluster.send(large[number % 2], [body])
    assert bodies(load(spark, cluster.options("large", fields="body"))) == sent
    cluster.create("empty", 4)
    empty = load(spark, cluster.options("empty"))
    assert empty.count() == 0
    assert empty.columns == list(ALL_COLUMNS)


def test_repeats_of_the_sink_are_dropped_when_asked_to(
    spark: SparkSession, cluster: RocketMQCluster
) -> None:
    queue = cluster.create("repeats", 1)[0]
    ids = ["q:1:0:0", "q:1:0:1", None, "q:1:0:1", "q:1:0:0", None, "q:2:0:0", "odd", "odd"]
    for number, sink_id in enumerate(ids):
        message = Message("repeats", b"%d" % number)
        if sink_id is not None:
            message.properties["__DOWNRANGE_SINK_ID"] = sink_id
        cluster.send_one(queue, message)
    options = cluster.options("repeats", fields="body", minPartitions="4")
    assert bodies(load(spark, options)) == [b"%d" % number for number in range(9)]
    assert bodies(load(spark, options | {"dropDuplicates": "true"})) == [
        b"0", b"1", b"2", b"5", b"6", b"7",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"colour": "red"}, "option 'colour' is unknown"),
        ({"startingOffsets": "soon"}, "startingOffsets"),
        ({"fields": "body,colour"}, "'colour' is no column"),
        ({"secretKey": "TopSecret1"}, "'accessKey' and 'secretKey'"),
        ({"maxOffsetsPerTrigger": "5"}, "is for reading a stream"),
        ({"subscribe": "not-there", "fetchRetries": "0"}, "not-there"),
        ({"startingOffsets": '{"orders": {"broker-a": {"9": 1}}}'}, "queue 9 of topic 'orders'"),
        ({"endingOffsets": '{"orders": {"broker-a": {"0": 11}}}'}, "which ends at 10"),
        ({"startingOffsets": '{"orders": {"broker-a": {"0": 11}}}'}, "ends at 10"),
    ],
)
def test_a_wrong_option_fails_with_its_name(
    spark: SparkSession,
    cluster: RocketMQCluster,
    orders: list[MessageQueue],
    change: dict[str, str],
    expected: str,
) -> None:
    del orders
    with pytest.raises(PySparkException) as caught:
        load(spark, cluster.options("orders") | change).count()
    assert expected.lower() in str(caught.value).lower()
    assert "TopSecret1" not in str(caught.value)


def test_filters_reach_the_source_only_when_spark_is_told_so(
    spark: SparkSession, cluster: RocketMQCluster, orders: list[MessageQueue]
) -> None:
    del orders
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        register(spark)
        frame = load(spark, cluster.options("orders"))
        one_queue = frame.where("queueId = 1 and queueOffset >= 5 and queueOffset < 8")
        assert bodies(one_queue) == numbered("b", 20)[5:8]
        assert one_queue.rdd.getNumPartitions() == 1
        assert bodies(frame.where("tags = 'odd'")) == numbered("b", 20)[1::2]
        assert bodies(frame.where("topic = 'other'")) == []
        rows = frame.where("queueId = 1").select("storeTimestamp", "body").collect()
        times = sorted(row.storeTimestamp for row in rows)
        for zone in ("UTC", "Asia/Shanghai"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            found = frame.where(frame.storeTimestamp >= times[10]).select("body").collect()
            expected = [bytes(row.body) for row in rows if row.storeTimestamp >= times[10]]
            assert sorted(bytes(row.body) for row in found) == sorted(expected)
            before = frame.where(frame.storeTimestamp < times[10]).where("queueId = 1")
            expected = [bytes(row.body) for row in rows if row.storeTimestamp < times[10]]
            assert bodies(before) == sorted(expected)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
        register(spark)
    assert (
        bodies(load(spark, cluster.options("orders")).where("tags = 'odd'"))
        == (numbered("b", 20)[1::2])
    )


def test_no_secret_in_any_plan(
    spark: SparkSession, cluster: RocketMQCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create("secret", 1)
    frame = load(
        spark,
        cluster.options(
            "secret", accessKey="someone", secretKey="TopSecret1", securityToken="T0k3n"
        ),
    )
    frame.explain(mode="extended")
    frame.explain(mode="formatted")
    plans = capsys.readouterr().out
    plans += frame._jdf.queryExecution().toString()
    assert "TopSecret1" not in plans
    assert "T0k3n" not in plans
    assert frame.count() == 0
