"""What a broker counts, read back with Prometheus' parser."""

from collections import deque
from collections.abc import Iterator

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families as parse

from downrange import sync
from downrange.broker.settings import StoreFileSettings
from downrange.broker.view import BrokerView
from downrange.client.errors import RocketMQError
from downrange.embedded import DevCluster, Parts
from downrange.monitoring.broker_metrics import collect_broker
from downrange.monitoring.consumer_lag import StoreTimes
from downrange.monitoring.exposition import Exposition
from downrange.runtime.disk import Disk
from downrange.runtime.slices import at_once
from downrange.testing.rocketmq import RocketMQ

NODE = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}


@pytest.fixture
def cluster() -> Iterator[RocketMQ]:
    with RocketMQ() as cluster:
        cluster.clock.freeze()
        yield cluster


def look(cluster: DevCluster, now_ms: int = 0) -> dict[str, Metric]:
    async def collect() -> bytes:
        view = cluster.broker().view()
        assert view is not None
        page = Exposition()
        deque(collect_broker(page, view, StoreTimes(), Disk(), now_ms), maxlen=0)
        return bytes(at_once(page.rendered()))

    return {family.name: family for family in parse(cluster.run(collect()).decode())}


def value(families: dict[str, Metric], name: str, **labels: str) -> float:
    """The one sample that has these labels, and exactly these besides those of the node."""
    wanted = {**NODE, **labels}
    found = [s.value for s in families[name].samples if s.labels == wanted]
    assert len(found) == 1, (name, labels, families[name].samples)
    return found[0]


def commit(cluster: RocketMQ, group: str, topic: str, queue_id: int, offset: int) -> None:
    async def work() -> None:
        view = cluster.broker().view()
        assert view is not None
        view.tables.groups.find(group)  # comes with the first question
        view.tables.offsets.commit(group, topic, queue_id, offset)

    cluster.run(work())


def test_messages_in_and_out_are_counted_by_topic_and_group(cluster: RocketMQ) -> None:
    with sync.connect(cluster.name_servers) as mq:
        for _ in range(5):
            mq.send("orders", b"x" * 100)
        stream = mq.consume("orders", group="billing", start_at="first", idle_timeout_s=30)
        assert len([message for _, message in zip(range(5), stream, strict=False)]) == 5
        families = look(cluster)
    of_topic = {"topic": "orders", "is_system": "false"}
    of_group = {**of_topic, "consumer_group": "billing"}
    assert value(families, "rocketmq_messages_in", **of_topic) == 5
    assert value(families, "rocketmq_throughput_in", **of_topic) > 500
    assert value(families, "rocketmq_messages_out", **of_group) >= 5
    assert value(families, "rocketmq_throughput_out", **of_group) > 500
    assert families["rocketmq_messages_in"].type == "counter"
    assert value(families, "rocketmq_topic_number") > 10
    assert value(families, "rocketmq_broker_permission") == 6
    producers = families["rocketmq_producer_connections"].samples
    assert [(s.labels["language"], s.value) for s in producers] == [("python", 1)]
    puts = {s.name: s.value for s in families["downrange_put_latency_milliseconds"].samples}
    assert puts["downrange_put_latency_milliseconds_count"] == 5


def test_lag_is_told_in_messages_and_time_for_group_and_queue(cluster: RocketMQ) -> None:
    cluster.create_topic("orders", queues=1)
    with sync.connect(cluster.name_servers) as mq:
        mq.send("orders", b"1")
        cluster.clock.advance(60)
        for body in (b"2", b"3"):
            mq.send("orders", body)
    commit(cluster, "billing", "orders", 0, 1)
    cluster.clock.advance(30)
    families = look(cluster, cluster.clock.now_ms)
    labels = {
        "consumer_group": "billing",
        "topic": "orders",
        "is_retry": "false",
        "is_system": "false",
    }
    queue = {"consumer_group": "billing", "topic": "orders", "queue_id": "0"}
    assert value(families, "rocketmq_consumer_lag_messages", **labels) == 2
    assert value(families, "rocketmq_consumer_ready_messages", **labels) == 2
    assert value(families, "rocketmq_consumer_inflight_messages", **labels) == 0
    assert value(families, "rocketmq_consumer_lag_latency_milliseconds", **labels) == (
        pytest.approx(30_000, abs=5)
    )
    assert value(families, "downrange_consumer_queue_lag_messages", **queue) == 2
    assert value(families, "downrange_consumer_queue_lag_seconds", **queue) == (
        pytest.approx(30, abs=0.005)
    )
    commit(cluster, "billing", "orders", 0, 3)
    families = look(cluster, cluster.clock.now_ms)
    assert value(families, "rocketmq_consumer_lag_messages", **labels) == 0
    assert value(families, "rocketmq_consumer_lag_latency_milliseconds", **labels) == 0


def test_a_page_of_queues_has_a_bound(cluster: RocketMQ, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("downrange.monitoring.broker_metrics.QUEUE_SERIES_MAX", 3)
    cluster.create_topic("orders", queues=4)
    with sync.connect(cluster.name_servers) as mq:
        for _ in range(8):
            mq.send("orders", b"x")
    commit(cluster, "billing", "orders", 0, 1)
    families = look(cluster)
    assert len(families["downrange_consumer_queue_lag_messages"].samples) == 3
    assert value(families, "downrange_metrics_queues_left_out") == 1


def test_the_state_of_the_store_is_told(cluster: RocketMQ) -> None:
    with sync.connect(cluster.name_servers) as mq:
        mq.send("orders", b"x")
    cluster.clock.advance(5)
    families = look(cluster, cluster.clock.now_ms)
    local = {"storage_type": "local", "storage_medium": "disk"}
    assert value(families, "rocketmq_storage_size_bytes", **local) > 0
    assert value(families, "rocketmq_storage_dispatch_behind_bytes", **local) == 0
    assert value(families, "rocketmq_storage_flush_behind_bytes", **local) >= 0
    assert value(families, "rocketmq_storage_message_reserve_time_milliseconds", **local) == (
        pytest.approx(5_000, abs=5)
    )
    assert value(families, "rocketmq_processor_watermark", processor="send") == 0


def test_dead_letters_are_counted(cluster: RocketMQ) -> None:
    def count(view: BrokerView) -> None:
        view.stats.add_put("%DLQ%billing", 2, 400)

    async def work() -> None:
        view = cluster.broker().view()
        assert view is not None
        count(view)

    cluster.run(work())
    families = look(cluster)
    labels = {"consumer_group": "billing", "topic": "%DLQ%billing", "is_system": "false"}
    assert value(families, "rocketmq_send_to_dlq_messages", **labels) == 2


def test_requests_are_timed_where_it_is_asked_for() -> None:
    with DevCluster(parts=Parts(measures_requests=True)) as cluster:
        with sync.connect(cluster.name_servers) as mq:
            mq.send("orders", b"x")
            mq.send("orders", b"later", delay_s=5)
        samples = look(cluster)["rocketmq_rpc_latency_milliseconds"].samples
    counts = {
        (s.labels["request_code"], s.labels["response_code"]): s.value
        for s in samples
        if s.name.endswith("_count")
    }
    assert counts["send_message_v2", "success"] >= 1  # the delayed one goes the long way
    assert counts["heart_beat", "success"] >= 1
    assert {s.labels["le"] for s in samples if "le" in s.labels} == {
        "1", "3", "5", "7", "10", "100", "1000", "2000", "3000", "+Inf",
    }  # fmt: skip
    with RocketMQ() as cluster:
        assert "rocketmq_rpc_latency_milliseconds" not in look(cluster)


def test_messages_that_are_not_taken_are_counted() -> None:
    store_files = StoreFileSettings(message_bytes_max=1000)
    with RocketMQ(store_files=store_files) as cluster, sync.connect(cluster.name_servers) as mq:
        assert value(look(cluster), "downrange_put_failures") == 0
        with pytest.raises(RocketMQError, match="1000"):
            mq.send("orders", b"x" * 2000)
        assert value(look(cluster), "downrange_put_failures") >= 1
