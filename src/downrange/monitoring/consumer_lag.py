"""How far the groups of a broker are behind, in messages and in time."""

from collections.abc import Iterator
from dataclasses import dataclass

from downrange.broker.view import BrokerView
from downrange.model.names import is_retry_topic
from downrange.store.consume_queue import ConsumeQueue


@dataclass(frozen=True, slots=True)
class QueueLag:
    """One queue: messages not acknowledged, the age of the first, and what of them is under way."""

    queue_id: int
    lag: int
    lag_ms: int
    inflight: int
    queueing_ms: int


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group in one of its topics."""

    group: str
    topic: str
    queues: tuple[QueueLag, ...]

    @property
    def lag(self) -> int:
        """Messages not acknowledged."""
        return sum(queue.lag for queue in self.queues)

    @property
    def lag_ms(self) -> int:
        """Age of the first message not acknowledged; 0 if there is none."""
        return max((queue.lag_ms for queue in self.queues), default=0)

    @property
    def inflight(self) -> int:
        """Messages handed out and not acknowledged."""
        return sum(queue.inflight for queue in self.queues)

    @property
    def ready(self) -> int:
        """Messages not handed out."""
        return self.lag - self.inflight

    @property
    def queueing_ms(self) -> int:
        """Age of the first message not handed out; 0 if there is none."""
        return max((queue.queueing_ms for queue in self.queues), default=0)


def group_lags(view: BrokerView, now_ms: int) -> Iterator[GroupLag]:
    """Every group that is there or has been, in every topic that it consumes.

    RocketMQ shows only groups that have a client at the moment; those that have lost all are the
    ones an operator wants to hear of.
    """
    for group in view.tables.groups.names():
        state = view.tables.consumers.group(group)
        subscribed = set(state.subscriptions) if state is not None else set()
        for topic in sorted(subscribed | view.tables.offsets.topics_of(group)):
            if is_retry_topic(topic) and topic not in view.tables.topics:
                continue
            queues = view.store.queues.of_topic(topic)
            lags = tuple(_queue_lag(view, group, queue, now_ms) for queue in queues)
            yield GroupLag(group, topic, lags)


def _queue_lag(view: BrokerView, group: str, queue: ConsumeQueue, now_ms: int) -> QueueLag:
    topic, queue_id, end = queue.topic, queue.queue_id, queue.max_offset
    done = view.tables.offsets.query(group, topic, queue_id)
    if done < 0:  # nothing acknowledged yet: RocketMQ counts that as no lag
        done = end
    done = min(max(done, queue.min_offset), end)
    pulled = min(max(view.tables.offsets.query_pull(group, topic, queue_id), done), end)
    return QueueLag(
        queue_id=queue_id,
        lag=end - done,
        lag_ms=_age_ms(view, topic, queue_id, done, end, now_ms),
        inflight=pulled - done,
        queueing_ms=_age_ms(view, topic, queue_id, pulled, end, now_ms),
    )


def _age_ms(view: BrokerView, topic: str, queue_id: int, offset: int, end: int, now_ms: int) -> int:
    if offset >= end:
        return 0
    stored_ms = view.store.lookup.store_timestamp(topic, queue_id, offset)
    return max(now_ms - stored_ms, 0) if stored_ms > 0 else 0
