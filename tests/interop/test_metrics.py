"""Metrics beside Apache's: the same load on both brokers, the same names, kinds and labels."""

import urllib.request
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from interop import apache
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families as parse

from downrange import sync
from downrange.client.consumer_settings import PushConsumerSettings
from downrange.client.settings import ClientSettings
from downrange.client.start_offset import ConsumeFromWhere
from downrange.embedded import DevCluster, Parts
from downrange.monitoring.broker_metrics import collect_broker
from downrange.monitoring.consumer_lag import StoreTimes
from downrange.monitoring.exposition import Exposition
from downrange.runtime.clock import SystemClock
from downrange.runtime.disk import Disk
from downrange.runtime.slices import at_once
from downrange.testing.rocketmq import RocketMQ

pytestmark = pytest.mark.interop

OF_THE_EXPORTER = {"otel_scope_name", "otel_scope_version"}
# Not counted: it would cost something for every message.
NOT_COUNTED = {"message_type"}
# Apache has these only with pop, the timer wheel or a coordinator; sizes are not counted here.
NOT_OURS = ("rocketmq_pop_", "rocketmq_timer_", "rocketmq_timing_", "rocketmq_message_size")


@contextmanager
def load(name_servers: str) -> Iterator[None]:
    """Messages that were consumed, and clients that are still there."""
    settings = PushConsumerSettings(consume_from_where=ConsumeFromWhere.FIRST_OFFSET)
    consumer = sync.PushConsumer(
        "billing", client=ClientSettings(name_servers=name_servers), settings=settings
    )
    seen: list[bytes] = []
    consumer.subscribe("orders")
    consumer.listen(lambda batch, _: seen.extend(message.body for message in batch))
    with sync.connect(name_servers) as mq:
        for _ in range(5):
            mq.send("orders", b"x" * 100)
        with consumer:
            RocketMQ.wait_until(lambda: len(seen) == 5, 60)
            yield


def ours() -> dict[str, Metric]:
    with DevCluster(parts=Parts(measures_requests=True)) as cluster:

        async def collect() -> bytes:
            view = cluster.broker().view()
            assert view is not None
            page = Exposition()
            now_ms = SystemClock().wall_ms()
            deque(collect_broker(page, view, StoreTimes(), Disk(), now_ms), maxlen=0)
            return bytes(at_once(page.rendered()))

        with load(cluster.name_servers):
            return families(cluster.run(collect()).decode())


def theirs(folder: Path) -> dict[str, Metric]:
    with apache.start_name_server(folder / "names") as names:
        port = apache.free_port()
        settings = {
            "brokerName": "broker-a",
            "metricsExporterType": "PROM",
            "metricsPromExporterHost": "127.0.0.1",
            "metricsPromExporterPort": str(port),
            "mappedFileSizeCommitLog": str(64 << 20),
        }
        plan = apache.plan_broker(folder / "broker", folder / "store", names.address, settings)
        with apache.start_broker(plan), load(names.address):
            found: dict[str, Metric] = {}

            def is_complete() -> bool:
                # Apache makes its sums now and then.
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
                    found.update(families(page.read().decode()))
                return {"rocketmq_messages_in", "rocketmq_consumer_lag_messages"} <= set(found)

            RocketMQ.wait_until(is_complete, 60)
            return found


def families(text: str) -> dict[str, Metric]:
    return {one.name: one for one in parse(text) if one.name.startswith("rocketmq_")}


def labels(metric: Metric) -> set[str]:
    return {label for sample in metric.samples for label in sample.labels} - OF_THE_EXPORTER


def test_what_both_brokers_export_has_the_same_name_kind_and_labels(tmp_path: Path) -> None:
    of_apache, of_ours = theirs(tmp_path), ours()
    missing = {name for name in of_apache if not name.startswith(NOT_OURS)} - set(of_ours)
    assert missing == set()
    both = set(of_apache) & set(of_ours)
    assert len(both) >= 14
    for name in both:
        assert of_ours[name].type == of_apache[name].type, name
        assert labels(of_ours[name]) == labels(of_apache[name]) - NOT_COUNTED, name
    assert of_ours["rocketmq_messages_in"].samples[0].value == 5
