"""Blocking consumers; what they do is told at the asyncio classes of the same names."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Protocol

from downrange.client import lite_pull_consumer, pull_consumer, push_consumer
from downrange.client.consumer_settings import (
    LitePullSettings,
    PullConsumerSettings,
    PushConsumerSettings,
)
from downrange.client.invalid_message import InvalidMessage
from downrange.client.invalid_messages import InvalidMessageCounts, InvalidMessageHook
from downrange.client.listeners import Listener, OrderlyListener
from downrange.client.message import ReceivedMessage
from downrange.client.pulling import PullResult
from downrange.client.pulling_member import PullingMember
from downrange.client.queue_watch import QueueListener
from downrange.client.session_table import SessionTable
from downrange.client.settings import ClientSettings
from downrange.filtering.tags import EVERYTHING
from downrange.model.topics import MessageQueue
from downrange.sync.listener_threads import DaemonThreads
from downrange.sync.member import GRACE_S, SYNC_SESSIONS, Member


class _Subscriber(Protocol):
    def subscribe(self, topic: str, tags: str = EVERYTHING) -> None: ...
    def subscribe_sql(self, topic: str, expression: str) -> None: ...
    def unsubscribe(self, topic: str) -> None: ...


class _SubscribingMember(Member):
    """What both consumers can say that share the queues of topics with their group."""

    _inner: _Subscriber

    def subscribe(self, topic: str, tags: str = EVERYTHING) -> None:
        """Want the messages of a topic that have one of the tags ("a || b"), or all ("*")."""
        self._do(partial(self._inner.subscribe, topic, tags))

    def subscribe_sql(self, topic: str, expression: str) -> None:
        """Want the messages of a topic whose properties fulfil an SQL92 expression."""
        self._do(partial(self._inner.subscribe_sql, topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Want no more messages of a topic."""
        self._do(partial(self._inner.unsubscribe, topic))


class PushConsumer(_SubscribingMember):
    """Calls a listener in threads of its own; it may block.

    A listener that is a coroutine function runs in the I/O thread and must not block.
    """

    _inner: push_consumer.PushConsumer

    def __init__(
        self,
        group: str,
        *,
        client: ClientSettings,
        settings: PushConsumerSettings | None = None,
        sessions: SessionTable = SYNC_SESSIONS,
    ) -> None:
        settings = settings or PushConsumerSettings()
        self._inner = push_consumer.PushConsumer(
            group,
            client=client,
            settings=settings,
            sessions=sessions,
            threads=DaemonThreads(settings.consume_threads_max, f"consume_{group}"),
        )
        super().__init__(self._inner)

    @property
    def group(self) -> str:
        """The group as brokers know it."""
        return self._inner.group

    @property
    def on_invalid_message(self) -> InvalidMessageHook | None:
        """Takes messages that cannot be decoded, in a listener thread; None: the policy applies."""
        return self._inner.on_invalid_message

    @on_invalid_message.setter
    def on_invalid_message(self, hook: InvalidMessageHook | None) -> None:
        self._inner.on_invalid_message = hook

    @property
    def invalid_message_counts(self) -> InvalidMessageCounts:
        """What became of messages that could not be decoded."""
        return self._inner.invalid_message_counts

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """The queues that are ours now."""
        return self._inner.queues

    def listen(self, listener: Listener) -> None:
        """Have this called with messages, in any order and several calls at a time."""
        self._inner.listen(listener)

    def listen_in_order(self, listener: OrderlyListener) -> None:
        """Have this called with messages, those of one queue in their order."""
        self._inner.listen_in_order(listener)

    def suspend(self) -> None:
        """Pull no more; what is here is still consumed."""
        self._do(self._inner.suspend)

    def resume(self) -> None:
        """Pull again."""
        self._do(self._inner.resume)

    def fetch_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic that can be read."""
        return self._call(self._inner.fetch_queues(topic))

    def send_back(self, message: ReceivedMessage, delay_level: int = 0) -> bool:
        """Have a message come to the group again; whether a broker has taken it."""
        return self._call(self._inner.send_back(message, delay_level))


class _PullingMember(Member):
    """What both consumers can ask that pull by themselves."""

    def __init__(self, pulling: PullingMember) -> None:
        self._pulling = pulling
        super().__init__(pulling)

    @property
    def group(self) -> str:
        """The group as brokers know it."""
        return self._pulling.group

    @property
    def on_invalid_message(self) -> InvalidMessageHook | None:
        """Takes messages that cannot be decoded, in the I/O thread: it must not block."""
        return self._pulling.on_invalid_message

    @on_invalid_message.setter
    def on_invalid_message(self, hook: InvalidMessageHook | None) -> None:
        self._pulling.on_invalid_message = hook

    @property
    def invalid_message_counts(self) -> InvalidMessageCounts:
        """What became of messages that could not be decoded."""
        return self._pulling.invalid_message_counts

    def fetch_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic that can be read."""
        return self._call(self._pulling.fetch_queues(topic))

    def min_offset(self, queue: MessageQueue) -> int:
        """The first offset that is kept."""
        return self._call(self._pulling.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset of the message to come."""
        return self._call(self._pulling.max_offset(queue))

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset of a time."""
        return self._call(self._pulling.offset_at(queue, timestamp_ms))


class PullConsumer(_PullingMember):
    """Pulls when asked."""

    def __init__(
        self,
        group: str,
        *,
        client: ClientSettings,
        settings: PullConsumerSettings | None = None,
        sessions: SessionTable = SYNC_SESSIONS,
    ) -> None:
        self._inner = pull_consumer.PullConsumer(
            group, client=client, settings=settings, sessions=sessions
        )
        super().__init__(self._inner)

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        tags: str = EVERYTHING,
        sql: str = "",
        count_max: int = pull_consumer.COUNT,
        timeout_s: float | None = None,
    ) -> PullResult:
        """What is there now from an offset on; go on at `next_offset`, whatever the status."""
        limit_s = self._inner.settings.pull_timeout_s if timeout_s is None else timeout_s
        pulling = self._inner.pull(
            queue, offset, tags=tags, sql=sql, count_max=count_max, timeout_s=timeout_s
        )
        return self._call(pulling, limit_s + GRACE_S)

    def pull_blocking(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        tags: str = EVERYTHING,
        sql: str = "",
        count_max: int = pull_consumer.COUNT,
    ) -> PullResult:
        """The same, but the broker waits up to `suspend_max_s` for a message to come."""
        pulling = self._inner.pull_blocking(queue, offset, tags=tags, sql=sql, count_max=count_max)
        return self._call(pulling, self._inner.settings.timeout_when_suspended_s + GRACE_S)

    def consumed_offset(self, queue: MessageQueue, *, from_store: bool = False) -> int | None:
        """How far the group has come; None if nobody knows."""
        return self._call(self._inner.consumed_offset(queue, from_store=from_store))

    def update_consumed_offset(self, queue: MessageQueue, offset: int) -> None:
        """The group has come this far; kept for good within seconds, or by `persist`."""
        self._do(partial(self._inner.update_consumed_offset, queue, offset))

    def persist(self, queue: MessageQueue | None = None) -> None:
        """Keep the offset of a queue, or all, for good now."""
        self._call(self._inner.persist(queue))

    def earliest_store_time_ms(self, queue: MessageQueue) -> int:
        """When the first message that is still kept was stored."""
        return self._call(self._inner.earliest_store_time_ms(queue))

    def send_back(
        self, message: ReceivedMessage, queue: MessageQueue, delay_level: int = 0
    ) -> bool:
        """Have a message come to the group again; whether a broker has taken it."""
        return self._call(self._inner.send_back(message, queue, delay_level))

    def dead_letter(self, invalid: InvalidMessage) -> None:
        """Publish a message that cannot be decoded to the dead-letter topic of the group."""
        self._call(self._inner.dead_letter(invalid))


class LitePullConsumer(_SubscribingMember, _PullingMember):
    """Subscribes or is assigned queues, fetches ahead, and is polled."""

    _inner: lite_pull_consumer.LitePullConsumer

    def __init__(
        self,
        group: str,
        *,
        client: ClientSettings,
        settings: LitePullSettings | None = None,
        sessions: SessionTable = SYNC_SESSIONS,
    ) -> None:
        self._inner = lite_pull_consumer.LitePullConsumer(
            group, client=client, settings=settings, sessions=sessions
        )
        super().__init__(self._inner)

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that are fetched from."""
        return self._inner.assignment

    def assign(self, queues: Iterable[MessageQueue], *, tags: str = EVERYTHING) -> None:
        """Fetch from exactly these queues, whatever the group does; after the start."""
        self._call(self._inner.assign(queues, tags=tags))

    def watch_queues(self, topic: str, listener: QueueListener) -> None:
        """Have this called, in the I/O thread, when queues of a topic come or go."""
        self._do(partial(self._inner.watch_queues, topic, listener))

    def poll(self, timeout_s: float | None = None) -> list[ReceivedMessage]:
        """The next batch; empty if none came in time."""
        limit_s = self._inner.settings.poll_timeout_s if timeout_s is None else timeout_s
        return self._call(self._inner.poll(timeout_s), limit_s + GRACE_S)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Fetch no more from these; what is fetched already is still given."""
        self._do(partial(self._inner.pause, queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Fetch again."""
        self._do(partial(self._inner.resume, queues))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset; what was fetched and not polled is forgotten."""
        self._call(self._inner.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the first message that is kept."""
        self._call(self._inner.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with messages to come."""
        self._call(self._inner.seek_to_end(queue))

    def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Go on at the first message of a time."""
        self._call(self._inner.seek_to_time(queue, timestamp_ms))

    def commit(
        self, offsets: Mapping[MessageQueue, int] | None = None, *, wait: bool = True
    ) -> None:
        """Count what was polled as consumed, or set offsets by hand."""
        self._call(self._inner.commit(offsets, wait=wait))

    def committed(self, queue: MessageQueue) -> int | None:
        """How far the group has come, by what we know, else by the broker."""
        return self._call(self._inner.committed(queue))
