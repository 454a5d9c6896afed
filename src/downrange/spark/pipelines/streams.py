"""Starting streaming queries: topics as streams, triggers, checkpoints."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from downrange.spark.group_progress import GroupProgressListener
from downrange.spark.pipelines.definition import Pipeline, TopicsPart, TriggerPart


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
    """Start it; the checkpoint says where it goes on."""
    return writer.start()
