"""Messages that are there, as tables: of an archive or of topics, between two times."""

from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from downrange.spark.pipelines.archive import read_archive
from downrange.spark.pipelines.archive_rows import DATE
from downrange.spark.pipelines.definition import Pipeline, SpanPart

STORED = "storeTimestamp"
MS = 1000


def time_options(since: datetime | None, until: datetime | None) -> dict[str, str]:
    """Times as options of a batch read."""
    given = {"startingTimestamp": since, "endingTimestamp": until}
    return {name: str(int(at.timestamp() * MS)) for name, at in given.items() if at is not None}


def within(frame: DataFrame, since: datetime | None, until: datetime | None) -> DataFrame:
    """Rows stored from `since` on and before `until`, to the millisecond."""
    if since is not None:
        frame = frame.where(F.col(STORED) >= F.lit(since))
    if until is not None:
        frame = frame.where(F.col(STORED) < F.lit(until))
    return frame


def read_span(spark: SparkSession, pipeline: Pipeline, span: SpanPart) -> DataFrame:
    """The messages of a span, with the columns of the source."""
    if span.archive:
        frame = read_archive(spark, span.archive, span.format)
        # Files of other days are not even opened.
        if span.since is not None:
            frame = frame.where(F.col(DATE) >= F.to_date(F.lit(span.since)))
        if span.until is not None:
            frame = frame.where(F.col(DATE) <= F.to_date(F.lit(span.until)))
    else:
        options = {
            **pipeline.connecting(),
            "subscribe": ",".join(span.topics),
            **time_options(span.since, span.until),
            **span.options,
        }
        frame = spark.read.format("rocketmq").options(**options).load()
    frame = within(frame, span.since, span.until)
    return frame.where(span.where) if span.where else frame
