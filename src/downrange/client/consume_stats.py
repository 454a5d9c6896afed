"""How fast a consumer pulls and consumes, by topic: rates over the last minute, sums of the hour.

Counting costs an addition; `sample` is called every ten seconds by the owner, and rates come from
the samples.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from downrange.protocol.bodies.consumer import ConsumeRates
from downrange.runtime.clock import Clock

SAMPLE_S: Final = 10.0
_MINUTE_SAMPLES: Final = 7  # the ends of six intervals
_HOUR_S: Final = 3600.0


@dataclass(slots=True)
class TopicCounts:
    """What was counted for one topic since the start; bumped by who does the work."""

    pulls: int = 0
    pull_ms: float = 0.0
    pulled: int = 0
    batches: int = 0
    consume_ms: float = 0.0
    consumed: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class _Sample:
    at_s: float
    counts: TopicCounts


@dataclass(slots=True)
class _Item:
    counts: TopicCounts
    minute: deque[_Sample]
    hour: deque[_Sample] = field(default_factory=deque)


class ConsumeStats:
    """The counters of one consumer. Owned by its event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._items: dict[str, _Item] = {}

    def topic(self, topic: str) -> TopicCounts:
        """The counters of a topic, for who bumps them."""
        item = self._items.get(topic)
        if item is None:
            born = _Sample(self._clock.monotonic_s(), TopicCounts())
            item = _Item(TopicCounts(), deque([born], maxlen=_MINUTE_SAMPLES), deque([born]))
            self._items[topic] = item
        return item.counts

    def sample(self) -> None:
        """Look at all counters; due every `SAMPLE_S`."""
        now_s = self._clock.monotonic_s()
        for item in self._items.values():
            sample = _Sample(now_s, _copy(item.counts))
            item.minute.append(sample)
            item.hour.append(sample)
            while item.hour[0].at_s < now_s - _HOUR_S:
                item.hour.popleft()

    def rates(self, topic: str) -> ConsumeRates:
        """What GET_CONSUMER_RUNNING_INFO says of a topic."""
        item = self._items.get(topic)
        if item is None:
            return ConsumeRates()
        first, last = item.minute[0], item.minute[-1]
        hour = item.hour[0].counts
        elapsed_s = last.at_s - first.at_s
        old, new = first.counts, last.counts
        minute_batches = new.batches - old.batches
        if minute_batches:
            consume_ms = _ratio(new.consume_ms - old.consume_ms, minute_batches)
        else:  # as Java: a consumer that was idle for a minute shows what it took before
            consume_ms = _ratio(new.consume_ms - hour.consume_ms, new.batches - hour.batches)
        return ConsumeRates(
            pull_rt=_ratio(new.pull_ms - old.pull_ms, new.pulls - old.pulls),
            pull_tps=_ratio(new.pulled - old.pulled, elapsed_s),
            consume_rt=consume_ms,
            consume_ok_tps=_ratio(new.consumed - old.consumed, elapsed_s),
            consume_failed_tps=_ratio(new.failed - old.failed, elapsed_s),
            consume_failed_msgs=new.failed - hour.failed,
        )


def _copy(counts: TopicCounts) -> TopicCounts:
    return TopicCounts(
        counts.pulls,
        counts.pull_ms,
        counts.pulled,
        counts.batches,
        counts.consume_ms,
        counts.consumed,
        counts.failed,
    )


def _ratio(amount: float, by: float) -> float:
    return amount / by if by > 0 else 0.0
