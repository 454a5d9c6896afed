"""Which queues a read is about and where they begin and end, asked of the cluster by the driver."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence

from downrange.client.errors import RocketMQError
from downrange.model.topics import MessageQueue
from downrange.spark.cluster import Cluster, is_retry_or_dead_letter
from downrange.spark.fetch import DataLossError
from downrange.spark.offsets import Offsets
from downrange.spark.planning import PlanError, resolved
from downrange.spark.read_options import Position, ReadOptions

_log = logging.getLogger(__name__)


def find_topics(cluster: Cluster, options: ReadOptions) -> list[str]:
    """The topics of a read; a pattern is matched against the topics that there are now."""
    if not options.topic_pattern:
        return list(options.topics)
    pattern = re.compile(options.topic_pattern)
    # Otherwise .* would read what failed and what is delivered again along with the rest.
    with_those_of_groups = options.topic_pattern.startswith("%")
    return [
        topic
        for topic in cluster.topics()
        if pattern.fullmatch(topic) and (with_those_of_groups or not is_retry_or_dead_letter(topic))
    ]


def find_queues(cluster: Cluster, options: ReadOptions) -> list[MessageQueue]:
    """The queues of a read, sorted; `PlanError` if it names one that is not there."""
    found = [queue for topic in find_topics(cluster, options) for queue in cluster.queues(topic)]
    if not options.queues:
        return sorted(found)
    missing = sorted(options.queues - set(found))
    if missing:
        raise PlanError(
            f"option 'assign' names queue {missing[0].queue_id} of topic {missing[0].topic!r} on "
            f"{missing[0].broker_name!r}, which the name servers do not know; is its broker down?"
        )
    return sorted(options.queues)


class Bounds:
    """The first and the next offset of some queues at one moment."""

    def __init__(self, cluster: Cluster, queues: Sequence[MessageQueue]) -> None:
        self._cluster = cluster
        self.queues = queues
        self.low = cluster.min_offsets(queues)
        self.high = cluster.max_offsets(queues)

    def at(self, position: Position) -> Offsets:
        """The offset of each queue at a position."""
        times = {
            queue: time_ms
            for queue in self.queues
            if (time_ms := position.time_of(queue.topic)) is not None
        }
        unknown = sorted(set(position.times_ms) - {queue.topic for queue in self.queues})
        if unknown:
            raise PlanError(f"a time is given for topic {unknown[0]!r}, which is not read")
        at_time = self._cluster.offsets_at(times) if times else {}
        return resolved(position, self.queues, self.low, self.high, at_time)

    def checked_start(self, start: Mapping[MessageQueue, int], *, fails: bool) -> Offsets:
        """The start, if what it names is there; else an error, or the nearest that is there."""
        found: Offsets = {}
        for queue, offset in start.items():
            low, high = self.low[queue], self.high[queue]
            if low <= offset <= high:
                found[queue] = offset
                continue
            text = (
                f"queue {queue.queue_id} of topic {queue.topic!r} on {queue.broker_name!r} begins "
                f"at offset {low} and ends at {high}; it was to be read from {offset} on"
            )
            if fails:
                raise DataLossError(
                    f"{text}. Set the option failOnDataLoss to false to read what is there"
                )
            nearest = min(max(offset, low), high)
            _log.warning("%s; %d messages are left out", text, abs(nearest - offset))
            found[queue] = nearest
        return found

    def checked_end(self, end: Mapping[MessageQueue, int], *, fails: bool) -> Offsets:
        """The end, if the queue has come that far."""
        for queue, offset in end.items():
            if offset > self.high[queue] and fails:
                raise PlanError(
                    f"option 'endingOffsets' has {offset} for queue {queue.queue_id} of topic "
                    f"{queue.topic!r} on {queue.broker_name!r}, which ends at {self.high[queue]}"
                )
        return {queue: min(offset, self.high[queue]) for queue, offset in end.items()}


def reachable_max_offsets(cluster: Cluster, queues: Iterable[MessageQueue]) -> Offsets:
    """The next offset of each queue whose broker answers; the others are left out, with a note."""
    by_broker: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        by_broker.setdefault(queue.broker_name, []).append(queue)
    found: Offsets = {}
    for broker_name, there in sorted(by_broker.items()):
        try:
            found |= cluster.max_offsets(there)
        except RocketMQError as error:
            if not error.retriable:
                raise
            _log.warning(
                "broker %s does not answer, its %d queues wait: %s", broker_name, len(there), error
            )
    return found
