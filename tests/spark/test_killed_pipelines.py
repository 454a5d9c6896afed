"""Pipelines whose driver is killed at random instants: the rows at the end are exact."""

import signal
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark.pipeline_files import head, load, rows_of
from spark.pipeline_process import ROWS, SPARK, Driver, run_with_kills
from spark.rocketmq_cluster import RocketMQCluster

from downrange.spark.pipelines.archive import read_archive

pytestmark = pytest.mark.slow


def fill(cluster: RocketMQCluster, topic: str, count: int, form: str) -> None:
    queues = cluster.create(topic, 4)
    for queue in queues:
        cluster.send(
            queue, [form.format(n=queue.queue_id * count + at).encode() for at in range(count)]
        )


def test_a_signal_stops_a_run_cleanly_and_it_goes_on_later(
    spark: SparkSession, cluster: RocketMQCluster, tmp_path: Path
) -> None:
    fill(cluster, "stopped-archive", 50, "message {n}")
    file = tmp_path / "archive.toml"
    file.write_text(
        head("archive", cluster, tmp_path, "kept")
        + f'path = "{tmp_path}/archive"\n'
        + "[trigger]\ninterval = '1 second'\nrows_max = 20\n"
        + "[source]\ntopics = ['stopped-archive']\n"
        + SPARK
    )
    log = tmp_path / "driver.log"
    log.touch()
    driver = Driver(file, log)
    driver.wait_for_batches()
    driver.process.send_signal(signal.SIGTERM)
    assert driver.end() == 0, log.read_text()[-3000:]
    assert "kept: stopped" in log.read_text()
    assert Driver(file, log, "--once").end() == 0, log.read_text()[-3000:]
    assert "kept: done" in log.read_text()
    wanted = rows_of(load(spark, cluster, "stopped-archive"))
    assert rows_of(read_archive(spark, f"{tmp_path}/archive")) == wanted
    assert len(wanted) == 200


def test_an_archive_is_exact_after_kills(
    spark: SparkSession, cluster: RocketMQCluster, tmp_path: Path, seed: int
) -> None:
    fill(cluster, "killed-archive", ROWS // 4, "message {n}")
    file = tmp_path / "archive.toml"
    file.write_text(
        head("archive", cluster, tmp_path, "kept")
        + f'path = "{tmp_path}/archive"\n'
        + "[trigger]\nrows_max = 100\n[source]\ntopics = ['killed-archive']\n"
        + "[compaction]\nsmall_files_max = 6\n"
        + SPARK
    )
    run_with_kills(file, tmp_path, seed)
    wanted = rows_of(load(spark, cluster, "killed-archive"))
    assert len(wanted) == ROWS
    assert rows_of(read_archive(spark, f"{tmp_path}/archive")) == wanted
    from_files = spark.read.parquet(f"{tmp_path}/archive").where("topic is not null")
    assert rows_of(from_files) == wanted


def test_a_transform_is_exact_after_kills_once_repeats_are_dropped(
    spark: SparkSession, cluster: RocketMQCluster, tmp_path: Path, seed: int
) -> None:
    fill(cluster, "killed-in", ROWS // 4, '{{"id": {n}}}')
    cluster.create("killed-out", 2)
    file = tmp_path / "transform.toml"
    file.write_text(
        head("transform", cluster, tmp_path, "doubled")
        + "[trigger]\nrows_max = 100\n"
        + "[[source]]\nname = 'numbers'\ntopics = ['killed-in']\nschema = 'id BIGINT'\n"
        + "bad_rows = 'drop'\n"
        + "[[step]]\nname = 'doubled'\nsql = 'SELECT id, id * 2 AS twice FROM numbers'\n"
        + "[[sink]]\nfrom = 'doubled'\ntopic = 'killed-out'\nkeys = 'id'\n"
        + f"[[sink]]\nfrom = 'doubled'\npath = '{tmp_path}/table'\n"
        + SPARK
    )
    run_with_kills(file, tmp_path, seed)
    wanted = Counter(f'{{"id":{number},"twice":{number * 2}}}'.encode() for number in range(ROWS))
    table = spark.read.parquet(f"{tmp_path}/table").selectExpr("to_json(struct(id, twice)) as body")
    assert Counter(row.body.encode() for row in table.collect()) == wanted
    out = load(spark, cluster, "killed-out", fields="body,sinkId").collect()
    print(f"{len(out) - ROWS} repeats in the topic")  # noqa: T201
    assert set(wanted) == {bytes(row.body) for row in out}
    assert Counter({row.sinkId: bytes(row.body) for row in out}.values()) == wanted
