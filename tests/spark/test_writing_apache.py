"""The sink and the store source against the real Apache RocketMQ 5.5.0 (`make interop`)."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from interop import apache
from interop.client_cluster import APACHE_SETTINGS
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from spark.written import await_messages, bodies, messages, stamps

from downrange.protocol.java_hash import java_hash

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of Apache's name server, with one broker of theirs, and its store."""
    folder = tmp_path_factory.mktemp("apache")
    with ExitStack() as stack:
        names = stack.enter_context(apache.start_name_server(folder / "names"))
        plan = apache.BrokerPlan(
            folder=folder / "broker",
            store=folder / "store",
            name_server=names.address,
            port=apache.free_broker_port(),
            ha_port=apache.free_port(),
            settings=APACHE_SETTINGS,
        )
        stack.enter_context(apache.start_broker(plan))
        yield names.address, plan.store


def test_rows_arrive_at_an_apache_broker_and_are_found_in_its_files(
    spark: SparkSession, name_server: tuple[str, Path]
) -> None:
    address, store = name_server
    rows = spark.range(0, 10_000, 1, 2).selectExpr(
        "concat('row-', id) as body",
        "concat('key-', id) as keys",
        "if(id % 2 = 0, 'even', 'odd') as tags",
        "map('n', cast(id as string)) as properties",
        "concat('customer-', id % 20) as orderingKey",
    )
    write = rows.write.format("rocketmq").option("nameServers", address)
    write.option("topic", "SparkWritten").mode("append").save()
    found = messages(address, "SparkWritten")
    assert bodies(found) == sorted(b"row-%d" % number for number in range(10_000))
    queues = len({message.queue_id for message in found})
    for message in found:
        number = int(message.body.removeprefix(b"row-"))
        assert message.tag == ("odd" if number % 2 else "even")
        assert message.keys == [f"key-{number}"]
        assert message.properties["n"] == str(number)
        key = message.properties["__SHARDINGKEY"]
        assert message.queue_id == abs(java_hash(key)) % queues
    assert len(set(stamps(found))) == 10_000
    stored = spark.read.format("rocketmq-store").option("path", str(store))
    table = stored.option("subscribe", "SparkWritten").load()
    assert table.where("tags = 'odd'").count() == 5_000
    assert {row.msgId for row in table.select("msgId").collect()} == {
        message.offset_message_id for message in found
    }


def test_delays_and_large_bodies_reach_an_apache_broker(
    spark: SparkSession, name_server: tuple[str, Path]
) -> None:
    address, _ = name_server
    rows = spark.createDataFrame(
        [("level", 1, None), ("timer", None, 1_500), ("now", None, None)],
        "body string, delayLevel int, delayTimeMs bigint",
    )
    write = rows.write.format("rocketmq").option("nameServers", address)
    write.option("topic", "SparkDelayed").mode("append").save()
    found = {one.body: one for one in await_messages(address, "SparkDelayed", 3)}
    assert set(found) == {b"level", b"timer", b"now"}
    for late in (b"level", b"timer"):
        assert found[late].store_timestamp_ms - found[late].born_timestamp_ms >= 900
    large = spark.range(0, 6, 1, 2).selectExpr("concat(id, repeat('y', 1048576)) as value")
    write = large.write.format("rocketmq").option("nameServers", address)
    write.option("topic", "SparkLarge").mode("append").save()
    assert [len(body) for body in bodies(messages(address, "SparkLarge"))] == [1_048_577] * 6


def test_what_an_apache_broker_refuses_is_quoted(
    spark: SparkSession, name_server: tuple[str, Path]
) -> None:
    address, _ = name_server
    rows = spark.range(0, 1, 1, 1).selectExpr("repeat('x', 5 * 1048576) as body")
    write = rows.write.format("rocketmq").option("nameServers", address)
    write = write.option("topic", "SparkWritten").option("maxMessageSize", "16777216")
    with pytest.raises(PySparkException, match="not stored: row 0, topic 'SparkWritten'") as caught:
        write.option("batchBytes", "8388608").mode("append").save()
    assert "code" in str(caught.value)
