"""Archive: topics to files by topic and date of storage, each message exactly once.

Spark gives a batch that runs again the same number and the same messages, and an `ArchiveTable`
takes each number once.
"""

import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from downrange.spark.pipelines.archive_rows import ArchiveTable
from downrange.spark.pipelines.definition import Archive, ArchiveFormat
from downrange.spark.pipelines.delta_archive import DeltaArchive, read_delta_archive
from downrange.spark.pipelines.hadoop_files import HadoopFiles
from downrange.spark.pipelines.parquet_archive import ParquetArchive, read_parquet_archive
from downrange.spark.pipelines.streams import read_stream, start, trigger_of


def read_archive(
    spark: SparkSession, path: str, archive_format: ArchiveFormat = "parquet"
) -> DataFrame:
    """All messages of an archive, each once, even while a run writes to it or after one died."""
    if archive_format == "delta":
        return read_delta_archive(spark, path)
    return read_parquet_archive(spark, path)


def start_archive(spark: SparkSession, pipeline: Archive, *, once: bool) -> list[StreamingQuery]:
    """Start the query of an archive."""
    checkpoint = f"{pipeline.checkpoint}/archive"
    writer = ArchiveWriter(_table(spark, pipeline), HadoopFiles(spark, checkpoint))
    frame = read_stream(spark, pipeline, pipeline.source, pipeline.trigger)
    query = (
        frame.writeStream.foreachBatch(writer.write)
        .queryName(pipeline.name)
        .option("checkpointLocation", checkpoint)
    )
    return [start(trigger_of(query, pipeline.trigger, once=once))]


def _table(spark: SparkSession, pipeline: Archive) -> ArchiveTable:
    if pipeline.format == "delta":
        return DeltaArchive(spark, pipeline.path, pipeline.compaction)
    return ParquetArchive(spark, pipeline.path, pipeline.compaction)


class ArchiveWriter:
    """Takes batches, one after the other, on the driver."""

    def __init__(self, table: ArchiveTable, checkpoint: HadoopFiles) -> None:
        self._table = table
        self._checkpoint = checkpoint
        self._is_open = False

    def write(self, frame: DataFrame, batch: int) -> None:
        """Put a batch into the archive, unless it is there."""
        if not self._is_open:
            # Spark has given the query its id by now, and it keeps it over restarts.
            self._table.open(json.loads(self._checkpoint.read_text("metadata"))["id"])
            self._is_open = True
        self._table.add(frame, batch)
        self._table.compact(batch)
