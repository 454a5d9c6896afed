"""Replay: messages of an archive or of a span of time, sent to a topic again."""

from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from downrange.spark.pipelines.definition import Replay
from downrange.spark.pipelines.resending import DESTINATION, Resend, resend
from downrange.spark.pipelines.spans import read_span


def run_replay(
    spark: SparkSession, pipeline: Replay, *, dry_run: bool, say: Callable[[str], None]
) -> None:
    """Send the messages, or say what would be sent."""
    target = pipeline.target
    frame = read_span(spark, pipeline, pipeline.source)
    how = Resend(
        options={**pipeline.connecting(), "reservedProperties": "drop", **target.options},
        rate=target.rate,
        keeps_queue=target.queues == "same",
        dry_run=dry_run,
    )
    resend(spark, frame.withColumn(DESTINATION, F.lit(target.topic)), how, say)
