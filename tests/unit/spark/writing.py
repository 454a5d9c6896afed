"""What the tests of the sink share: an encoder, and messages read back from a batch body."""

import random

import numpy as np
import pyarrow as pa

from downrange.client.errors import RocketMQError
from downrange.client.message import Message, SendReceipt, SendStatus
from downrange.model.topics import MessageQueue
from downrange.protocol.batch import decode_batch
from downrange.protocol.properties import decode_properties
from downrange.protocol.unique_id import UniqueIdGenerator
from downrange.runtime.clock import SystemClock
from downrange.spark.parcels import Parcel, cut_parcels
from downrange.spark.row_encoding import RowEncoder
from downrange.spark.row_lanes import LanePlanner

STAMP = "query:7:3:"
QUEUES = [MessageQueue("orders", broker, number) for broker in ("a", "b") for number in range(4)]


def encoder(*, stamp: str = STAMP, namespace: str = "", drops_reserved: bool = False) -> RowEncoder:
    ids = UniqueIdGenerator(
        ip="10.0.0.1", process_id=7, clock=SystemClock(), random=random.Random(1)
    )
    return RowEncoder(ids, stamp=stamp, namespace=namespace, drops_reserved=drops_reserved)


def parcels_of(
    batch: pa.RecordBatch,
    *,
    topic: str | None = "orders",
    batch_bytes: int = 1 << 18,
    message_bytes_max: int = 1 << 22,
    by: RowEncoder | None = None,
    partition: int = 0,
) -> list[Parcel]:
    """The way of a batch through all parts, without a broker."""
    planner = LanePlanner(topic, lambda _: QUEUES, partition)
    rows = np.arange(100, 100 + batch.num_rows)
    ordered, numbers, runs = planner.plan(batch, rows)
    encoded = (by or encoder()).encode(ordered, numbers)
    return [
        parcel
        for run in runs
        for parcel in cut_parcels(
            encoded, run, batch_bytes=batch_bytes, message_bytes_max=message_bytes_max
        )
    ]


def messages_of(parcel: Parcel) -> list[tuple[bytes, dict[str, str]]]:
    """Body and properties of each message."""
    if parcel.message is not None:
        return [(parcel.message.body, dict(parcel.message.properties))]
    return [(body, decode_properties(text)) for _, body, text in decode_batch(parcel.body)]


class ScriptedProducer:
    """Answers each send with the next of a script; SEND_OK when the script is at its end."""

    def __init__(self, *script: RocketMQError | SendStatus) -> None:
        self.script = list(script)
        self.sent: list[tuple[str, bytes | Message, MessageQueue | None]] = []

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        return tuple(MessageQueue(topic, one.broker_name, one.queue_id) for one in QUEUES[::-1])

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,  # noqa: ARG002 - the form of a producer
    ) -> SendReceipt:
        return self._answer(message.topic, message, queue)

    async def send_encoded_batch(
        self,
        topic: str,
        body: bytes,
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,  # noqa: ARG002 - the form of a producer
    ) -> SendReceipt:
        return self._answer(topic, body, queue)

    def _answer(self, topic: str, what: bytes | Message, queue: MessageQueue | None) -> SendReceipt:
        self.sent.append((topic, what, queue))
        step = self.script.pop(0) if self.script else SendStatus.SEND_OK
        if isinstance(step, RocketMQError):
            raise step
        return SendReceipt(step, "", "", queue or QUEUES[0], 0)
