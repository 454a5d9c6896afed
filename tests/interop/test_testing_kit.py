"""The test kit with the Java client: any client will do, and its broker's time can be moved."""

import threading
from pathlib import Path

import pytest
from interop.client_cluster import ClientCluster
from interop.client_facts import EXPECTED
from interop.client_programs import observe
from interop.releases import SCENARIOS_5_5

from downrange.testing.rocketmq import RocketMQ, RocketMQClock

pytestmark = pytest.mark.interop


def cluster_of(rocketmq: RocketMQ, folder: Path) -> ClientCluster:
    (broker,) = rocketmq.broker_addresses.values()
    return ClientCluster(rocketmq.name_servers, broker, folder)


@pytest.mark.parametrize("scenario", ["sync", "orderly"])
def test_a_java_client_uses_the_broker_of_the_fixture(
    rocketmq: RocketMQ, tmp_path: Path, scenario: str
) -> None:
    seen = observe(cluster_of(rocketmq, tmp_path), SCENARIOS_5_5, scenario, f"kit-{scenario}")
    assert seen == EXPECTED[scenario]


def test_a_java_consumer_gets_its_retries_and_dead_letters_in_moved_time(
    rocketmq: RocketMQ, rocketmq_clock: RocketMQClock, tmp_path: Path
) -> None:
    scenario = "retry-dlq"
    seen: list[dict[str, str]] = []
    rocketmq.create_group("kit-retry-consumer")

    def run() -> None:
        seen.append(observe(cluster_of(rocketmq, tmp_path), SCENARIOS_5_5, scenario, "kit-retry"))

    java = threading.Thread(target=run)
    java.start()
    rocketmq_clock.advance_until(lambda: not java.is_alive(), step_s=1.0, at_most_s=86_400)
    assert seen == [EXPECTED[scenario]]
