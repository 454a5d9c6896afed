"""Sends messages again: with their keys, tags and properties, at a rate, or only in words.

Each carries where it came from, so that a second run of the same file can be recognised.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from downrange.spark.pipelines.pacing import paced, slice_rows

ORIGIN_PROPERTY: Final = "resentFrom"
DESTINATION: Final = "destination"
SHOWN_MAX: Final = 20
_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_ORDER: Final = ("storeTimestamp", "topic", "brokerName", "queueId", "queueOffset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resend:
    """How messages are sent again."""

    options: Mapping[str, str] = field(repr=False)
    rate: int = 0
    keeps_queue: bool = False
    dry_run: bool = False


def resend(spark: SparkSession, frame: DataFrame, how: Resend, say: Callable[[str], None]) -> None:
    """Send messages to the topic in `destination`, in the order in which they were stored."""
    if how.dry_run:
        _tell(frame, say)
        return
    rows = _as_messages(frame, keeps_queue=how.keeps_queue)
    sent = Observation()
    with _small_batches(spark, how.rate):
        if how.rate:
            # One task sends, or the rate would be that of each of them.
            held = rows.coalesce(1).rdd.mapPartitions(paced(how.rate))
            rows = spark.createDataFrame(held, rows.schema, verifySchema=False)
        # Counted last: nothing is heard of what was observed below an RDD.
        counted = rows.observe(sent, F.count(F.lit(1)).alias("rows"))
        counted.write.format("rocketmq").options(**how.options).mode("append").save()
    say(f"sent {sent.get['rows']} messages")


def _as_messages(frame: DataFrame, *, keeps_queue: bool) -> DataFrame:
    origin = F.concat_ws("@", "topic", "brokerName", "queueId", "queueOffset")
    others = F.map_filter("properties", lambda name, _: name != ORIGIN_PROPERTY)
    columns = [
        F.col(DESTINATION).alias("topic"),
        F.col("body"),
        F.col("keys"),
        F.col("tags"),
        F.map_concat(
            F.coalesce(others, F.expr("CAST(map() AS MAP<STRING, STRING>)")),
            F.create_map(F.lit(ORIGIN_PROPERTY), origin),
        ).alias("properties"),
    ]
    if keeps_queue:
        columns.append(F.col("queueId"))
    return frame.orderBy(*_ORDER).select(*columns)


def _tell(frame: DataFrame, say: Callable[[str], None]) -> None:
    counts = frame.groupBy("topic", DESTINATION).agg(
        F.count(F.lit(1)).alias("rows"), F.sum(F.length("body")).alias("bytes")
    )
    for row in counts.orderBy("topic", DESTINATION).collect():
        say(
            f"would send {row['rows']} messages ({row['bytes']} bytes) "
            f"of {row['topic']} to {row[DESTINATION]}"
        )
    first = frame.select(*_ORDER, "keys", "tags", F.length("body").alias("bytes"))
    for row in first.orderBy(*_ORDER).limit(SHOWN_MAX).collect():
        say(
            f"  {row['topic']}@{row['brokerName']}@{row['queueId']}@{row['queueOffset']} "
            f"stored={row['storeTimestamp'].isoformat()} keys={row['keys']} tags={row['tags']} "
            f"bytes={row['bytes']}"
        )


@contextmanager
def _small_batches(spark: SparkSession, rate: int) -> Iterator[None]:
    """Spark hands rows on in batches of ten thousand; a slow rate needs smaller ones."""
    before = spark.conf.get(_BATCH_ROWS)
    if rate:
        spark.conf.set(_BATCH_ROWS, str(min(slice_rows(rate), int(before or 10_000))))
    try:
        yield
    finally:
        if before is not None:
            spark.conf.set(_BATCH_ROWS, before)
