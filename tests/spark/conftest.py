"""One Spark and one cluster for all tests of this folder; both are started when first needed."""

import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark.rocketmq_cluster import RocketMQCluster

from downrange.spark import register


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark tests share one session, so one worker runs them all; without Java they are skipped."""
    folder = Path(__file__).parent
    for item in items:
        if folder not in item.path.parents:
            continue
        item.add_marker(pytest.mark.spark)
        item.add_marker(pytest.mark.xdist_group("spark"))
        if shutil.which("java") is None:
            item.add_marker(
                pytest.mark.skip(reason="Spark needs Java 17: apt-get install openjdk-17-jre")
            )


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark with two slots."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    scratch = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("downrange-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.python.authenticate.socketTimeout", "240s")  # for machines under load
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQCluster]:
    """Our name server and broker."""
    with RocketMQCluster(tmp_path_factory.mktemp("rocketmq")) as running:
        yield running


@pytest.fixture
def seed() -> int:
    """When processes are killed; DOWNRANGE_SEED repeats a run."""
    return int(os.environ.get("DOWNRANGE_SEED") or random.SystemRandom().randrange(1 << 32))
