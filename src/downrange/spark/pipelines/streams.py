"""Starting streaming queries: topics as streams, triggers, checkpoints."""

import time
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from downrange.spark.group_progress import GroupProgressListener
from downrange.spark.pipelines.definition import Pipeline, TopicsPart, TriggerPart

STARTS_MAX: Final = 5
START_S_MAX: Final = 60.0
POLL_S: Final = 0.1
NOT_STARTED: Final = "Python worker failed to connect back"
_INITIALIZING: Final = "Initializing sources"


def stream_options(pipeline: Pipeline, part: TopicsPart, trigger: TriggerPart) -> dict[str, str]:
    """Options of `readStream` for a part of the file."""
    limit = {"maxOffsetsPerTrigger": str(trigger.rows_max)} if trigger.rows_max else {}
    return pipeline.connecting() | limit | part.read_options()


def read_stream(
    spark: SparkSession, pipeline: Pipeline, part: TopicsPart, trigger: TriggerPart
) -> DataFrame:
    """The messages of a part of the file. A group it names hears of the last batch too."""
    options = stream_options(pipeline, part, trigger)
    if part.group:
        spark.streams.addListener(GroupProgressListener(options))
    return spark.readStream.format("rocketmq").options(**options).load()


def trigger_of(writer: DataStreamWriter, trigger: TriggerPart, *, once: bool) -> DataStreamWriter:
    """What is there now and no more, or batch after batch."""
    if once:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=trigger.interval)


def start(writer: DataStreamWriter) -> StreamingQuery:
    """Start it; the checkpoint says where it goes on.

    Returns when its source is up: Spark gives a Python worker ten seconds to begin, and several
    that begin at the same time take them from each other.
    """
    for attempt in range(1, STARTS_MAX + 1):
        query = writer.start()
        deadline_s = time.monotonic() + START_S_MAX
        while (
            query.isActive
            and query.status["message"] == _INITIALIZING
            and time.monotonic() < deadline_s
        ):
            time.sleep(POLL_S)
        error = query.exception()
        if error is None or NOT_STARTED not in str(error) or attempt == STARTS_MAX:
            return query
    raise AssertionError("the last attempt returns")
