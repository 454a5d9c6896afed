"""Archive: topics to Parquet files by topic and date of storage, each message exactly once.

Spark gives a batch that runs again the same number and the same messages; `ArchiveLog` takes each
number once. Rows are written beside the archive first and moved into it.
"""

import json
import logging
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import DateType, StructField, StructType

from downrange.spark.columns import spark_schema
from downrange.spark.pipelines.archive_log import STAGING, ArchiveError, ArchiveLog
from downrange.spark.pipelines.compaction import Merge, plan_merges
from downrange.spark.pipelines.definition import Archive, CompactionPart
from downrange.spark.pipelines.hadoop_files import HadoopFiles
from downrange.spark.pipelines.streams import read_stream, start, trigger_of

_log = logging.getLogger(__name__)

DATE: Final = "date"
TOPIC: Final = "topic"
_ORDER: Final = ("brokerName", "queueId", "queueOffset")


def file_schema() -> StructType:
    """The columns inside a file; topic and date stand in its path."""
    return StructType([field for field in spark_schema().fields if field.name != TOPIC])


def archive_schema() -> StructType:
    """The columns that a reader of the archive sees."""
    topic = spark_schema()[TOPIC]
    return StructType([*file_schema().fields, topic, StructField(DATE, DateType())])


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """All messages of an archive, each once, even while a run writes to it or after one died."""
    files = HadoopFiles(spark, path)
    log = ArchiveLog(files, path)
    if log.state.version < 0:
        raise ArchiveError(f"{path} is no archive: it has no _manifest")
    if not log.state.files:
        return spark.createDataFrame([], archive_schema())
    paths = [f"{files.root}/{name}" for name in sorted(log.state.files)]
    return (
        spark.read.schema(archive_schema()).option("basePath", files.root).parquet(*paths)
    )  # fmt: skip


def start_archive(spark: SparkSession, pipeline: Archive, *, once: bool) -> list[StreamingQuery]:
    """Start the query of an archive."""
    checkpoint = f"{pipeline.checkpoint}/archive"
    writer = ArchiveWriter(spark, pipeline.path, checkpoint, pipeline.compaction)
    frame = read_stream(spark, pipeline, pipeline.source, pipeline.trigger)
    query = (
        frame.writeStream.foreachBatch(writer.write)
        .queryName(pipeline.name)
        .option("checkpointLocation", checkpoint)
    )
    return [start(trigger_of(query, pipeline.trigger, once=once))]


class ArchiveWriter:
    """Takes batches, one after the other, on the driver."""

    def __init__(
        self, spark: SparkSession, path: str, checkpoint: str, compaction: CompactionPart
    ) -> None:
        self._spark = spark
        self._files = HadoopFiles(spark, path)
        self._checkpoint = HadoopFiles(spark, checkpoint)
        self._log = ArchiveLog(self._files, path)
        self._compaction = compaction
        self._is_open = False

    def write(self, frame: DataFrame, batch: int) -> None:
        """Put a batch into the archive, unless it is there."""
        if not self._is_open:
            query = json.loads(self._checkpoint.read_text("metadata"))["id"]
            self._log.open(query)
            self._is_open = True
        if self._log.has_batch(batch):
            return
        staged = f"{STAGING}/batch-{batch:010d}"
        dated = frame.withColumn(DATE, F.to_date("storeTimestamp"))
        dated.write.mode("overwrite").partitionBy(TOPIC, DATE).parquet(self._at(staged))
        self._log.add_batch(batch, staged)
        for merge in plan_merges(
            self._log.state.files,
            small_files_max=self._compaction.small_files_max,
            target_bytes=self._compaction.target_bytes,
        ):
            self._merge(merge)

    def _merge(self, merge: Merge) -> None:
        staged = f"{STAGING}/compact-{self._log.state.version:010d}"
        paths = [self._at(path) for path in merge.paths]
        rows = self._spark.read.schema(file_schema()).parquet(*paths)
        merged = rows.coalesce(merge.files_count).sortWithinPartitions(*_ORDER)
        merged.write.mode("overwrite").parquet(self._at(staged))
        before = rows.count()
        after = self._spark.read.schema(file_schema()).parquet(self._at(staged)).count()
        if before != after:
            raise ArchiveError(
                f"{merge.partition}: {before} rows became {after}; nothing is replaced"
            )
        self._log.replace(merge.paths, staged, merge.partition)
        _log.info("merged %d files of %s into %d", len(paths), merge.partition, merge.files_count)

    def _at(self, path: str) -> str:
        return f"{self._files.root}/{path}"
