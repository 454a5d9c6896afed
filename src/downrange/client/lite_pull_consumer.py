"""A consumer that fetches ahead and gives what it has when the program polls.

consumer = LitePullConsumer("audit", client=ClientSettings(name_servers="127.0.0.1:9876"))
consumer.subscribe("orders")           # share the queues with the group; or assign some
async with consumer:
    while True:
        for message in await consumer.poll():
            ...
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from downrange.client.consumer_settings import START_BACK_MS, LitePullSettings
from downrange.client.errors import ClientStateError, RocketMQError
from downrange.client.fetched_queue import FetchedQueue, FetchParts
from downrange.client.invalid_message import InvalidMessagePolicy
from downrange.client.message import ReceivedMessage
from downrange.client.process_queue import ProcessQueue
from downrange.client.pulling_member import PullingMember
from downrange.client.push_parts import check_expressions
from downrange.client.queue_watch import QueueListener, QueueWatch
from downrange.client.rebalance import QueuesChanged, Rebalance
from downrange.client.running_info import lite_settings
from downrange.client.session import ServiceState, Session
from downrange.client.session_table import SESSIONS, SessionTable
from downrange.client.settings import ClientSettings
from downrange.client.starting_point import StartingPoint
from downrange.client.subscription import subscribe, subscribe_tags
from downrange.filtering.tags import EVERYTHING, SQL92_TYPE
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.heartbeat import Subscription
from downrange.runtime.blocking import BlockingRunner
from downrange.runtime.disk import Disk

_log = logging.getLogger(__name__)


class LitePullConsumer(PullingMember):
    """Subscribes, sharing queues with its group, or is assigned queues; never both.

    With auto commit, what a poll has given counts as consumed once a later poll comes, or at the
    shutdown.
    """

    def __init__(
        self,
        group: str,
        *,
        client: ClientSettings,
        settings: LitePullSettings | None = None,
        sessions: SessionTable = SESSIONS,
        disk: Disk | None = None,
        blocking: BlockingRunner | None = None,
    ) -> None:
        self.settings = settings or LitePullSettings()
        super().__init__(
            group,
            client=client,
            message_model=self.settings.message_model,
            consume_from_where=self.settings.consume_from_where.value,
            unit_mode=self.settings.unit_mode,
            offsets_folder=self.settings.offsets_folder,
            sessions=sessions,
            disk=disk,
            blocking=blocking,
        )
        self.on_queues_changed: QueuesChanged | None = None
        self._assigned: dict[MessageQueue, FetchedQueue] = {}
        self._wanted: tuple[MessageQueue, ...] | None = None  # not None: assigned by the program
        self._filters: dict[str, Subscription] = {}  # of assigned queues, by topic
        self._paused: set[MessageQueue] = set()
        self._ready: deque[tuple[FetchedQueue, list[ReceivedMessage]]] = deque()
        self._waiting = 0
        self._arrived = asyncio.Event()
        self._next_commit_s = 0.0
        self._watch = QueueWatch(self._fetch_queues_anew)
        self._rebalance: Rebalance | None = None
        self._parts: FetchParts | None = None
        self._starting_point: StartingPoint | None = None

    # --- what to consume -------------------------------------------------------------------

    def subscribe(self, topic: str, tags: str = EVERYTHING) -> None:
        """Share the queues of a topic with the group."""
        self._subscribe(subscribe_tags(self._named(topic), tags, version_ms=self._version_ms()))

    def subscribe_sql(self, topic: str, expression: str) -> None:
        """The same, for messages whose properties fulfil an SQL92 expression."""
        name = self._named(topic)
        self._subscribe(subscribe(name, expression, SQL92_TYPE, version_ms=self._version_ms()))

    def unsubscribe(self, topic: str) -> None:
        """Give the queues of a topic back to the group."""
        self._subscriptions.pop(self._named(topic), None)
        self._tell_brokers()

    async def assign(self, queues: Iterable[MessageQueue], *, tags: str = EVERYTHING) -> None:
        """Fetch from exactly these queues, whatever the group does; replaces an earlier call."""
        if self._subscriptions:
            raise ClientStateError(
                f"consumer {self.group} has subscribed; assign queues to another consumer"
            )
        self._wanted = tuple(sorted(set(queues)))
        for topic in {queue.topic for queue in self._wanted}:
            self._filters[topic] = subscribe_tags(topic, tags, version_ms=0)
        if self.state is ServiceState.RUNNING:
            await self._take_assigned()

    def watch_queues(self, topic: str, listener: QueueListener) -> None:
        """Have this called when queues of a topic come or go, within `topic_check_interval_s`.

        For a program that assigns queues; one that subscribes gets new queues by itself.
        """
        self._watch.add(topic, listener)
        if self.state is ServiceState.RUNNING:
            self._look_at_queues()

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that are fetched from."""
        return frozenset(self._assigned)

    # --- messages --------------------------------------------------------------------------

    async def poll(self, timeout_s: float | None = None) -> list[ReceivedMessage]:
        """The next batch; empty if none came in time."""
        self._running()
        limit_s = self.settings.poll_timeout_s if timeout_s is None else timeout_s
        if limit_s < 0:
            raise RocketMQError(f"a poll cannot wait {limit_s} s; 0 takes what is there")
        if self.settings.auto_commit:
            self._commit_in_time()
        try:
            async with asyncio.timeout(limit_s):
                while not self._ready:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            if not self._ready:
                return []
        fetched, messages = self._ready.popleft()
        self._waiting -= len(messages)
        fetched.polled_offset = fetched.held.remove(messages)
        return self._give(fetched.queue, messages)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Fetch no more from these; what is fetched already is still given."""
        self._set_paused(queues, is_paused=True)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Fetch again."""
        self._set_paused(queues, is_paused=False)

    # --- where -----------------------------------------------------------------------------

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset; what was fetched and not polled is forgotten."""
        self._fetched(queue)
        low, high = await self.min_offset(queue), await self.max_offset(queue)
        if not low <= offset <= high:
            raise RocketMQError(
                f"cannot seek to offset {offset} of {queue}: it has {low} to {high}"
            )
        fetched = self._fetched(queue)
        fetched.stop()
        fetched.held.clear()
        self._forget(fetched)
        fetched.offset = fetched.polled_offset = offset
        self._run_fetching(fetched)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the first message that is kept."""
        await self.seek(queue, await self.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with messages to come."""
        await self.seek(queue, await self.max_offset(queue))

    async def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Go on at the first message of a time."""
        await self.seek(queue, await self.offset_at(queue, timestamp_ms))

    async def commit(
        self, offsets: Mapping[MessageQueue, int] | None = None, *, wait: bool = True
    ) -> None:
        """Count what was polled as consumed, or set offsets by hand; with `wait` kept for good."""
        self._running()
        if offsets is None:
            self._commit_polled()
            queues = list(self._assigned)
        else:
            queues = list(offsets)
            for queue, offset in offsets.items():
                self._fetched(queue)
                self._offsets.update(queue, offset, increase_only=False)
        await self._offsets.persist(queues, wait=wait)

    async def committed(self, queue: MessageQueue) -> int | None:
        """How far the group has come, by what we know, else by the broker."""
        self._running()
        offset = self._offsets.in_memory(queue)
        return await self._offsets.stored(queue) if offset is None else offset

    # --- life ------------------------------------------------------------------------------

    async def _begin(self, session: Session) -> None:
        settings, clock = self.settings, session.clock
        for topic, one in self._subscriptions.items():
            self._subscriptions[topic] = msgspec.structs.replace(one, sub_version=clock.wall_ms())
        assert self._invalid_messages_ is not None
        self._parts = FetchParts(
            settings,
            self._puller,
            self._invalid_messages_,
            clock,
            self._filter,
            lambda: self._waiting,
            self._on_messages,
        )
        where_ms = settings.consume_timestamp_ms
        assert self._calls_ is not None
        self._starting_point = StartingPoint(
            self._calls_,
            self._offsets,
            self.group,
            settings.consume_from_where,
            clock.wall_ms() - START_BACK_MS if where_ms is None else where_ms,
        )
        self._next_commit_s = clock.monotonic_s() + settings.auto_commit_interval_s
        self._look_at_queues()
        self._supervisor.every(
            "queues of topics", settings.topic_check_interval_s, self._look_at_queues
        )
        if self._wanted is not None:
            await self._take_assigned()
            return
        await check_expressions(session, self.group, self._subscriptions.values())
        self._rebalance = rebalance = Rebalance(
            group=self.group,
            client_id=session.client_id,
            strategy=settings.strategy,
            is_broadcasting=settings.is_broadcasting,
            is_in_order=False,
            subscriptions=self._subscriptions,
            readable_queues=session.routes.subscribe_queues,
            calls=self._calls_,
            offsets=self._offsets,
            find_start=self._starting_point.find,
            greet=session.heartbeats.send,
            clock=clock,
            supervisor=self._supervisor,
        )
        rebalance.begin_pulling = self._on_queue_won
        rebalance.on_change = self._on_change
        self._supervisor.spawn(f"rebalance {self.group}", rebalance.run())

    async def _end(self) -> None:
        if self.settings.auto_commit:
            self._commit_polled()
        await self._offsets.persist(list(self._offsets.snapshot()), wait=True)
        for fetched in list(self._assigned.values()):
            self._drop(fetched)

    def on_routes_changed(self, topic: str) -> None:
        """Queues came or went."""
        if topic in self._subscriptions:
            self.rebalance_soon()

    def rebalance_soon(self) -> None:
        """The group has changed."""
        if self._rebalance is not None:
            self._rebalance.soon()

    # --- inside ----------------------------------------------------------------------------

    def _subscribe(self, subscription: Subscription) -> None:
        if self._wanted is not None:
            raise ClientStateError(
                f"consumer {self.group} has queues assigned; subscribe with another consumer"
            )
        self._subscriptions[subscription.topic] = subscription
        self._tell_brokers()

    def _invalid_policy(self) -> InvalidMessagePolicy:
        return self.settings.invalid_messages

    def _on_settled(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        fetched = self._assigned.get(queue)
        if fetched is not None and fetched.held is process_queue:
            fetched.polled_offset = offset

    def _java_settings(self) -> dict[str, str]:
        return lite_settings(self.group, self.settings)

    def _held_queues(self) -> dict[MessageQueue, ProcessQueue]:
        return {queue: fetched.held for queue, fetched in self._assigned.items()}

    def _look_at_queues(self) -> None:
        self._supervisor.spawn("look at queues", self._watch.look())

    async def _fetch_queues_anew(self, topic: str) -> tuple[MessageQueue, ...]:
        assert self._session is not None
        name = self._named(topic)
        await self._session.routes.refresh(name)
        return self._session.routes.subscribe_queues(name)

    def _filter(self, topic: str) -> Subscription | None:
        return self._subscriptions.get(topic) or self._filters.get(topic)

    async def _take_assigned(self) -> None:
        assert self._wanted is not None
        assert self._starting_point is not None
        for queue in [queue for queue in self._assigned if queue not in self._wanted]:
            self._drop(self._assigned[queue])
        for queue in self._wanted:
            if queue in self._assigned:
                continue
            try:
                start = await self._starting_point.find(queue)
            except RocketMQError as error:
                raise RocketMQError(f"cannot begin with {queue}: {error}") from error
            assert self._parts is not None
            self._begin_fetching(queue, ProcessQueue(self._parts.clock), start.offset)

    def _begin_fetching(self, queue: MessageQueue, held: ProcessQueue, offset: int) -> FetchedQueue:
        assert self._parts is not None
        fetched = FetchedQueue(queue, held, offset, self._parts, is_paused=queue in self._paused)
        self._assigned[queue] = fetched
        self._run_fetching(fetched)
        return fetched

    def _run_fetching(self, fetched: FetchedQueue) -> None:
        name = f"fetch {fetched.queue.topic}/{fetched.queue.queue_id}"
        fetched.stop = self._supervisor.spawn_until(name, fetched.run())

    def _drop(self, fetched: FetchedQueue) -> None:
        fetched.held.is_dropped = True
        fetched.stop()
        self._forget(fetched)
        if self._assigned.get(fetched.queue) is fetched:
            del self._assigned[fetched.queue]

    def _forget(self, fetched: FetchedQueue) -> None:
        """Take what was fetched and not polled out of the line."""
        kept = [entry for entry in self._ready if entry[0] is not fetched]
        self._ready = deque(kept)
        self._waiting = sum(len(messages) for _, messages in kept)

    def _on_queue_won(
        self, queue: MessageQueue, held: ProcessQueue, offset: int
    ) -> Callable[[], object]:
        fetched = self._begin_fetching(queue, held, offset)
        return lambda: self._drop(fetched)

    def _on_change(
        self, topic: str, queues: Collection[MessageQueue], mine: Collection[MessageQueue]
    ) -> None:
        if self.on_queues_changed is not None:
            self.on_queues_changed(topic, queues, mine)

    def _on_messages(self, fetched: FetchedQueue, messages: list[ReceivedMessage]) -> None:
        self._ready.append((fetched, messages))
        self._waiting += len(messages)
        self._arrived.set()

    def _fetched(self, queue: MessageQueue) -> FetchedQueue:
        self._running()
        fetched = self._assigned.get(queue)
        if fetched is None:
            raise RocketMQError(
                f"{queue} is not assigned to this consumer of group {self.group}; the group may be "
                f"sharing out its queues anew"
            )
        return fetched

    def _set_paused(self, queues: Iterable[MessageQueue], *, is_paused: bool) -> None:
        for queue in queues:
            (self._paused.add if is_paused else self._paused.discard)(queue)
            if (fetched := self._assigned.get(queue)) is not None:
                fetched.is_paused = is_paused
                fetched.moved.wake()

    def _commit_in_time(self) -> None:
        now_s = self._running().clock.monotonic_s()
        if now_s >= self._next_commit_s:
            self._next_commit_s = now_s + self.settings.auto_commit_interval_s
            self._commit_polled()

    def _commit_polled(self) -> None:
        for queue, fetched in self._assigned.items():
            if fetched.polled_offset is not None:
                self._offsets.update(queue, fetched.polled_offset, increase_only=False)
