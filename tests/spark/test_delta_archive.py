"""Archives in Delta Lake, with the package that its project publishes.

Run as processes, because a session has its packages from its start: an archive, killed at random
instants, and then a replay of it into a topic that must have each message once. The newest package
is for Spark 4.2 and does not run on 4.3, so that Spark is put beside the one of the tests.
"""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark.pipeline_files import head, load
from spark.pipeline_process import SPARK, Driver, run_with_kills
from spark.rocketmq_cluster import RocketMQCluster

OTHER_SPARK = "4.2.0"
CACHE = Path(__file__).resolve().parents[2] / ".oracle"
INSTALL_S_MAX = 600.0
KILLS = 2
ROWS = 480
DELTA = """
"spark.jars.packages" = "io.delta:delta-spark_2.13:4.4.0"
"spark.sql.extensions" = "io.delta.sql.DeltaSparkSessionExtension"
"spark.sql.catalog.spark_catalog" = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def other_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that a test starts find the other Spark first."""
    folder = CACHE / f"pyspark-{OTHER_SPARK}"
    done = folder / "installed"
    if not done.exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
        wanted = ["--target", str(folder), f"pyspark=={OTHER_SPARK}"]
        subprocess.run([*command, *wanted], check=True, timeout=INSTALL_S_MAX)
        done.touch()
    monkeypatch.setenv("PYTHONPATH", str(folder))
    # The session of the tests has left where its own Spark is.
    for name in ("SPARK_HOME", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("other_spark")
def test_an_archive_in_delta_is_exact_after_kills(
    spark: SparkSession, cluster: RocketMQCluster, tmp_path: Path, seed: int
) -> None:
    bodies = [f"message {number}".encode() for number in range(ROWS)]
    for queue in cluster.create("delta-in", 4):
        cluster.send(queue, bodies[queue.queue_id :: 4], tag="t", keys="k")
    cluster.create("delta-copy", 4)
    archive = tmp_path / "archive.toml"
    text = (
        head("archive", cluster, tmp_path, "kept")
        + f"format = 'delta'\npath = '{tmp_path}/table'\n"
        + "[trigger]\nrows_max = 40\n[source]\ntopics = ['delta-in']\n"
        + "[compaction]\nsmall_files_max = 4\n"
        + SPARK
        + DELTA
    )
    archive.write_text(text)
    run_with_kills(archive, tmp_path, seed, KILLS)

    other = tmp_path / "other.toml"
    other.write_text(text.replace("/checkpoint", "/other-checkpoint"))
    log = tmp_path / "refused.log"
    assert Driver(other, log, "--once").end() == 1
    assert "another checkpoint" in log.read_text()

    replay = tmp_path / "replay.toml"
    replay.write_text(
        head("replay", cluster, tmp_path, "again").replace("checkpoint", "# ")
        + f"[source]\narchive = '{tmp_path}/table'\nformat = 'delta'\n"
        + "[target]\ntopic = 'delta-copy'\n"
        + SPARK
        + DELTA
    )
    log = tmp_path / "replay.log"
    assert Driver(replay, log).end() == 0, log.read_text()[-3000:]
    found = load(spark, cluster, "delta-copy").collect()
    assert Counter(bytes(row.body) for row in found) == Counter(bodies)
    assert {(row.tags, row["keys"]) for row in found} == {("t", "k")}


def test_a_spark_without_the_package_is_told(cluster: RocketMQCluster, tmp_path: Path) -> None:
    (queue,) = cluster.create("delta-none", 1)
    cluster.send(queue, [b"one"])
    archive = tmp_path / "archive.toml"
    archive.write_text(
        head("archive", cluster, tmp_path, "kept")
        + f"format = 'delta'\npath = '{tmp_path}/table'\n[source]\ntopics = ['delta-none']\n"
        + SPARK
    )
    log = tmp_path / "driver.log"
    assert Driver(archive, log, "--once").end() == 1
    assert "Spark cannot make or open the Delta table" in log.read_text()
