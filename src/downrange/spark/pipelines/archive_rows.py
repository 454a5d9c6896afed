"""The columns of an archive, whatever keeps it, and what every kind of it can do."""

from typing import Final, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.types import DateType, StructField, StructType

from downrange.spark.columns import spark_schema

DATE: Final = "date"
TOPIC: Final = "topic"
PARTITIONS: Final = (TOPIC, DATE)


class ArchiveTable(Protocol):
    """Where batches go. One run at a time owns it."""

    def open(self, query: str) -> None:
        """Begin or go on as the query with this id; refuses an archive of another one."""
        ...

    def add(self, frame: DataFrame, batch: int) -> None:
        """Put a batch into the archive, unless it is there."""
        ...

    def compact(self, batch: int) -> None:
        """Make larger files of small ones, if it is time for that after this batch."""
        ...


def file_schema() -> StructType:
    """The columns inside a file of Parquet; topic and date stand in its path."""
    return StructType([field for field in spark_schema().fields if field.name != TOPIC])


def archive_schema() -> StructType:
    """The columns that a reader of the archive sees."""
    topic = spark_schema()[TOPIC]
    return StructType([*file_schema().fields, topic, StructField(DATE, DateType())])


def dated(frame: DataFrame) -> DataFrame:
    """Messages with the date of their storage."""
    return frame.withColumn(DATE, F.to_date("storeTimestamp"))
