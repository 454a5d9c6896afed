"""Writes DataFrames and streams to topics: `format("rocketmq")` with `write` and `writeStream`.

A task sends its rows in batches and returns when a broker has stored all of them. Rows carry where
they come from (property `__DOWNRANGE_SINK_ID`), so that those of a task or a micro-batch that ran
again can be recognised; delivery is at least once.
"""

import logging
import os
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from downrange.client.client_id import local_ip
from downrange.client.producer import Producer
from downrange.protocol.unique_id import UniqueIdGenerator
from downrange.runtime.clock import SystemClock
from downrange.spark.option_values import OptionError
from downrange.spark.parcel_sender import GRACE_S, ParcelSender, SendRules
from downrange.spark.parcels import cut_parcels
from downrange.spark.row_encoding import ROWS_MAX, RowEncoder
from downrange.spark.row_lanes import LanePlanner
from downrange.spark.write_columns import check_write_columns
from downrange.spark.write_options import WriteOptions
from downrange.sync.io_thread import io_thread
from downrange.sync.member import SHUTDOWN_S_MAX, START_S_MAX, SYNC_SESSIONS

_log = logging.getLogger(__name__)

QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"
BATCH_ID_PROPERTY: Final = "streaming.sql.batchId"
CHUNK_BYTES_MAX: Final = 64 * 1024 * 1024  # encoded at once, beside the Arrow batch itself


@dataclass
class TaskCommit(WriterCommitMessage):
    """What a task has stored."""

    rows: int
    parcels: int
    repeats: int


class RocketMQWriter(DataSourceArrowWriter):
    """Writes one DataFrame; made on the driver, which checks everything that can be checked."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        _check(options, schema, overwrite=overwrite)
        self._options = options
        self._job_id = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """In a task: send all rows."""
        partition = _partition()
        return write_rows(self._options, f"{self._job_id}::{partition}:", partition, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when all tasks have succeeded."""
        _report(f"job {self._job_id}", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when the job has failed: what was stored stays stored."""
        _report(f"job {self._job_id} was given up", messages)


class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of one query."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        _check(options, schema, overwrite=overwrite)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """In a task: send all rows."""
        partition = _partition()
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty(QUERY_ID_PROPERTY)
        batch = context.getLocalProperty(BATCH_ID_PROPERTY)
        return write_rows(self._options, f"{query}:{batch}:{partition}:", partition, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver, when all tasks of the micro-batch have succeeded."""
        _report(f"batch {batchId}", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver, when it has failed: what was stored stays stored."""
        _report(f"batch {batchId} was given up", messages)


def write_rows(
    options: WriteOptions, stamp: str, partition: int, batches: Iterator[pa.RecordBatch]
) -> TaskCommit:
    """Send all rows of a task; when this returns, brokers have stored them."""
    clock = SystemClock()
    ids = UniqueIdGenerator(
        ip=local_ip(),
        process_id=os.getpid(),
        clock=clock,
        random=random.Random(),  # noqa: S311
    )
    encoder = RowEncoder(
        ids,
        stamp=stamp if options.stamps_rows else "",
        namespace=options.namespace,
        drops_reserved=options.drops_reserved,
    )
    rules = SendRules(
        in_flight_max=options.in_flight_max,
        send_timeout_s=options.send_timeout_s,
        delivery_timeout_s=options.delivery_timeout_s,
        requires_send_ok=options.requires_send_ok,
    )
    io = io_thread()
    producer = Producer(
        options.producer_group,
        client=options.client_settings(),
        settings=options.producer_settings(),
        sessions=SYNC_SESSIONS,
    )
    io.call(producer.start(), START_S_MAX)
    try:
        sender = ParcelSender(producer, io, rules, clock)
        planner = LanePlanner(options.topic, sender.queues_of, partition)
        row = 0
        for batch in batches:
            for chunk in chunks(batch):
                rows = np.arange(row, row + chunk.num_rows, dtype=np.int64)
                row += chunk.num_rows
                sorted_chunk, numbers, runs = planner.plan(chunk, rows)
                encoded = encoder.encode(sorted_chunk, numbers)
                for run in runs:
                    for parcel in cut_parcels(
                        encoded,
                        run,
                        batch_bytes=options.batch_bytes,
                        message_bytes_max=options.message_bytes_max,
                    ):
                        sender.send(parcel)
        sender.finish()
    finally:
        io.call(producer.shutdown(), SHUTDOWN_S_MAX + GRACE_S)
    return TaskCommit(row, sender.parcels, sender.repeats)


def chunks(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in parts that are small enough to be encoded at once."""
    if batch.num_rows == 0:
        return
    parts = max(-(-batch.num_rows // ROWS_MAX), -(-batch.nbytes // CHUNK_BYTES_MAX))
    step = max(-(-batch.num_rows // parts), 1)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _check(options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
    if overwrite:
        raise OptionError(
            "a topic cannot be overwritten, and a stream has no complete result in it: use "
            'mode("append") for write and outputMode "append" for writeStream'
        )
    check_write_columns(schema, options.topic)


def _partition() -> int:
    context = TaskContext.get()
    assert context is not None, "write runs in a Spark task"
    return context.partitionId()


def _report(what: str, messages: list[WriterCommitMessage | None]) -> None:
    done = [message for message in messages if isinstance(message, TaskCommit)]
    _log.info(
        "%s: rows=%d parcels=%d repeats=%d tasks=%d",
        what,
        sum(message.rows for message in done),
        sum(message.parcels for message in done),
        sum(message.repeats for message in done),
        len(done),
    )
