"""Analytics: latencies from message traces, slow consumers, hot keys, and lags of groups."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from downrange.spark.pipelines.definition import Analytics
from downrange.spark.pipelines.group_lags import GroupLag, read_lags
from downrange.spark.pipelines.html_report import Bars, page
from downrange.spark.pipelines.spans import time_options, within
from downrange.spark.pipelines.text_table import Table
from downrange.spark.pipelines.trace_lines import consumptions, sends, trace_lines

PERCENTILES: Final = (50, 90, 99)
_NAMES: Final = tuple(f"p{percent} ms" for percent in PERCENTILES)


def run_analytics(spark: SparkSession, pipeline: Analytics, *, say: Callable[[str], None]) -> None:
    """Print the tables, and write the page if the file names one."""
    options = {
        **pipeline.connecting(),
        "subscribe": ",".join(pipeline.trace_topics),
        "fields": "body,storeTimestamp",
        **time_options(pipeline.since, pipeline.until),
    }
    messages = spark.read.format("rocketmq").options(**options).load()
    lines = trace_lines(within(messages, pipeline.since, pipeline.until)).cache()
    try:
        tables = [
            send_table(sends(lines)),
            consumer_table(consumptions(lines), sends(lines), pipeline.top),
            key_table(sends(lines), pipeline.top),
            lag_table(read_lags(pipeline, pipeline.groups), pipeline.top),
        ]
    finally:
        lines.unpersist()
    for table in tables:
        for line in (*table.lines(), ""):
            say(line)
    if pipeline.html:
        Path(pipeline.html).write_text(report(pipeline.name, tables), encoding="utf-8")
        say(f"wrote {pipeline.html}")


def send_table(sent: DataFrame) -> Table:
    """How long sending takes, by topic."""
    rows = (
        sent.groupBy("topic")
        .agg(F.count(F.lit(1)), F.count_if(~F.col("is_ok")), *_percentiles("cost_ms"))
        .orderBy("topic")
    )
    return Table("sending", ("topic", "sent", "failed", *_NAMES), _rows(rows))


def consumer_table(consumed: DataFrame, sent: DataFrame, top: int) -> Table:
    """Consumer groups, the slowest first: how long they take, and how long messages wait."""
    born = sent.groupBy("id").agg(F.min("sent_ms").alias("sent_ms"))
    known = consumed.join(born, "id", "left").withColumn(
        "wait_ms", F.greatest(F.col("got_ms") - F.col("sent_ms"), F.lit(0))
    )
    rows = (
        known.groupBy("group")
        .agg(
            F.count(F.lit(1)),
            F.count_if(~F.coalesce(F.col("is_ok"), F.lit(True))),
            *_percentiles("cost_ms"),
            F.percentile("wait_ms", F.lit(0.99)).alias("wait"),
        )
        .orderBy(F.col(_NAMES[-1]).desc_nulls_last(), "group")
        .limit(top)
    )
    columns = ("group", "consumed", "failed", *_NAMES, "wait p99 ms")
    return Table("consuming, slowest first", columns, _rows(rows))


def key_table(sent: DataFrame, top: int) -> Table:
    """The keys that most messages have."""
    keys = sent.select("topic", F.explode(F.split("keys", " ")).alias("key")).where("key <> ''")
    rows = (
        keys.groupBy("topic", "key")
        .agg(F.count(F.lit(1)).alias("messages"))
        .orderBy(F.col("messages").desc(), "topic", "key")
        .limit(top)
    )
    return Table("hot keys", ("topic", "key", "messages"), _rows(rows))


def lag_table(lags: Sequence[GroupLag], top: int) -> Table:
    """Who is most behind."""
    ordered = sorted(lags, key=lambda one: (-one.lag, one.group, one.topic))[:top]
    return Table(
        "lag", ("group", "topic", "messages"), [(one.group, one.topic, one.lag) for one in ordered]
    )


def report(name: str, tables: Sequence[Table]) -> str:
    """The page: latencies as bars, then all tables."""
    parts: list[Table | Bars] = []
    for table in tables:
        if _NAMES[0] in table.columns and table.rows:
            first = list(table.columns).index(_NAMES[0])
            values = [
                [float(str(cell or 0)) for cell in row[first : first + len(_NAMES)]]
                for row in table.rows
            ]
            labels = [str(row[0]) for row in table.rows]
            parts.append(Bars(table.title, "ms", _NAMES, labels, values))
        parts.append(table)
    return page(f"RocketMQ: {name}", parts)


def _percentiles(column: str) -> list[Column]:
    return [
        F.percentile(column, F.lit(percent / 100)).alias(name)
        for percent, name in zip(PERCENTILES, _NAMES, strict=True)
    ]


def _rows(frame: DataFrame) -> list[tuple[str | int | float | None, ...]]:
    return [tuple(row) for row in frame.collect()]
