"""An archive of plain Parquet files: what belongs to it is said by `ArchiveLog`.

Rows are written beside the archive first and moved into it.
"""

import logging
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from downrange.spark.pipelines.archive_errors import ArchiveError
from downrange.spark.pipelines.archive_log import STAGING, ArchiveLog
from downrange.spark.pipelines.archive_rows import PARTITIONS, archive_schema, dated, file_schema
from downrange.spark.pipelines.compaction import Merge, plan_merges
from downrange.spark.pipelines.definition import CompactionPart
from downrange.spark.pipelines.hadoop_files import HadoopFiles

_log = logging.getLogger(__name__)

_ORDER: Final = ("brokerName", "queueId", "queueOffset")


def read_parquet_archive(spark: SparkSession, path: str) -> DataFrame:
    """The rows of the files that the log of an archive names."""
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


class ParquetArchive:
    """An `ArchiveTable` of files."""

    def __init__(self, spark: SparkSession, path: str, compaction: CompactionPart) -> None:
        self._spark = spark
        self._files = HadoopFiles(spark, path)
        self._log = ArchiveLog(self._files, path)
        self._compaction = compaction

    def open(self, query: str) -> None:
        """Begin or go on, and remove what a run that died has left."""
        self._log.open(query)

    def add(self, frame: DataFrame, batch: int) -> None:
        """Write the rows beside the archive, then take the files over, unless it has them."""
        if self._log.has_batch(batch):
            return
        staged = f"{STAGING}/batch-{batch:010d}"
        dated(frame).write.mode("overwrite").partitionBy(*PARTITIONS).parquet(self._at(staged))
        self._log.add_batch(batch, staged)

    def compact(self, batch: int) -> None:  # noqa: ARG002 - it goes by the files
        """Merge the files of each partition that has too many small ones."""
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
