"""Which rows may share a batch: those of one topic, for one queue if they ask for one.

Rows keep their order within a lane. An ordering key chooses the queue by Java's hash of the key,
as RocketMQ's own SelectMessageQueueByHash does, so that Java producers and Spark jobs agree.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from downrange.model.topics import MessageQueue
from downrange.protocol.java_hash import java_hash
from downrange.spark import write_columns as columns
from downrange.spark.row_encoding import Ints, SinkRowError, positive_numbers, refuse_row

QueuesOf = Callable[[str], Sequence[MessageQueue]]
"""The queues of a topic that can be written to, in the order of brokers and queue numbers."""

_ANY_QUEUE: Final = -1
_QUEUES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Lane:
    """What the rows of a run have in common; without a queue any one will do."""

    topic: str
    queue: MessageQueue | None = None
    is_delayed: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """Rows from `start` to `end`, without that one, of a batch in the order of its lanes."""

    lane: Lane
    start: int
    end: int


class LanePlanner:
    """Sorts the rows of one task into lanes."""

    def __init__(self, topic: str | None, queues_of: QueuesOf, partition: int) -> None:
        self._topic = topic
        self._queues_of = queues_of
        self._partition = partition

    def plan(self, batch: pa.RecordBatch, rows: Ints) -> tuple[pa.RecordBatch, Ints, Sequence[Run]]:
        """The batch with the rows of each lane together, their numbers, and the lanes."""
        topics, topic_codes = self._topics(batch, rows)
        delayed = _delayed(batch, rows)
        queues = self._queues(batch, rows, topics, topic_codes)
        codes = (topic_codes * _QUEUES_MAX + queues + 1) * 2 + delayed
        if codes[0] == codes[-1] and (codes == codes[0]).all():
            return batch, rows, [Run(self._lane(topics, int(codes[0])), 0, len(codes))]
        order = np.argsort(codes, kind="stable")
        sorted_codes = codes[order]
        cuts = np.flatnonzero(np.diff(sorted_codes)) + 1
        starts, ends = [0, *cuts.tolist()], [*cuts.tolist(), len(codes)]
        runs = [
            Run(self._lane(topics, int(sorted_codes[start])), start, end)
            for start, end in zip(starts, ends, strict=True)
        ]
        return batch.take(pa.array(order)), rows[order], runs

    def _lane(self, topics: Sequence[str], code: int) -> Lane:
        place, is_delayed = divmod(code, 2)
        topic_code, queue = divmod(place, _QUEUES_MAX)
        topic = topics[topic_code]
        chosen = None if queue == 0 else self._queues_of(topic)[queue - 1]
        return Lane(topic, chosen, bool(is_delayed))

    def _topics(self, batch: pa.RecordBatch, rows: Ints) -> tuple[Sequence[str], Ints]:
        if self._topic is not None:
            return [self._topic], np.zeros(batch.num_rows, dtype=np.int64)
        encoded = batch.column(columns.TOPIC).dictionary_encode()
        refuse_row(encoded.is_null().to_numpy(zero_copy_only=False), rows, "has no topic (null)")
        return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)

    def _queues(
        self, batch: pa.RecordBatch, rows: Ints, topics: Sequence[str], topic_codes: Ints
    ) -> Ints:
        """The place of each row's queue among those of its topic."""
        if columns.ORDERING_KEY in batch.schema.names:
            hashes, is_any = _hashes(batch.column(columns.ORDERING_KEY))
            counts = np.array([len(self._queues_of(topic)) for topic in topics], dtype=np.int64)
            # Java's remainder has the sign of the dividend, and its absolute value is taken.
            places: Ints = np.abs(hashes) % counts[topic_codes]
            places[is_any] = _ANY_QUEUE
            return places
        if columns.QUEUE_ID in batch.schema.names:
            return self._named_queues(batch, rows, topics, topic_codes)
        return np.full(batch.num_rows, _ANY_QUEUE, dtype=np.int64)

    def _named_queues(
        self, batch: pa.RecordBatch, rows: Ints, topics: Sequence[str], topic_codes: Ints
    ) -> Ints:
        ids = pc.cast(batch.column(columns.QUEUE_ID), pa.int64()).to_pylist()
        names = [None] * len(ids)
        if columns.BROKER_NAME in batch.schema.names:
            names = batch.column(columns.BROKER_NAME).to_pylist()
        known: dict[tuple[int, int, str | None], int] = {}
        places = np.full(len(ids), _ANY_QUEUE, dtype=np.int64)
        for index, (topic_code, queue_id, name) in enumerate(
            zip(topic_codes.tolist(), ids, names, strict=True)
        ):
            if queue_id is None:
                continue
            key = (topic_code, queue_id, name)
            if key not in known:
                known[key] = self._named_queue(topics[topic_code], queue_id, name, rows[index])
            places[index] = known[key]
        return places

    def _named_queue(self, topic: str, queue_id: int, broker: str | None, row: int) -> int:
        queues = self._queues_of(topic)
        found = [
            place
            for place, queue in enumerate(queues)
            if queue.queue_id == queue_id and broker in {None, queue.broker_name}
        ]
        if not found:
            where = f"queue {queue_id}" + (f" of broker {broker!r}" if broker else "")
            there = sorted({f"{one.broker_name}:{one.queue_id}" for one in queues})
            raise SinkRowError(
                f"row {row} asks for {where}, and topic {topic!r} has only {', '.join(there[:64])}"
            )
        return found[self._partition % len(found)]


def _hashes(keys: pa.Array) -> tuple[Ints, pa.Array]:
    """Java's hash of each key, and which rows have none."""
    encoded = keys.dictionary_encode()
    is_any = encoded.is_null().to_numpy(zero_copy_only=False)
    by_key = np.array([java_hash(key) for key in encoded.dictionary.to_pylist()] or [0])
    places = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
    return by_key.astype(np.int64)[places], is_any


def _delayed(batch: pa.RecordBatch, rows: Ints) -> Ints:
    """1 for rows that are delivered later, which no batch can hold."""
    found: Ints = np.zeros(batch.num_rows, dtype=np.int64)
    for name in (columns.DELAY_LEVEL, columns.DELAY_TIME_MS):
        numbers = positive_numbers(batch, name)
        if numbers is not None:
            refuse_row(numbers < 0, rows, f"has a negative {name}")
            found += numbers > 0
    refuse_row(found > 1, rows, "has both delayLevel and delayTimeMs; give one")
    return found
