"""A consumer that calls a listener: it finds its queues, pulls them and hands out what it finds.

consumer = PushConsumer("billing", client=ClientSettings(name_servers="127.0.0.1:9876"))
consumer.subscribe("orders", "new || paid")
consumer.listen(handle)          # or listen_in_order; async def or a plain function
async with consumer:
    ...
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final, Self

import msgspec

from downrange.client.consume_stats import SAMPLE_S
from downrange.client.consumer_service import ConsumerService
from downrange.client.consumer_settings import PushConsumerSettings, checked_consumer_group
from downrange.client.errors import ClientStateError, RocketMQError
from downrange.client.hooks import ConsumeHook, FilterHook
from downrange.client.invalid_messages import InvalidMessageCounts, InvalidMessageHook
from downrange.client.listeners import (
    Listener,
    ListenerThreads,
    OnTheLoop,
    OrderlyListener,
    ThreadPool,
    is_coroutine_function,
)
from downrange.client.message import ReceivedMessage
from downrange.client.namespace import with_namespace
from downrange.client.push_parts import (
    OffsetFiles,
    PushPlan,
    PushRun,
    build_push,
    check_expressions,
)
from downrange.client.rebalance import QueuesChanged
from downrange.client.running_info import running_info
from downrange.client.send_back import RetrySender
from downrange.client.session import ServiceState
from downrange.client.session_table import SESSIONS, SessionTable
from downrange.client.settings import ClientSettings
from downrange.client.start_offset import StartOffset
from downrange.client.subscription import subscribe, subscribe_tags
from downrange.filtering.tags import EVERYTHING, SQL92_TYPE
from downrange.model.names import retry_topic
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.consumer import ConsumeDirectlyResult, RunningInfo
from downrange.protocol.bodies.heartbeat import ConsumerGroup, Subscription
from downrange.runtime.blocking import BlockingRunner, BlockingThread
from downrange.runtime.disk import Disk
from downrange.runtime.service import Supervisor

_log = logging.getLogger(__name__)

RESET_DRAIN_S: Final = 10.0  # how long the listener may end what it has when offsets are set anew


class PushConsumer:
    """One member of a consumer group. Belongs to one event loop; started and shut down once.

    After `shutdown` returns, offsets are kept, locks are given back and the group knows that this
    member has left, so that others go on at once.
    """

    def __init__(
        self,
        group: str,
        *,
        client: ClientSettings,
        settings: PushConsumerSettings | None = None,
        sessions: SessionTable = SESSIONS,
        threads: ListenerThreads | None = None,
        disk: Disk | None = None,
        blocking: BlockingRunner | None = None,
        retry_sender: RetrySender | None = None,
    ) -> None:
        self.settings = settings or PushConsumerSettings()
        self.group = with_namespace(checked_consumer_group(group), client.namespace)
        self.state = ServiceState.CREATE_JUST
        self.consume_hooks: list[ConsumeHook] = []
        self.filter_hooks: list[FilterHook] = []
        self.user_info: dict[str, str] = {}  # shown by GET_CONSUMER_RUNNING_INFO
        self.on_queues_changed: QueuesChanged | None = None
        self.on_invalid_message: InvalidMessageHook | None = None  # instead of the policy
        self._client = client
        self._sessions = sessions
        self._threads = threads
        self._disk = disk or Disk()
        self._blocking = blocking
        self._retry_sender = retry_sender
        self._subscriptions: dict[str, Subscription] = {}
        self._listener: Listener | None = None
        self._orderly_listener: OrderlyListener | None = None
        self._run: PushRun | None = None

    # --- what to consume, and how ----------------------------------------------------------

    def subscribe(self, topic: str, tags: str = EVERYTHING) -> None:
        """Want the messages of a topic that have one of the tags ("a || b"), or all ("*")."""
        self._subscribe(subscribe_tags(self._named(topic), tags, version_ms=self._version_ms()))

    def subscribe_sql(self, topic: str, expression: str) -> None:
        """Want the messages of a topic whose properties fulfil an SQL92 expression."""
        self._subscribe(
            subscribe(self._named(topic), expression, SQL92_TYPE, version_ms=self._version_ms())
        )

    def unsubscribe(self, topic: str) -> None:
        """Want no more messages of a topic; its queues are handed over."""
        self._subscriptions.pop(self._named(topic), None)
        self._tell_brokers()

    def listen(self, listener: Listener) -> None:
        """Have this called with messages, in any order and several calls at a time."""
        self._check_not_started()
        self._listener, self._orderly_listener = listener, None

    def listen_in_order(self, listener: OrderlyListener) -> None:
        """Have this called with messages, those of one queue in their order."""
        self._check_not_started()
        self._listener, self._orderly_listener = None, listener

    # --- life ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group; messages may come before this returns."""
        self._check_not_started()
        listener = self._orderly_listener or self._listener
        if listener is None:
            raise ClientStateError(
                f"consumer {self.group} has no listener; call listen or listen_in_order first"
            )
        settings = self.settings
        session = self._sessions.acquire(self._client, keep_instance_name=settings.is_broadcasting)
        self._complete_subscriptions(session.clock.wall_ms())
        supervisor = Supervisor(_only_logged)
        if self._threads is None:
            self._threads = (
                OnTheLoop()
                if is_coroutine_function(listener)
                else ThreadPool(settings.consume_threads_max, self.group)
            )
        self._blocking = self._blocking or BlockingThread("offsets")
        plan = PushPlan(
            self.group,
            settings,
            self._listener,
            self._orderly_listener,
            self._threads,
            self._subscriptions,
            self.consume_hooks,
            self.filter_hooks,
            self._retry_sender,
            lambda: self.on_invalid_message,
        )
        self.state = ServiceState.START_FAILED
        run = build_push(plan, session, supervisor, OffsetFiles(self._disk, self._blocking))
        run.rebalance.on_change = self._on_queues_changed
        self._run = run
        try:
            session.register(self)
            ConsumerService(session).serve()
            await session.start()
            await session.refresh_routes()
            await check_expressions(session, self.group, self._subscriptions.values())
            await session.heartbeat_to_all()
        except BaseException:
            await self._leave(run)
            raise
        supervisor.spawn(f"rebalance {self.group}", run.rebalance.run())
        supervisor.every("statistics", SAMPLE_S, run.stats.sample)
        supervisor.every("overdue", settings.consume_timeout_min * 60, self._check_overdue)
        self.state = ServiceState.RUNNING
        _log.info("consumer started group=%s client=%s", self.group, session.client_id)

    async def shutdown(self) -> None:
        """Leave the group: end what runs, keep offsets, give up locks. May be called again."""
        run = self._run
        if run is None or self.state is not ServiceState.RUNNING:
            self.state = ServiceState.SHUTDOWN_ALREADY
            return
        self.state = ServiceState.SHUTDOWN_ALREADY
        run.rebalance.is_paused = True
        await run.rebalance.release_all(self.settings.shutdown_timeout_s)
        await self._leave(run)
        _log.info("consumer shut down group=%s", self.group)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    def suspend(self) -> None:
        """Pull no more; what is here is still consumed, and the queues stay ours."""
        run = self._running()
        run.pulls.is_paused = run.rebalance.is_paused = True

    def resume(self) -> None:
        """Pull again."""
        run = self._running()
        run.pulls.is_paused = run.rebalance.is_paused = False
        run.rebalance.soon()

    # --- looking on ------------------------------------------------------------------------

    @property
    def client_id(self) -> str:
        """How brokers know this client."""
        return self._running().session.client_id

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """The queues that are ours now."""
        return frozenset(self._run.rebalance.working) if self._run is not None else frozenset()

    @property
    def start_offsets(self) -> dict[MessageQueue, StartOffset]:
        """Where each of our queues was begun, and why there."""
        run = self._running()
        return {queue: one.start for queue, one in run.rebalance.table.items()}

    @property
    def invalid_message_counts(self) -> InvalidMessageCounts:
        """What became of messages that could not be decoded."""
        return replace(self._running().invalid_messages.counts)

    async def fetch_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic that can be read."""
        run, name = self._running(), self._named(topic)
        if not run.session.routes.subscribe_queues(name):
            await run.session.routes.refresh(name)
        return run.session.routes.subscribe_queues(name)

    async def send_back(self, message: ReceivedMessage, delay_level: int = 0) -> bool:
        """Have a message come to the group again; whether a broker has taken it."""
        return await self._running().send_back.give_back(message, message.queue, delay_level)

    def running_info(self) -> RunningInfo:
        """What this consumer is doing."""
        run = self._running()
        return running_info(
            group=self.group,
            settings=self.settings,
            is_in_order=run.consumption.is_in_order,
            threads=run.consumption.workers_max,
            started_ms=run.started_ms,
            name_servers=run.session.name_servers.addresses,
            subscriptions=self._subscriptions.values(),
            queues={queue: one.held for queue, one in run.rebalance.table.items()},
            offsets=run.offsets,
            stats=run.stats,
            invalid=run.invalid_messages.counts,
            user_info=self.user_info,
        )

    # --- what the session asks (Participant) -----------------------------------------------

    def heartbeat(self) -> ConsumerGroup:
        """What brokers are told every half minute."""
        return ConsumerGroup(
            group_name=self.group,
            consume_type="CONSUME_PASSIVELY",
            message_model=self.settings.message_model.value,
            consume_from_where=self.settings.consume_from_where.value,
            subscription_data_set=tuple(self._subscriptions.values()),
            unit_mode=self.settings.unit_mode,
        )

    def topics(self) -> Iterable[str]:
        """The topics whose routes are kept fresh."""
        return tuple(self._subscriptions)

    def on_routes_changed(self, topic: str) -> None:
        """Queues came or went."""
        if topic in self._subscriptions:
            self.rebalance_soon()

    async def persist_offsets(self) -> None:
        """Keep how far we have come."""
        if self._run is not None and self.state is ServiceState.RUNNING:
            await self._run.offsets.persist(list(self._run.rebalance.working))

    def rebalance_soon(self) -> None:
        """The group has changed."""
        if self._run is not None:
            self._run.rebalance.soon()

    # --- what brokers ask (ServedConsumer) -------------------------------------------------

    def consumed_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """How far we have come in a topic."""
        return self._running().offsets.snapshot(topic)

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Begin anew at these offsets; returns before it is done."""
        run = self._running()
        wanted = {queue: offset for queue, offset in offsets.items() if queue.topic == topic}
        run.supervisor.spawn("reset offsets", run.rebalance.reset(wanted, RESET_DRAIN_S))

    async def consume_directly(
        self, message: ReceivedMessage, broker_name: str
    ) -> ConsumeDirectlyResult | None:
        """Have the listener consume a message, now."""
        return await self._running().consumption.directly(message, broker_name)

    # --- inside ----------------------------------------------------------------------------

    def _named(self, topic: str) -> str:
        return with_namespace(topic, self._client.namespace)

    def _version_ms(self) -> int:
        if self._run is not None:
            return self._run.session.clock.wall_ms()
        return 0  # the start gives it one

    def _subscribe(self, subscription: Subscription) -> None:
        self._subscriptions[subscription.topic] = subscription
        self._tell_brokers()

    def _tell_brokers(self) -> None:
        run = self._run
        if run is not None and self.state is ServiceState.RUNNING:
            run.supervisor.spawn("subscriptions changed", self._announce(run))

    async def _announce(self, run: PushRun) -> None:
        try:
            await run.session.refresh_routes()
            await run.session.heartbeats.send_to_all(forget_known=True)
        except RocketMQError as error:
            _log.warning("brokers not told what group %s wants now: %s", self.group, error)
        run.rebalance.soon()

    def _complete_subscriptions(self, now_ms: int) -> None:
        """Give all a version, of which brokers keep the newest, and add the retry topic."""
        table = self._subscriptions
        for topic, subscription in table.items():
            table[topic] = msgspec.structs.replace(subscription, sub_version=now_ms)
        if not self.settings.is_broadcasting:
            topic = retry_topic(self.group)
            table[topic] = subscribe_tags(topic, version_ms=now_ms)

    def _on_queues_changed(
        self, topic: str, queues: Collection[MessageQueue], mine: Collection[MessageQueue]
    ) -> None:
        run, settings = self._running(), self.settings
        run.pulls.limits = settings.flow_limits.shared_by(
            len(run.rebalance.working),
            topic_count_max=settings.pull_threshold_for_topic,
            topic_size_mib_max=settings.pull_threshold_mib_for_topic,
        )
        if self.on_queues_changed is not None:
            self.on_queues_changed(topic, queues, mine)

    def _check_overdue(self) -> None:
        run = self._running()
        run.supervisor.spawn(
            "give back what is overdue",
            run.consumption.check_overdue(
                run.rebalance.working, self.settings.consume_timeout_min * 60
            ),
        )

    async def _leave(self, run: PushRun) -> None:
        await run.supervisor.stop()
        if run.tracer is not None:
            await run.tracer.close()
        await run.session.unregister(self)
        await self._sessions.release(run.session)
        if self._threads is not None:
            self._threads.close()
        if self._blocking is not None:
            self._blocking.close()

    def _running(self) -> PushRun:
        if self._run is None:
            raise ClientStateError(f"consumer {self.group} is not started; call start first")
        return self._run

    def _check_not_started(self) -> None:
        if self.state is not ServiceState.CREATE_JUST:
            raise ClientStateError(
                f"consumer {self.group} is {self.state.value}; this is possible only before its "
                f"start, which happens once"
            )


def _only_logged(name: str, error: BaseException) -> None:
    """For owners without a process to stop: the supervisor has logged the failure already."""
    del name, error
