"""Rows of DataFrames and streams arrive in topics as they are, or the job says why not."""

import uuid
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from spark.rocketmq_cluster import RocketMQCluster
from spark.written import await_messages, bodies, messages, stamps

from downrange.protocol.java_hash import java_hash


@pytest.fixture
def topic() -> str:
    return f"written-{uuid.uuid4().hex[:8]}"


def write(frame: DataFrame, cluster: RocketMQCluster, **options: str) -> None:
    given = {"nameServers": cluster.names.address, **options}
    frame.write.format("rocketmq").options(**given).mode("append").save()


def test_every_row_is_there_once_with_its_columns(
    spark: SparkSession, cluster: RocketMQCluster, topic: str
) -> None:
    cluster.create(topic, 4)
    frame = spark.range(0, 20_000, 1, 3).selectExpr(
        "concat('body-', id) as body",
        "if(id % 2 = 0, 'even', null) as tags",
        "concat('k', id, ' all') as keys",
        "if(id % 5 = 0, null, map('n', cast(id as string))) as properties",
    )
    write(frame, cluster, topic=topic, batchBytes="20000")
    found = messages(cluster.names.address, topic)
    assert bodies(found) == sorted(b"body-%d" % number for number in range(20_000))
    assert {message.queue_id for message in found} == {0, 1, 2, 3}
    for message in found:
        number = int(message.body.removeprefix(b"body-"))
        assert message.tag == ("even" if number % 2 == 0 else None)
        assert message.keys == [f"k{number}", "all"]
        assert message.properties.get("n") == (None if number % 5 == 0 else str(number))
    ids = stamps(found)
    assert len(set(ids)) == 20_000
    (job,) = {one.split("::")[0] for one in ids}
    assert job
    assert {one.split("::")[1].split(":")[0] for one in ids} == {"0", "1", "2"}
    assert len({message.message_id for message in found}) == 20_000


def test_topics_queues_ordering_keys_and_delays_come_from_columns(
    spark: SparkSession, cluster: RocketMQCluster, topic: str
) -> None:
    one, two, late = f"{topic}-1", f"{topic}-2", f"{topic}-3"
    for name in (one, two, late):
        cluster.create(name, 4)
    keyed = spark.range(0, 2_000, 1, 1).selectExpr(
        f"if(id % 2 = 0, '{one}', '{two}') as topic",
        "cast(id as string) as value",
        "concat('customer-', id % 40) as orderingKey",
    )
    write(keyed, cluster, batchBytes="4096")
    for name, rest in ((one, 0), (two, 1)):
        found = messages(cluster.names.address, name)
        assert bodies(found) == sorted(b"%d" % row for row in range(rest, 2_000, 2))
        by_key: dict[str, list[int]] = {}
        for message in found:
            key = message.properties["__SHARDINGKEY"]
            assert message.queue_id == abs(java_hash(key)) % 4
            by_key.setdefault(key, []).append(int(message.body))
        assert all(rows == sorted(rows) for rows in by_key.values())
    placed = spark.createDataFrame([(b"a", 3), (b"b", 1), (b"c", None)], "body binary, queueId int")
    write(placed, cluster, topic=late)
    found = messages(cluster.names.address, late)
    assert {m.body: m.queue_id for m in found if m.body != b"c"} == {b"a": 3, b"b": 1}
    delayed = spark.createDataFrame([(b"later", 1), (b"now", None)], "body binary, delayLevel int")
    write(delayed, cluster, topic=late)
    found = await_messages(cluster.names.address, late, 5)
    (after,) = [message for message in found if message.body == b"later"]
    assert after.store_timestamp_ms - after.born_timestamp_ms >= 900


@pytest.mark.slow
def test_bodies_of_a_megabyte_arrive_whole(
    spark: SparkSession, cluster: RocketMQCluster, topic: str
) -> None:
    cluster.create(topic, 2)
    frame = spark.range(0, 12, 1, 2).selectExpr("concat(id, repeat('x', 1048576)) as value")
    write(frame, cluster, topic=topic)
    found = messages(cluster.names.address, topic)
    assert bodies(found) == sorted(b"%d" % row + b"x" * 1_048_576 for row in range(12))


def test_a_stream_stamps_rows_so_that_a_replayed_batch_is_recognised(
    spark: SparkSession, cluster: RocketMQCluster, topic: str, tmp_path: Path
) -> None:
    cluster.create(topic, 2)
    spark.range(0, 500, 1, 2).selectExpr("cast(id as string) as value").write.text(
        str(tmp_path / "in")
    )

    def run() -> str:
        query = (
            spark.readStream.schema("value string")
            .text(str(tmp_path / "in"))
            .writeStream.format("rocketmq")
            .option("nameServers", cluster.names.address)
            .option("topic", topic)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return str(query.id)

    query_id = run()
    first = stamps(messages(cluster.names.address, topic))
    assert len(set(first)) == 500
    assert {one.rsplit(":", 2)[0] for one in first} == {f"{query_id}:0"}
    # As after a driver that died between the last write and the note of it.
    for name in ("0", ".0.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    run()
    both = messages(cluster.names.address, topic)
    assert len(both) == 1_000
    assert sorted(stamps(both)) == sorted(first + first)
    by_stamp = {message.properties["__DOWNRANGE_SINK_ID"]: message.body for message in both}
    assert sorted(by_stamp.values()) == sorted(b"%d" % row for row in range(500))


@pytest.mark.parametrize(
    ("column", "options", "reason"),
    [
        ("cast(id as string) as body", {}, "where shall the rows go"),
        ("cast(id as string) as body", {"topic": "t", "colour": "red"}, "'colour' is unknown"),
        ("id as body", {"topic": "t"}, "column 'body' is bigint"),
        ("cast(id as string) as bodies", {"topic": "t"}, "column 'bodies' cannot be written"),
    ],
)
def test_a_wrong_write_fails_before_a_row_is_sent(
    spark: SparkSession,
    cluster: RocketMQCluster,
    column: str,
    options: dict[str, str],
    reason: str,
) -> None:
    with pytest.raises(PySparkException, match=reason):
        write(spark.range(1).selectExpr(column), cluster, **options)


def test_a_row_that_cannot_be_sent_fails_the_job_with_its_number(
    spark: SparkSession, cluster: RocketMQCluster, topic: str
) -> None:
    cluster.create(topic, 2)
    frame = spark.range(0, 10, 1, 1).selectExpr("if(id = 7, '', 'x') as body")
    with pytest.raises(PySparkException, match="row 7 has no body"):
        write(frame, cluster, topic=topic)


def test_a_broker_that_refuses_is_quoted(
    spark: SparkSession, cluster: RocketMQCluster, topic: str
) -> None:
    cluster.create(topic, 2)
    # The option says more than the broker takes.
    frame = spark.range(0, 1, 1, 1).selectExpr("repeat('x', 5 * 1048576) as body")
    with pytest.raises(PySparkException) as caught:
        write(frame, cluster, topic=topic, maxMessageSize="16777216", batchBytes="8388608")
    text = str(caught.value)
    assert "not stored: row 0" in text
    assert topic in text
    assert cluster.broker.address in text
    assert "code 13" in text


def test_store_files_are_a_table(spark: SparkSession, cluster: RocketMQCluster, topic: str) -> None:
    cluster.create(topic, 4)
    frame = spark.range(0, 5_000, 1, 2).selectExpr("concat('stored-', id) as body", "'a' as tags")
    write(frame, cluster, topic=topic)
    stored = (
        spark.read.format("rocketmq-store")
        .option("path", str(cluster.store))
        .option("subscribe", topic)
        .option("splitBytes", str(16 << 20))
        .load()
    )
    assert sorted(row.body for row in stored.select("body").collect()) == sorted(
        bytearray(b"stored-%d" % number) for number in range(5_000)
    )
    assert stored.where("tags = 'a' and brokerName is null").count() == 5_000
    with pytest.raises(PySparkException, match="holds no commit log"):
        spark.read.format("rocketmq-store").option("path", "/nowhere").load().count()
