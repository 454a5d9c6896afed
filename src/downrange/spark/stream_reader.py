"""The stream source: positions on the driver, ranges in the tasks.

Spark keeps the positions in the checkpoint of the query and asks here only for what is new. It
comes back with the end of a batch as the start of the next one after the batch is in its commit
log; that is when the consumer group is told.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from downrange.client.errors import NoRouteError
from downrange.model.topics import MessageQueue
from downrange.spark.cluster import Cluster
from downrange.spark.fetch import DataLossError, RangeReader
from downrange.spark.group_progress import GroupProgress
from downrange.spark.offsets import Offsets, OffsetsJson, from_json, to_json
from downrange.spark.planning import (
    QueueRange,
    limited,
    limited_by_bytes,
    lost_ends,
    ranges,
    split,
    with_new_queues,
)
from downrange.spark.positions import Bounds, find_queues, find_topics, reachable_max_offsets
from downrange.spark.range_partition import RangePartition, read_partition
from downrange.spark.read_options import ReadOptions

_log = logging.getLogger(__name__)

# So many queues are looked at for the size of their messages, with so many messages each.
_SAMPLED_QUEUES: Final = 16
_SAMPLED_MESSAGES: Final = 8


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One process of the driver holds one of these for the life of a query; tasks get a copy."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._driver: _Driver | None = None

    def __getstate__(self) -> dict[str, ReadOptions]:
        return {"options": self._options}

    def __setstate__(self, state: dict[str, ReadOptions]) -> None:
        self._options = state["options"]
        self._driver = None

    @property
    def _asked(self) -> "_Driver":
        if self._driver is None:
            self._driver = _Driver(self._options)
        return self._driver

    def initialOffset(self) -> OffsetsJson:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins."""
        return to_json(self._asked.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """How much a batch takes; the other limit, if both are given, is kept too."""
        if self._options.offsets_per_trigger_max:
            return ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.bytes_per_trigger_max:
            return ReadMaxBytes(self._options.bytes_per_trigger_max)
        return ReadAllAvailable()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, dict[str, dict[str, int]]], limit: ReadLimit
    ) -> OffsetsJson:
        """Where the next batch ends; the start, if there is nothing new."""
        position = from_json(start)
        driver = self._asked
        driver.tell(position)
        latest = driver.latest(position)
        if not isinstance(limit, ReadAllAvailable):
            latest = driver.limited(position, latest)
        return to_json(latest)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """What is there now is all that this run reads."""
        self._asked.freeze()

    def reportLatestOffset(self) -> OffsetsJson | None:  # noqa: N802 - Spark's name
        """Where the queues ended when they were last asked; Spark shows it beside the end."""
        known = self._asked.known_latest
        return to_json(known) if known else None

    def partitions(
        self, start: dict[str, dict[str, dict[str, int]]], end: dict[str, dict[str, dict[str, int]]]
    ) -> Sequence[InputPartition]:
        """The ranges of the tasks of a batch; the same again when a batch is repeated."""
        parts = split(
            self._asked.planned(from_json(start), from_json(end)),
            partitions_min=self._options.min_partitions,
            records_max=self._options.partition_records_max,
        )
        return [RangePartition([part]) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task."""
        return read_partition(self._options, partition)

    def commit(self, end: dict[str, dict[str, dict[str, int]]]) -> None:
        """Spark needs nothing below this any more."""
        self._asked.tell(from_json(end))

    def stop(self) -> None:
        """The query ends."""
        if self._driver is not None:
            self._driver.close()
            self._driver = None


class _Driver:
    """The part of a reader that lives on the driver and talks to the cluster."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._cluster = Cluster(options.connecting)
        self._progress = GroupProgress(options.connecting, options.group) if options.group else None
        self._frozen: Offsets | None = None
        self._said: dict[str, str] = {}
        self.known_latest: Offsets = {}

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()
        if self._progress is not None:
            self._progress.close()

    def tell(self, position: Mapping[MessageQueue, int]) -> None:
        """Everything below is in Spark's commit log."""
        if self._progress is not None:
            self._progress.tell(position)

    def initial(self) -> Offsets:
        """Where to begin."""
        bounds = Bounds(self._cluster, find_queues(self._cluster, self._options))
        start = bounds.at(self._options.start)
        return bounds.checked_start(start, fails=self._options.fail_on_data_loss)

    def freeze(self) -> None:
        """Remember where the queues end now."""
        self._frozen = self._ends(())

    def latest(self, start: Mapping[MessageQueue, int]) -> Offsets:
        """Where each queue ends; one that cannot be asked ends where it begins."""
        ends = self._ends(start) if self._frozen is None else self._frozen_ends(start)
        self.known_latest = {**start, **ends}
        self._check_lost(start, ends)
        return {**start, **ends}

    def _frozen_ends(self, start: Mapping[MessageQueue, int]) -> Offsets:
        """Where the queues ended when they were frozen; a start after that is an end too."""
        assert self._frozen is not None
        ends = dict(self._frozen)
        later = [queue for queue in ends if start.get(queue, 0) > ends[queue]]
        if later:
            now = reachable_max_offsets(self._cluster, later)
            ends |= {queue: min(start[queue], now.get(queue, start[queue])) for queue in later}
        return ends

    def limited(self, start: Mapping[MessageQueue, int], latest: Offsets) -> Offsets:
        """The end of a batch within the limits of the options."""
        new = [queue for queue in latest if queue not in start]
        begin = with_new_queues(start, self._cluster.min_offsets(new) if new else {})
        if self._options.bytes_per_trigger_max:
            sizes = self._record_bytes(begin, latest)
            bytes_max = self._options.bytes_per_trigger_max
            latest = limited_by_bytes(begin, latest, bytes_max, sizes)
        if self._options.offsets_per_trigger_max:
            latest = limited(begin, latest, self._options.offsets_per_trigger_max)
        return latest

    def planned(
        self, start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]
    ) -> list[QueueRange]:
        """What a batch reads; a queue that is new in it is read from its first offset on."""
        new = [queue for queue in end if queue not in start]
        low = self._cluster.min_offsets(new) if new else {}
        return ranges(with_new_queues(start, low), end)

    def _ends(self, start: Mapping[MessageQueue, int] | Sequence[MessageQueue]) -> Offsets:
        found: list[MessageQueue] = []
        for topic in find_topics(self._cluster, self._options):
            try:
                found += self._cluster.queues(topic)
            except NoRouteError as error:
                self._warn_once(topic, f"{topic} waits until a broker has it again: {error}")
            else:
                self._said.pop(topic, None)
        queues = [
            queue for queue in found if not self._options.queues or queue in self._options.queues
        ]
        self._check_removed(start, queues)
        return reachable_max_offsets(self._cluster, queues)

    def _check_removed(
        self, start: Mapping[MessageQueue, int] | Sequence[MessageQueue], now: list[MessageQueue]
    ) -> None:
        """A queue that its broker does not offer any more cannot be read to its end."""
        for queue in sorted(set(start) - set(now)):
            if not self._cluster.has_broker(queue.topic, queue.broker_name):
                continue  # the whole broker is away and may come back
            text = (
                f"queue {queue.queue_id} of topic {queue.topic!r} on {queue.broker_name!r} cannot "
                f"be read any more: the topic has fewer read queues now"
            )
            if self._options.fail_on_data_loss:
                raise DataLossError(
                    f"{text}; give it its read queues back until they are read, or set the option "
                    f"failOnDataLoss to false"
                )
            self._warn_once(text, text)

    def _warn_once(self, about: str, text: str) -> None:
        """A stream without news asks many times a second; it is said again after a change only."""
        if self._said.get(about) != text:
            self._said[about] = text
            _log.warning("%s", text)

    def _check_lost(self, start: Mapping[MessageQueue, int], ends: Offsets) -> None:
        for lost in lost_ends(start, ends):
            text = (
                f"queue {lost.queue_id} of topic {lost.topic!r} on {lost.broker_name!r} ends at "
                f"{lost.start}, and was read up to {lost.end} already: {lost.count} offsets are "
                f"gone; was the topic deleted, or did its broker lose messages?"
            )
            if self._options.fail_on_data_loss:
                raise DataLossError(f"{text} Set failOnDataLoss to false to go on at {lost.start}")
            _log.warning("%s Going on at %d", text, lost.start)

    def _record_bytes(
        self, start: Mapping[MessageQueue, int], latest: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, float]:
        """What a record takes in the queues that have most waiting, by their next messages."""
        waiting = sorted(ranges(start, latest), key=lambda one: (-one.count, one.queue))[
            :_SAMPLED_QUEUES
        ]
        sampler = RangeReader(
            replace(
                self._options,
                fields=("body",),
                wanted_tags=frozenset(),
                tags="*",
                sql92="",
                fail_on_data_loss=False,
            )
        )
        try:
            return {
                one.queue: size
                for one in waiting
                if (
                    size := sampler.mean_bytes(
                        replace(one, end=one.start + min(one.count, _SAMPLED_MESSAGES))
                    )
                )
                is not None
            }
        finally:
            sampler.close()
