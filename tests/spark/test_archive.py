"""Archives in a local Spark: the rows of the topics, each once, in files by topic and date."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark.pipeline_files import head, load, rows_of, run_text
from spark.rocketmq_cluster import RocketMQCluster

from downrange.spark.columns import ALL_COLUMNS
from downrange.spark.pipelines.archive import read_archive
from downrange.spark.pipelines.archive_errors import ArchiveError
from downrange.spark.pipelines.archive_rows import archive_schema
from downrange.spark.pipelines.watching import PipelineFailedError


def numbered(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}-{number:04d}".encode() for number in range(count)]


def archive_text(cluster: RocketMQCluster, folder: Path, topics: str, **more: str) -> str:
    return (
        head("archive", cluster, folder, "kept")
        + f'path = "{folder}/{more.get("path", "archive")}"\n'
        + f'[trigger]\nrows_max = 8\n[source]\ntopics = ["{topics}"]\n'
        + "[compaction]\nsmall_files_max = 3\n"
    )


def test_an_archive_has_every_message_once_and_goes_on(
    spark: SparkSession, cluster: RocketMQCluster, tmp_path: Path
) -> None:
    queues = [*cluster.create("kept-a", 2), *cluster.create("1234", 1)]
    for queue in queues:
        cluster.send(queue, numbered(f"{queue.topic}{queue.queue_id}", 10), tag="t", keys="k")
    text = archive_text(cluster, tmp_path, 'kept-a", "1234')
    said = run_text(spark, text)
    assert said[0].startswith("kept batch=0 rows=")
    assert "lag=" in said[0]
    archived = read_archive(spark, f"{tmp_path}/archive")
    assert archived.schema == archive_schema()
    wanted = load(spark, cluster, "kept-a,1234")
    assert rows_of(archived) == rows_of(wanted)
    assert len(rows_of(wanted)) == 30
    columns = [name for name in ALL_COLUMNS if name != "properties"]
    assert sorted(archived.select(columns).collect()) == sorted(wanted.select(columns).collect())
    assert archived.where("date = to_date(storeTimestamp)").count() == 30

    assert run_text(spark, text) == []
    cluster.send(queues[0], numbered("more", 5))
    run_text(spark, text)
    wanted = load(spark, cluster, "kept-a,1234")
    assert rows_of(read_archive(spark, f"{tmp_path}/archive")) == rows_of(wanted)
    assert len(rows_of(wanted)) == 35
    # Any reader of Parquet sees the same, and small files have become few.
    plain = spark.read.schema(archive_schema()).parquet(f"{tmp_path}/archive")
    assert rows_of(plain) == rows_of(wanted)
    files = list(tmp_path.glob("archive/topic=*/date=*/*.parquet"))
    assert any(file.name.startswith("compact-") for file in files)
    assert len(files) <= 2 * 3


def test_another_checkpoint_cannot_write_to_an_archive(
    spark: SparkSession, cluster: RocketMQCluster, tmp_path: Path
) -> None:
    (queue,) = cluster.create("kept-b", 1)
    cluster.send(queue, numbered("b", 3))
    text = archive_text(cluster, tmp_path, "kept-b")
    run_text(spark, text)
    with pytest.raises(PipelineFailedError, match="another checkpoint"):
        run_text(spark, text.replace("/checkpoint", "/other-checkpoint"))
    assert read_archive(spark, f"{tmp_path}/archive").count() == 3


def test_what_is_no_archive_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="is no archive"):
        read_archive(spark, str(tmp_path))
