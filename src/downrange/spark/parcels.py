"""What is sent at once: a batch of rows of one lane, or one row that cannot be in a batch."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from downrange.client.message import Message
from downrange.model.topics import MessageQueue
from downrange.protocol.properties import decode_properties
from downrange.spark.row_encoding import EncodedRows, SinkRowError
from downrange.spark.row_lanes import Lane, Run


@dataclass(frozen=True, slots=True)
class Parcel:
    """One request to a broker; `message` if it is a single one, else `body` is a batch."""

    topic: str
    queue: MessageQueue | None
    rows: int
    first_row: int
    last_row: int
    body: bytes = b""
    message: Message | None = None

    def __str__(self) -> str:
        place = f"queue {self.queue.queue_id} of {self.queue.broker_name}" if self.queue else "any"
        rows = (
            f"row {self.first_row}"
            if self.rows == 1
            else (f"{self.rows} rows from {self.first_row} to {self.last_row}")
        )
        return f"{rows}, topic {self.topic!r}, queue: {place}"


def cut_parcels(
    encoded: EncodedRows, run: Run, *, batch_bytes: int, message_bytes_max: int
) -> Iterator[Parcel]:
    """The parcels of a run of rows, as large as they may be."""
    if run.lane.is_delayed:
        for index in range(run.start, run.end):
            yield _single(encoded, run.lane, index, message_bytes_max)
        return
    offsets = encoded.offsets
    start = run.start
    while start < run.end:
        size_max = int(offsets[start]) + batch_bytes
        end = int(np.searchsorted(offsets, size_max, side="right")) - 1
        end = min(max(end, start + 1), run.end)
        if int(offsets[end] - offsets[start]) > message_bytes_max:
            # Alone it may fit: the limit is for the body then, without what a batch adds to it.
            yield _single(encoded, run.lane, start, message_bytes_max)
        else:
            yield Parcel(
                run.lane.topic,
                run.lane.queue,
                end - start,
                int(encoded.rows[start]),
                int(encoded.rows[end - 1]),
                bytes(encoded.data[int(offsets[start]) : int(offsets[end])]),
            )
        start = end


def _single(encoded: EncodedRows, lane: Lane, index: int, message_bytes_max: int) -> Parcel:
    row, size = int(encoded.rows[index]), int(encoded.body_lengths[index])
    if size > message_bytes_max:
        raise SinkRowError(
            f"row {row} has a body of {size} bytes, over {message_bytes_max}; send less, or raise "
            f"the option maxMessageSize here and maxMessageSize at the brokers"
        )
    properties = decode_properties(encoded.property_text(index))
    message = Message.of_properties(lane.topic, encoded.body(index), properties)
    return Parcel(lane.topic, lane.queue, 1, row, row, message=message)
