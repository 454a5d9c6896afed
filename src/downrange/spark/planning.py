"""What is read, decided without asking anybody: ranges, their split into tasks, limits of a batch.

Everything here is a function of offsets that somebody else has found out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from downrange.model.topics import MessageQueue
from downrange.spark.offsets import EARLIEST, LATEST, Offsets
from downrange.spark.read_options import LATEST as LATEST_WORD
from downrange.spark.read_options import Position


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Some offsets of a queue: `start` is read, `end` is not."""

    topic: str
    broker_name: str
    queue_id: int
    start: int
    end: int

    @property
    def queue(self) -> MessageQueue:
        """The queue."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    @property
    def count(self) -> int:
        """How many offsets."""
        return self.end - self.start


class PlanError(ValueError):
    """Offsets that cannot be read; the text says which and why."""


def resolved(
    position: Position,
    queues: Sequence[MessageQueue],
    low: Mapping[MessageQueue, int],
    high: Mapping[MessageQueue, int],
    at_time: Mapping[MessageQueue, int],
) -> Offsets:
    """The offset of each queue at a position.

    `low` and `high` are the first offset that is kept and the one behind the last; `at_time` has
    the offsets that belong to the position's times.
    """
    unknown = sorted(set(position.offsets) - set(queues))
    if unknown:
        raise PlanError(
            f"offsets are given for {_text(unknown[0])}, which is not read; the queues are "
            f"{', '.join(map(_text, queues[:8]))}{' …' if len(queues) > 8 else ''}"  # noqa: PLR2004
        )
    found: Offsets = {}
    for queue in queues:
        default = LATEST if position.word == LATEST_WORD else EARLIEST
        offset = position.offsets.get(queue, default)
        if queue in at_time:
            offset = min(max(at_time[queue], low[queue]), high[queue])
        found[queue] = {EARLIEST: low[queue], LATEST: high[queue]}.get(offset, offset)
    return found


def ranges(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> list[QueueRange]:
    """What lies between two positions; a queue without anything is left out."""
    return [
        QueueRange(queue.topic, queue.broker_name, queue.queue_id, start[queue], end[queue])
        for queue in sorted(end)
        if queue in start and start[queue] < end[queue]
    ]


def lost_ends(
    start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]
) -> list[QueueRange]:
    """Queues that end before they begin: somebody has deleted what was there."""
    return [
        QueueRange(queue.topic, queue.broker_name, queue.queue_id, end[queue], start[queue])
        for queue in sorted(end)
        if queue in start and start[queue] > end[queue]
    ]


def split(
    whole: Sequence[QueueRange], *, partitions_min: int = 0, records_max: int = 0
) -> list[QueueRange]:
    """The ranges, cut so that there are enough of them and none is too long.

    Long ranges are cut into more parts than short ones, each into parts of nearly equal length.
    """
    total = sum(one.count for one in whole)
    parts: list[QueueRange] = []
    for one in whole:
        pieces = 1
        if partitions_min > len(whole):
            pieces = max(round(partitions_min * one.count / total), 1)
        if records_max:
            pieces = max(pieces, -(-one.count // records_max))
        pieces = min(pieces, one.count)
        bounds = [one.start + one.count * at // pieces for at in range(pieces + 1)]
        parts += [replace(one, start=low, end=high) for low, high in pairwise(bounds)]
    return parts


def limited(
    start: Mapping[MessageQueue, int], latest: Mapping[MessageQueue, int], count_max: int
) -> Offsets:
    """Where a batch of at most `count_max` offsets ends, shared out by what each queue has waiting.

    Every queue that has something waiting gets at least one, if there are so many to give.
    """
    waiting = {queue: max(latest[queue] - start.get(queue, latest[queue]), 0) for queue in latest}
    total = sum(waiting.values())
    if total <= count_max:
        return {queue: max(latest[queue], start.get(queue, latest[queue])) for queue in latest}
    shares = {queue: min(count, 1) for queue, count in waiting.items()}
    rest = count_max - sum(shares.values())
    if rest < 0:
        shares = dict.fromkeys(waiting, 0)
        rest = count_max
    open_counts = {queue: waiting[queue] - shares[queue] for queue in waiting}
    open_total = sum(open_counts.values())
    for queue, count in open_counts.items():
        shares[queue] += count * rest // open_total
    left = count_max - sum(shares.values())
    # What rounding left over goes to those that have most waiting; then by name.
    for queue in sorted(waiting, key=lambda queue: (-open_counts[queue], queue)):
        if left and shares[queue] < waiting[queue]:
            shares[queue] += 1
            left -= 1
    return {queue: start.get(queue, latest[queue]) + shares[queue] for queue in latest}


def limited_by_bytes(
    start: Mapping[MessageQueue, int],
    latest: Mapping[MessageQueue, int],
    bytes_max: int,
    record_bytes: Mapping[MessageQueue, float],
) -> Offsets:
    """Where a batch of about `bytes_max` ends, by what a record of each queue takes.

    Queues without a figure count as the mean of the others. At least one offset is in it.
    """
    waiting = {queue: max(latest[queue] - start.get(queue, latest[queue]), 0) for queue in latest}
    known = [record_bytes[queue] for queue in waiting if queue in record_bytes]
    mean = sum(known) / len(known) if known else 1.0
    total_bytes = sum(
        count * record_bytes.get(queue, mean) for queue, count in waiting.items() if count
    )
    total = sum(waiting.values())
    if total_bytes <= bytes_max or not total:
        return limited(start, latest, total)
    return limited(start, latest, max(int(total * bytes_max / total_bytes), 1))


def with_new_queues(
    start: Mapping[MessageQueue, int], low: Mapping[MessageQueue, int]
) -> dict[MessageQueue, int]:
    """The start of a batch when queues have come since: those begin at their first offset."""
    return {**{queue: low[queue] for queue in low if queue not in start}, **start}


def chosen_topics(names: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """The topics that are there and wanted, sorted."""
    return sorted(set(names) & set(wanted))


def _text(queue: MessageQueue) -> str:
    return f"queue {queue.queue_id} of topic {queue.topic!r} on {queue.broker_name!r}"
