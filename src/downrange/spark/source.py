"""`format("rocketmq")`: what Spark asks first, for reading and writing, in batches and streams."""

from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from downrange.spark.batch_reader import RocketMQBatchReader
from downrange.spark.columns import spark_schema
from downrange.spark.pushed_filters import RocketMQPushDownReader
from downrange.spark.read_options import read_options
from downrange.spark.store_files import RocketMQStoreDataSource
from downrange.spark.stream_reader import RocketMQStreamReader
from downrange.spark.write_options import write_options
from downrange.spark.writer import RocketMQStreamWriter, RocketMQWriter

PUSH_DOWN_CONF = "spark.sql.python.filterPushdown.enabled"


class RocketMQDataSource(DataSource):
    """Topics of RocketMQ as tables and streams."""

    pushes_filters = False

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)

    def __repr__(self) -> str:
        return "RocketMQDataSource()"  # the options hold secrets

    @classmethod
    def name(cls) -> str:
        """What stands in `format`."""
        return "rocketmq"

    def schema(self) -> StructType:
        """The columns; wrong options are found here already, before anything is planned."""
        return spark_schema(read_options(self.options, is_stream=None).fields)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        """A batch read."""
        options = read_options(self.options, is_stream=False)
        if self.pushes_filters or options.push_filters:
            return RocketMQPushDownReader(options)
        return RocketMQBatchReader(options)

    def streamReader(  # noqa: N802 - Spark's name
        self,
        schema: StructType,  # noqa: ARG002 - Spark's signature
    ) -> DataSourceStreamReader:
        """A stream."""
        return RocketMQStreamReader(read_options(self.options, is_stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A batch write."""
        return RocketMQWriter(write_options(self.options), schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """A stream write."""
        return RocketMQStreamWriter(write_options(self.options), schema, overwrite=overwrite)


class RocketMQPushDownDataSource(RocketMQDataSource):
    """The same for a session in which sources see filters; a source must not ask for them else."""

    pushes_filters = True


def register(spark: SparkSession) -> None:
    """Make `format("rocketmq")` and `format("rocketmq-store")` known to a session.

    Filters are pushed down if the session has spark.sql.python.filterPushdown.enabled at this
    moment; register again after changing it.
    """
    is_on = str(spark.conf.get(PUSH_DOWN_CONF, "false")).lower() == "true"
    spark.dataSource.register(RocketMQPushDownDataSource if is_on else RocketMQDataSource)
    spark.dataSource.register(RocketMQStoreDataSource)
