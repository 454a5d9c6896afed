"""Transform: topics, decoded, through SQL steps, to topics or Parquet tables.

Each sink is a streaming query with a checkpoint of its own, and so are the dead letters of each
source: what is bad is known before windows and joins begin, and need not wait for them.
"""

import zlib
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.streaming.query import StreamingQuery

from downrange.spark.pipelines.decode import Bodies, bodies_of
from downrange.spark.pipelines.definition import SinkPart, SourcePart, Transform
from downrange.spark.pipelines.json_bodies import CORRUPT
from downrange.spark.pipelines.progress import BAD_ROWS
from downrange.spark.pipelines.streams import read_stream, start, trigger_of

MESSAGE: Final = "_message"
FAULT: Final = "_fault"
_VALUE: Final = "_value"
_BODIES: Final = {"body", "value"}
REASON_PROPERTY: Final = "deadLetterReason"
ORIGIN_PROPERTY: Final = "deadLetterOrigin"


def start_transform(
    spark: SparkSession, pipeline: Transform, *, once: bool
) -> list[StreamingQuery]:
    """Start a query for each sink, and one for the dead letters of each source that has any."""
    for table in pipeline.table:
        rest = spark.read.format(table.format).options(**table.options).load(table.path)
        rest.createOrReplaceTempView(table.name)
    for source in pipeline.source:
        _view(spark, pipeline, source).createOrReplaceTempView(source.name)
    for step in pipeline.step:
        spark.sql(step.sql).createOrReplaceTempView(step.name)
    queries = []
    if pipeline.dead_letters is not None:
        for source in pipeline.source:
            if source.has_dead_letters:
                topic = pipeline.dead_letters.topic
                queries.append(_start_dead_letters(spark, pipeline, source, topic, once=once))
    queries.extend(
        _start_sink(spark.table(sink.view), pipeline, sink, once=once) for sink in pipeline.sink
    )
    return queries


def _judged(
    spark: SparkSession, pipeline: Transform, source: SourcePart, bodies: Bodies
) -> DataFrame:
    frame = read_stream(spark, pipeline, source, pipeline.trigger)
    with_value = frame.withColumn(_VALUE, bodies.value("body"))
    return with_value.withColumn(FAULT, bodies.fault("body", _VALUE))


def _view(spark: SparkSession, pipeline: Transform, source: SourcePart) -> DataFrame:
    """What steps see: the fields of the schema, and the rest of the message in `_message`."""
    bodies = bodies_of(source)
    if bodies is None:
        frame = read_stream(spark, pipeline, source, pipeline.trigger)
    else:
        judged = _judged(spark, pipeline, source, bodies)
        about = [name for name in judged.columns if name not in {"body", _VALUE, FAULT}]
        counted = judged.observe(
            source.name, F.count(F.lit(1)).alias("rows"), F.count(FAULT).alias(BAD_ROWS)
        )
        frame = (
            counted.where(F.col(FAULT).isNull())
            .withColumn(MESSAGE, F.struct(*about))
            .select(f"{_VALUE}.*", MESSAGE)
            .drop(CORRUPT)
        )
    if source.watermark is not None:
        return frame.withWatermark(source.watermark.column, source.watermark.delay)
    return frame


def _start_dead_letters(
    spark: SparkSession, pipeline: Transform, source: SourcePart, topic: str, *, once: bool
) -> StreamingQuery:
    # Progress of the group is that of the sinks.
    ungrouped = msgspec.structs.replace(source, group="")
    bodies = bodies_of(source)
    assert bodies is not None, "only what is decoded has dead letters"
    judged = _judged(spark, pipeline, ungrouped, bodies)
    origin = F.concat_ws("@", "topic", "brokerName", "queueId", "queueOffset")
    said = F.create_map(
        F.lit(REASON_PROPERTY), F.col(FAULT), F.lit(ORIGIN_PROPERTY), origin
    )  # fmt: skip
    others = F.map_filter(
        "properties", lambda name, _: ~name.isin(REASON_PROPERTY, ORIGIN_PROPERTY)
    )
    # Brokers take no empty message.
    body = F.when(F.length("body") > 0, F.col("body")).otherwise(F.lit(bytearray(b" ")))
    letters = judged.where(F.col(FAULT).isNotNull()).select(
        body.alias("body"), "keys", "tags", F.map_concat(others, said).alias("properties")
    )
    writer = (
        letters.writeStream.format("rocketmq")
        .options(**pipeline.connecting(), topic=topic, reservedProperties="drop")
        .option("checkpointLocation", f"{pipeline.checkpoint}/dead-letters-{source.name}")
        .queryName(f"{pipeline.name}-dead-letters-{source.name}")
    )
    return start(trigger_of(writer, pipeline.trigger, once=once))


def _start_sink(
    frame: DataFrame, pipeline: Transform, sink: SinkPart, *, once: bool
) -> StreamingQuery:
    if sink.topic:
        writer = (
            topic_rows(frame, sink)
            .writeStream.format("rocketmq")
            .options(**pipeline.connecting(), topic=sink.topic)
        )
    else:
        writer = frame.writeStream.format("parquet").option("path", sink.path)
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
    place = sink_place(sink)
    writer = (
        writer.options(**sink.options)
        .option("checkpointLocation", f"{pipeline.checkpoint}/{place}")
        .outputMode(sink.output_mode)
        .queryName(f"{pipeline.name}-{place}")
    )
    return start(trigger_of(writer, pipeline.trigger, once=once))


def sink_place(sink: SinkPart) -> str:
    """A name for the checkpoint of a sink that stays the same while its target does."""
    if sink.topic:
        return f"sink-{sink.view}-{sink.topic}"
    return f"sink-{sink.view}-{zlib.crc32(sink.path.encode()):08x}"


def topic_rows(frame: DataFrame, sink: SinkPart) -> DataFrame:
    """Rows as messages: a column `body` or `value` if there is one, else the row as JSON."""
    columns = {
        "keys": sink.keys, "tags": sink.tags, "orderingKey": sink.ordering_key,
    }  # fmt: skip
    given = [F.expr(text).cast("string").alias(name) for name, text in columns.items() if text]
    if _BODIES & set(frame.columns):
        kept = [name for name in frame.columns if not columns.get(name)]
        return frame.select(*kept, *given)
    return frame.select(F.to_json(F.struct(*frame.columns)).alias("body"), *given)
