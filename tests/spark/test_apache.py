"""The same reads from Apache RocketMQ's own broker, which gives 32 messages a pull."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from interop import apache
from interop.client_cluster import APACHE_SETTINGS
from processes import Server
from pyspark.sql import SparkSession
from spark.rocketmq_cluster import BROKER, RocketMQCluster
from spark.test_batch import bodies, load, numbered
from spark.test_stream import Collector, run

from downrange.client.message import Message
from downrange.spark.cluster import Cluster

pytestmark = pytest.mark.interop


class ApacheCluster(RocketMQCluster):
    """Apache's name server and broker."""

    def start_names(self) -> Server:
        return apache.start_name_server(self._folder / "names")

    def start_broker(self) -> Server:
        folder = self._folder / "broker"
        plan = apache.plan_broker(folder, folder / "store", self.names.address, APACHE_SETTINGS)
        return apache.start_broker(plan)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    with ApacheCluster(tmp_path_factory.mktemp("apache")) as running:
        yield running


def test_a_batch_read_from_apache(spark: SparkSession, theirs: ApacheCluster) -> None:
    queues = theirs.create("orders", 3)
    theirs.send(queues[0], numbered("a", 500))
    for number, body in enumerate(numbered("b", 20)):
        theirs.send_one(
            queues[1],
            Message(
                "orders",
                body,
                tag="even" if number % 2 == 0 else "odd",
                keys=[f"k{number}"],
                properties={"price": str(number)},
            ),
        )
    everything = load(spark, theirs.options("orders"))
    assert bodies(everything) == numbered("a", 500) + numbered("b", 20)
    last = everything.where("queueId = 1 and queueOffset = 19").collect()[0]
    assert (last.topic, last.brokerName, last.tags, last["keys"]) == (
        "orders",
        BROKER,
        "odd",
        "k19",
    )
    assert last.properties["price"] == "19"
    assert last.uniqueKey == last.properties["UNIQ_KEY"]
    split = load(spark, theirs.options("orders", minPartitions="5", fields="body", checkCrc="true"))
    assert bodies(split) == numbered("a", 500) + numbered("b", 20)
    assert bodies(load(spark, theirs.options("orders", tags="odd"))) == numbered("b", 20)[1::2]
    assert (
        bodies(load(spark, theirs.options("orders", sql92="price >= 18")))
        == (numbered("b", 20)[18:])
    )
    times = sorted(row.storeTimestamp for row in everything.where("queueId = 1").collect())
    middle_ms = round(times[10].timestamp() * 1000)
    later = load(spark, theirs.options("orders", startingTimestamp=str(middle_ms)))
    expected = [time for time in times if round(time.timestamp() * 1000) >= middle_ms]
    assert later.where("queueId = 1").count() == len(expected)
    options = theirs.options("x")
    del options["subscribe"]
    assert load(spark, options | {"subscribePattern": "ord.*"}).count() == 520


def test_a_stream_read_from_apache(
    spark: SparkSession, theirs: ApacheCluster, tmp_path: Path
) -> None:
    queues = theirs.create("flow", 2)
    theirs.send(queues[0], numbered("a", 100))
    sink = Collector()
    options = theirs.options(
        "flow", startingOffsets="earliest", maxOffsetsPerTrigger="60", groupId="flow-group"
    )
    run(spark, options, sink, tmp_path)
    assert sink.sizes == [60, 40]
    theirs.send(queues[1], numbered("b", 40))
    run(spark, options, sink, tmp_path)
    assert sink.bodies == numbered("a", 100) + numbered("b", 40)
    with Cluster(theirs.connecting) as asked:
        assert asked.group_offsets("flow-group", queues) == {queues[0]: 100, queues[1]: 40}
