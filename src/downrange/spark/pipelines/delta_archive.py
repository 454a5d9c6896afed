"""An archive in Delta Lake, whose package the user gives to Spark.

A batch is one commit of the table, and Delta leaves out a commit that has the same application and
version again. Whose archive it is stands in a property of the table.
"""

from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from downrange.spark.pipelines.archive_errors import ArchiveError, another_checkpoint
from downrange.spark.pipelines.archive_rows import PARTITIONS, archive_schema, dated
from downrange.spark.pipelines.definition import CompactionPart

_OWNER: Final = "downrange.query"
_COLUMNS: Final = ", ".join(
    f"`{field.name}` {field.dataType.simpleString()}" for field in archive_schema().fields
)


def read_delta_archive(spark: SparkSession, path: str) -> DataFrame:
    """The rows of the table, in the order of columns of every archive."""
    return spark.table(_name(path)).select(*archive_schema().fieldNames())


class DeltaArchive:
    """An `ArchiveTable` of Delta Lake at a path."""

    def __init__(self, spark: SparkSession, path: str, compaction: CompactionPart) -> None:
        self._spark = spark
        self._path = path
        self._compaction = compaction
        self._query = ""

    def open(self, query: str) -> None:
        """Make the table if it is not there; files become as large as the pipeline says."""
        name = _name(self._path)
        try:
            self._spark.sql(
                f"CREATE TABLE IF NOT EXISTS {name} ({_COLUMNS}) USING delta "
                f"PARTITIONED BY ({', '.join(PARTITIONS)}) TBLPROPERTIES ('{_OWNER}' = '{query}')"
            )
            found = {
                row[0]: row[1] for row in self._spark.sql(f"SHOW TBLPROPERTIES {name}").collect()
            }
        except (PySparkException, Py4JError) as error:
            first_line = str(error).partition("\n")[0]
            raise ArchiveError(
                f"Spark cannot make or open the Delta table {self._path}: {first_line}. The "
                f"package for this version of Spark, its extension and its catalog belong into "
                f"[spark.conf]"
            ) from error
        if found.get(_OWNER) != query:
            raise another_checkpoint(self._path)
        self._query = query
        for size in ("minFileSize", "maxFileSize"):
            conf = f"spark.databricks.delta.optimize.{size}"
            self._spark.conf.set(conf, str(self._compaction.target_bytes))

    def add(self, frame: DataFrame, batch: int) -> None:
        """One commit, which Delta itself leaves out if this batch has one."""
        (
            dated(frame)
            .write.format("delta")
            .mode("append")
            .partitionBy(*PARTITIONS)
            .option("txnAppId", self._query)
            .option("txnVersion", batch)
            .save(self._path)
        )

    def compact(self, batch: int) -> None:
        """Each batch makes at least a file, so it is time after as many as may be small."""
        if (batch + 1) % self._compaction.small_files_max == 0:
            self._spark.sql(f"OPTIMIZE {_name(self._path)}")


def _name(path: str) -> str:
    return f"delta.`{path.replace('`', '``')}`"
