"""How far the groups of a broker are behind, in messages and in time."""

from collections.abc import Iterator
from dataclasses import dataclass

from downrange.broker.view import BrokerView
from downrange.model.names import is_retry_topic
from downrange.store.consume_queue import ConsumeQueue


@dataclass(frozen=True, slots=True)
class QueueLag:
    """One queue: messages not acknowledged, the age of the first, and what of them is in flight."""

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


class StoreTimes:
    """When the messages at the groups' offsets were stored, remembered from page to page.

    A group that stands still would otherwise have the same record read for every page. What a page
    did not ask for is forgotten with the next one.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[ConsumeQueue, int], int] = {}
        self._now: dict[tuple[ConsumeQueue, int], int] = {}

    def begin_page(self) -> None:
        """Forget what the last page did not ask for."""
        self._before, self._now = self._now, {}

    def stored_ms(self, view: BrokerView, queue: ConsumeQueue, offset: int) -> int:
        """When this message was stored; not positive if that is not known."""
        key = (queue, offset)
        known = self._now.get(key) or self._before.get(key)
        if known is None:
            known = view.store.lookup.store_timestamp(queue.topic, queue.queue_id, offset)
        if known > 0:
            self._now[key] = known
        return known


def group_lags(view: BrokerView, times: StoreTimes, now_ms: int) -> Iterator[GroupLag | None]:
    """Every group, with or without clients, in every topic that it consumes.

    Yields None after each piece of work that found no group's lag yet: the caller may pause there.
    RocketMQ shows only groups that have a client at the moment; those that have lost all are the
    ones an operator wants to hear of.
    """
    tables = view.tables
    times.begin_page()
    queues_by_topic: dict[str, list[ConsumeQueue]] = {}
    for queue in list(view.store.queues):
        queues_by_topic.setdefault(queue.topic, []).append(queue)
        yield None
    topics_by_group: dict[str, set[str]] = {}
    for topic, group in tables.offsets.pairs():
        topics_by_group.setdefault(group, set()).add(topic)
        yield None
    for group in tables.groups.names():
        state = tables.consumers.group(group)
        topics = topics_by_group.get(group, set())
        if state is not None:
            topics |= state.subscriptions.keys()
        for topic in sorted(topics):
            if is_retry_topic(topic) and topic not in tables.topics:
                continue
            lags = []
            queues = queues_by_topic.get(topic, [])
            for queue in sorted(queues, key=lambda one: one.queue_id):
                lags.append(_queue_lag(view, times, group, queue, now_ms))
                yield None
            yield GroupLag(group, topic, tuple(lags))


def _queue_lag(
    view: BrokerView, times: StoreTimes, group: str, queue: ConsumeQueue, now_ms: int
) -> QueueLag:
    topic, queue_id, end = queue.topic, queue.queue_id, queue.max_offset
    done = view.tables.offsets.query(group, topic, queue_id)
    if done < 0:  # nothing acknowledged yet: RocketMQ counts that as no lag
        done = end
    done = min(max(done, queue.min_offset), end)
    pulled = min(max(view.tables.offsets.query_pull(group, topic, queue_id), done), end)
    return QueueLag(
        queue_id=queue_id,
        lag=end - done,
        lag_ms=_age_ms(view, times, queue, done, end, now_ms),
        inflight=pulled - done,
        queueing_ms=_age_ms(view, times, queue, pulled, end, now_ms),
    )


def _age_ms(
    view: BrokerView, times: StoreTimes, queue: ConsumeQueue, offset: int, end: int, now_ms: int
) -> int:
    if offset >= end:
        return 0
    stored_ms = times.stored_ms(view, queue, offset)
    return max(now_ms - stored_ms, 0) if stored_ms > 0 else 0
