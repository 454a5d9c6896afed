"""Filters of a query that spare reading: on topic, queue, offset, store time and tags.

They only narrow what is read. Spark applies every filter again, so a filter that is not understood,
or that narrows less than it could, costs time and nothing else. Spark lets a source see filters
only if spark.sql.python.filterPushdown.enabled is true.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, TypeVar

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from downrange.filtering.tags import EVERYTHING
from downrange.model.topics import MessageQueue
from downrange.spark.batch_reader import RocketMQBatchReader
from downrange.spark.cluster import Cluster
from downrange.spark.planning import QueueRange
from downrange.spark.read_options import ReadOptions

T = TypeVar("T")
_FAR: Final = 1 << 62
_NUMBERS: Final = ("queueId", "queueOffset", "storeTimestamp")


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What may be left out: a set is what is wanted (None: everything), a pair is from and to."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    queue_id: tuple[int, int] = (0, _FAR)
    offset: tuple[int, int] = (0, _FAR)
    store_ms: tuple[int, int] = (0, _FAR)

    def takes(self, queue: MessageQueue) -> bool:
        """Whether a queue can have anything that is wanted."""
        return (
            (self.topics is None or queue.topic in self.topics)
            and (self.queue_ids is None or queue.queue_id in self.queue_ids)
            and self.queue_id[0] <= queue.queue_id < self.queue_id[1]
        )


def narrowed(filters: Iterable[Filter]) -> Narrowing:
    """What the filters, all of which must hold, leave over."""
    found = Narrowing()
    for one in filters:
        if isinstance(one, EqualTo | In) and len(one.attribute) == 1:
            values = (one.value,) if isinstance(one, EqualTo) else tuple(one.value)
            found = _with_values(found, one.attribute[0], values)
        elif isinstance(one, GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
            found = _with_bound(found, one)
    return found


def _with_values(found: Narrowing, name: str, values: tuple[object, ...]) -> Narrowing:
    texts = frozenset(value for value in values if isinstance(value, str))
    numbers = frozenset(value for value in values if isinstance(value, int))
    if name == "topic" and len(texts) == len(set(values)):
        return replace(found, topics=_both(found.topics, texts))
    if name == "tags" and len(texts) == len(set(values)):
        return replace(found, tags=_both(found.tags, texts))
    if name == "queueId" and len(numbers) == len(set(values)):
        return replace(found, queue_ids=_both(found.queue_ids, numbers))
    if name == "queueOffset" and len(numbers) == len(set(values)) and numbers:
        return replace(found, offset=_within(found.offset, min(numbers), max(numbers) + 1))
    return found


def _with_bound(
    found: Narrowing, one: GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
) -> Narrowing:
    if len(one.attribute) != 1 or one.attribute[0] not in _NUMBERS:
        return found
    name = one.attribute[0]
    value = _millis(one.value) if name == "storeTimestamp" else one.value
    if isinstance(value, bool) or not isinstance(value, int):
        return found
    is_low = isinstance(one, GreaterThan | GreaterThanOrEqual)
    # Times are cut to milliseconds, so a bound in time keeps the millisecond that it lies in.
    low = value + (isinstance(one, GreaterThan) and name != "storeTimestamp") if is_low else 0
    is_whole = isinstance(one, LessThanOrEqual) or name == "storeTimestamp"
    high = _FAR if is_low else value + is_whole
    if name == "queueId":
        return replace(found, queue_id=_within(found.queue_id, low, high))
    if name == "queueOffset":
        return replace(found, offset=_within(found.offset, low, high))
    return replace(found, store_ms=_within(found.store_ms, low, high))


class RocketMQPushDownReader(RocketMQBatchReader):
    """The batch reader for sessions in which Spark hands filters to sources."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._narrowing = Narrowing()

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's name
        """Take note of the filters; all of them are left to Spark as well."""
        self._narrowing = narrowed(filters)
        if self._narrowing.tags and not self._options.sql92 and self._options.tags == EVERYTHING:
            self._options = replace(
                self._options,
                tags=" || ".join(sorted(self._narrowing.tags)),
                wanted_tags=self._narrowing.tags,
            )
        yield from filters

    def _planned(self, cluster: Cluster) -> list[QueueRange]:
        narrowing = self._narrowing
        kept = [one for one in super()._planned(cluster) if narrowing.takes(one.queue)]
        first, end = narrowing.store_ms
        low = cluster.offsets_at({one.queue: first for one in kept}) if first else {}
        high = cluster.offsets_at({one.queue: end for one in kept}) if end < _FAR else {}
        cut = [
            replace(
                one,
                start=max(one.start, narrowing.offset[0], low.get(one.queue, 0)),
                end=min(one.end, narrowing.offset[1], high.get(one.queue, _FAR)),
            )
            for one in kept
        ]
        return [one for one in cut if one.start < one.end]


def _both(known: frozenset[T] | None, more: frozenset[T]) -> frozenset[T]:
    return more if known is None else known & more


def _within(known: tuple[int, int], low: int, high: int) -> tuple[int, int]:
    return max(known[0], low), min(known[1], high)


def _millis(value: object) -> int | None:
    if not isinstance(value, datetime):
        return None
    # Spark gives times without a zone in the zone of this process.
    return int(value.astimezone(UTC).timestamp() * 1000)
