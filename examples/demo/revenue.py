"""The Spark pipeline: orders as they arrive become revenue by hour and region.

topic orders -> JSON by a schema -> SQL over windows -> topic revenue, and Parquet files
                      '-> what does not decode -> topic broken-orders
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from downrange.spark import register
from examples.demo.results import Revenue

REVENUE: Final = "revenue"
BROKEN: Final = "broken-orders"
SCHEMA: Final = (
    "order BIGINT, at TIMESTAMP, customer STRING, region STRING, product STRING, quantity INT, "
    "cents BIGINT, _corrupt STRING"
)
BY_HOUR: Final = """
    SELECT window.start AS hour, region, count(*) AS orders, sum(quantity) AS units,
           sum(cents * quantity) AS cents
    FROM orders GROUP BY window(at, '1 hour'), region
"""
POLL_S: Final = 0.25
STANDARD_ERROR: Final = 2
TRIES: Final = 8
IMPATIENT: Final = "Python worker failed to connect back"


class PipelineError(Exception):
    """The pipeline has failed or took too long."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the pipeline did; `rows_in` counts each message once for each of the three queries."""

    rows: list[Revenue]
    rows_in: int
    seconds: float


@contextmanager
def spark_session(scratch: Path, log: Path) -> Iterator[SparkSession]:
    """A local Spark that runs this Python, and says what it has to say in a file."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(scratch / "spark"),
        "spark.python.authenticate.socketTimeout": "240s",  # for machines under load
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("downrange-demo")
    for name, value in conf.items():
        builder = builder.config(name, value)
    with _standard_error_to(log):  # the JVM takes over what it is now
        spark = builder.getOrCreate()
    try:
        spark.sparkContext.setLogLevel("ERROR")
        register(spark)
        yield spark
    finally:
        spark.stop()


@contextmanager
def _standard_error_to(log: Path) -> Iterator[None]:
    before = os.dup(STANDARD_ERROR)
    with log.open("wb") as file:
        os.dup2(file.fileno(), STANDARD_ERROR)
    try:
        yield
    finally:
        os.dup2(before, STANDARD_ERROR)
        os.close(before)


def run_pipeline(
    spark: SparkSession,
    name_servers: str,
    folder: Path,
    timeout_s: float,
    on_rows: Callable[[int], None],
) -> Outcome:
    """Read what is in the topic and end; the table comes back as it stands in the files."""
    began_s = time.monotonic()
    orders = _decoded(spark, name_servers)
    good = orders.where("_corrupt IS NULL AND region IS NOT NULL")
    good.withWatermark("at", "15 minutes").createOrReplaceTempView("orders")
    by_hour = spark.sql(BY_HOUR)
    bad = orders.where("_corrupt IS NOT NULL OR region IS NULL")
    as_json = by_hour.select(F.to_json(F.struct("*")).alias("body"), F.col("region").alias("tags"))
    files = str(folder / "revenue.parquet")
    to_files = by_hour.writeStream.format("parquet").option("path", files)
    to_topic = _to_topic(as_json, name_servers, REVENUE)
    to_broken = _to_topic(bad.select("body", "keys"), name_servers, BROKEN)
    rows_in = 0
    for name, writer in (("files", to_files), ("topic", to_topic), ("broken", to_broken)):
        checkpoint = str(folder / f"checkpoint-{name}")
        query = writer.queryName(name).option("checkpointLocation", checkpoint)
        rows_in = _run(query, began_s + timeout_s, rows_in, on_rows)
    seconds = time.monotonic() - began_s
    return Outcome(_table(spark, files), rows_in, seconds)


def _table(spark: SparkSession, files: str) -> list[Revenue]:
    # As a number, because a collected timestamp is one of the driver's zone.
    columns = ("unix_seconds(hour) AS hour", "region", "orders", "units", "cents")
    found = spark.read.parquet(files).selectExpr(*columns).collect()
    return sorted(
        Revenue(datetime.fromtimestamp(row.hour, UTC), row.region, row.orders, row.units, row.cents)
        for row in found
    )


def _decoded(spark: SparkSession, name_servers: str) -> DataFrame:
    messages = (
        spark.readStream.format("rocketmq")
        .option("nameServers", name_servers)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("fields", "body,keys")
        .load()
    )
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    value = F.from_json(F.col("body").cast("string"), SCHEMA, options)
    return messages.withColumn("value", value).select("body", "keys", "value.*")


def _to_topic(frame: DataFrame, name_servers: str, topic: str) -> DataStreamWriter:
    writer = frame.writeStream.format("rocketmq")
    return writer.option("nameServers", name_servers).option("topic", topic)


def _run(
    writer: DataStreamWriter, deadline_s: float, rows_before: int, on_rows: Callable[[int], None]
) -> int:
    """Run a query to its end; returns how many rows were read with it and before."""
    for _ in range(TRIES):
        query = writer.trigger(availableNow=True).start()
        try:
            while query.isActive:
                if time.monotonic() > deadline_s:
                    raise PipelineError("the Spark pipeline took too long; is the machine busy?")
                on_rows(rows_before + _rows_in(query))
                time.sleep(POLL_S)
        finally:
            query.stop()
        error = query.exception()
        if error is None:
            return rows_before + _rows_in(query)
        # Spark gives a new Python process ten seconds, which a busy machine may not keep. Nothing
        # was read by then; the checkpoint says where to go on in any case.
        if IMPATIENT not in str(error):
            raise PipelineError(f"the query {query.name} has failed: {error}")
    raise PipelineError("Spark's Python processes do not start in time; is the machine very busy?")


def _rows_in(query: StreamingQuery) -> int:
    return sum(batch.numInputRows for batch in query.recentProgress)
