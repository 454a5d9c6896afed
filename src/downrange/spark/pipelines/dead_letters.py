"""Dead letters: what groups have given up and transforms could not decode, as a table.

A letter knows its topic by RocketMQ's properties, or by the one that a transform leaves.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from downrange.model.names import DLQ_PREFIX, dlq_topic
from downrange.protocol import property_names as names
from downrange.spark.pipelines import transform
from downrange.spark.pipelines.definition import DeadLetters
from downrange.spark.pipelines.resending import DESTINATION, Resend, resend
from downrange.spark.pipelines.text_table import Table

GROUP: Final = "group"
ORIGIN: Final = "origin"
REASON: Final = "reason"
PERIOD: Final = "period"


def run_dead_letters(
    spark: SparkSession, pipeline: DeadLetters, *, dry_run: bool, say: Callable[[str], None]
) -> None:
    """Report the letters that are chosen, and send them again if the file says so."""
    letters = read_letters(spark, pipeline)
    table = letter_table(letters, pipeline.period)
    for line in table.lines():
        say(line)
    if pipeline.report:
        Path(pipeline.report).write_text(table.csv(), encoding="utf-8")
    again = pipeline.resend
    if again is None:
        return
    destination = F.lit(again.topic) if again.topic else F.col(ORIGIN)
    lost = letters.where(destination.isNull()).count()
    if lost:
        say(f"{lost} letters do not say which topic they came from; give resend a topic for them")
    how = Resend(
        options={**pipeline.connecting(), "reservedProperties": "drop", **again.options},
        rate=again.rate,
        dry_run=dry_run,
    )
    resend(
        spark, letters.withColumn(DESTINATION, destination).where(destination.isNotNull()), how, say
    )


def read_letters(spark: SparkSession, pipeline: DeadLetters) -> DataFrame:
    """The letters that are chosen, with group, origin, reason and period beside their columns."""
    topics = [*(dlq_topic(group) for group in pipeline.groups), *pipeline.topics]
    which = {"subscribe": ",".join(topics)} if topics else {"subscribePattern": f"{DLQ_PREFIX}.*"}
    frame = spark.read.format("rocketmq").options(**pipeline.connecting(), **which).load()
    said = F.col("properties")
    of_transform = F.split_part(said[transform.ORIGIN_PROPERTY], F.lit("@"), F.lit(1))
    letters = (
        frame.withColumn(
            GROUP,
            F.when(
                F.col("topic").startswith(DLQ_PREFIX),
                F.expr(f"substr(topic, {len(DLQ_PREFIX) + 1})"),
            ),
        )
        .withColumn(
            ORIGIN,
            F.coalesce(said[names.DLQ_ORIGIN_TOPIC], said[names.RETRY_TOPIC], of_transform),
        )
        .withColumn(
            REASON,
            F.coalesce(
                said[transform.REASON_PROPERTY],
                F.concat(F.lit("given up after "), F.col("reconsumeTimes"), F.lit(" retries")),
            ),
        )
        .withColumn(PERIOD, F.date_trunc(pipeline.period, F.col("storeTimestamp")))
    )
    return letters.where(pipeline.where) if pipeline.where else letters


def letter_table(letters: DataFrame, period: str) -> Table:
    """How many letters there are, by group, topic, reason and time."""
    by = (GROUP, ORIGIN, REASON, PERIOD)
    counted = letters.groupBy(*by).agg(F.count(F.lit(1)).alias("letters"))
    # As text, for a collected time is one of the driver's zone.
    shown = F.date_format(PERIOD, "yyyy-MM-dd HH:mm")
    rows = counted.orderBy(*by).withColumn(PERIOD, shown).collect()
    columns = ("group", "topic", "reason", period, "letters")
    total = sum(row["letters"] for row in rows)
    return Table(f"dead letters: {total}", columns, [tuple(row) for row in rows])
