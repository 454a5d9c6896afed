"""What pull consumers share: a group, a session, subscriptions; the messages the user fetches."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Self

from downrange.client.consume_hook_calls import show_given
from downrange.client.consumer_service import ConsumerService
from downrange.client.consumer_settings import MessageModel, checked_consumer_group
from downrange.client.dead_letter import DeadLetterSending
from downrange.client.errors import ClientStateError, RocketMQError
from downrange.client.hooks import ConsumeHook, FilterHook
from downrange.client.invalid_message import InvalidMessagePolicy
from downrange.client.invalid_messages import (
    InvalidMessageCounts,
    InvalidMessageHook,
    InvalidMessages,
)
from downrange.client.listeners import OnTheLoop
from downrange.client.message import ReceivedMessage
from downrange.client.namespace import with_namespace, without_namespace
from downrange.client.offset_store import OffsetStore
from downrange.client.process_queue import ProcessQueue
from downrange.client.pulling import Puller
from downrange.client.push_parts import OffsetFiles, consume_tracer, offset_store_of
from downrange.client.queue_calls import QueueCalls
from downrange.client.running_info import pulling_info
from downrange.client.session import ServiceState, Session
from downrange.client.session_table import SESSIONS, SessionTable
from downrange.client.settings import ClientSettings
from downrange.client.trace import Tracer
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.consumer import ConsumeDirectlyResult, RunningInfo
from downrange.protocol.bodies.heartbeat import ConsumerGroup, Subscription
from downrange.runtime.blocking import BlockingRunner, BlockingThread
from downrange.runtime.disk import Disk
from downrange.runtime.service import Supervisor

_log = logging.getLogger(__name__)


class PullingMember:
    """One member of a group that pulls by itself; a `Participant` of its session."""

    def __init__(
        self,
        group: str,
        *,
        client: ClientSettings,
        message_model: MessageModel,
        consume_from_where: str,
        unit_mode: bool,
        offsets_folder: str,
        sessions: SessionTable = SESSIONS,
        disk: Disk | None = None,
        blocking: BlockingRunner | None = None,
    ) -> None:
        self.group = with_namespace(checked_consumer_group(group), client.namespace)
        self.state = ServiceState.CREATE_JUST
        self.consume_hooks: list[ConsumeHook] = []
        self.filter_hooks: list[FilterHook] = []
        self.on_invalid_message: InvalidMessageHook | None = None
        self.user_info: dict[str, str] = {}  # shown by GET_CONSUMER_RUNNING_INFO
        self._client = client
        self._sessions = sessions
        self._message_model = message_model
        self._consume_from_where = consume_from_where
        self._unit_mode = unit_mode
        self._offsets_folder = offsets_folder
        self._disk = disk or Disk()
        self._blocking = blocking
        self._subscriptions: dict[str, Subscription] = {}
        self._session: Session | None = None
        self._supervisor = Supervisor(_only_logged)
        self._calls_: QueueCalls | None = None
        self._puller_: Puller | None = None
        self._offsets_: OffsetStore | None = None
        self._tracer: Tracer | None = None
        self._dead_letters_: DeadLetterSending | None = None
        self._invalid_messages_: InvalidMessages | None = None
        self._started_ms = 0

    # --- life ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group."""
        if self.state is not ServiceState.CREATE_JUST:
            raise ClientStateError(
                f"consumer {self.group} is {self.state.value}; it is started once, make a new one"
            )
        is_broadcasting = self._message_model is MessageModel.BROADCASTING
        session = self._sessions.acquire(self._client, keep_instance_name=is_broadcasting)
        self.state = ServiceState.START_FAILED
        self._session = session
        self._blocking = self._blocking or BlockingThread("offsets")
        self._calls_ = calls = QueueCalls(session, self.group)
        self._puller_ = Puller(session, calls, self.group)
        self._puller_.filter_hooks = self.filter_hooks
        self._offsets_ = offset_store_of(
            session,
            calls,
            self.group,
            OffsetFiles(self._disk, self._blocking),
            is_broadcasting=is_broadcasting,
            folder=self._offsets_folder,
        )
        self._dead_letters_ = DeadLetterSending(session)
        self._invalid_messages_ = InvalidMessages(
            group=self.group,
            policy=self._invalid_policy(),
            is_broadcasting=is_broadcasting,
            hook=lambda: self.on_invalid_message,
            threads=OnTheLoop(),
            sender=self._dead_letters_.send,
            supervisor=self._supervisor,
            settled=self._on_settled,
        )
        self._tracer = consume_tracer(session, self.group, self.consume_hooks)
        self._started_ms = session.clock.wall_ms()
        try:
            session.register(self)
            ConsumerService(session).serve()
            await session.start()
            await session.refresh_routes()
            await session.heartbeat_to_all()
            await self._begin(session)
        except BaseException:
            await self._leave(session)
            raise
        self.state = ServiceState.RUNNING
        _log.info("consumer started group=%s client=%s", self.group, session.client_id)

    async def shutdown(self) -> None:
        """Keep the offsets and leave the group. May be called again."""
        session = self._session
        was_running = self.state is ServiceState.RUNNING
        self.state = ServiceState.SHUTDOWN_ALREADY
        if session is not None and was_running:
            await self._end()
            await self._leave(session)
            _log.info("consumer shut down group=%s", self.group)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    async def _begin(self, session: Session) -> None:
        """What a kind of consumer does at its start."""

    async def _end(self) -> None:
        """What it does before it leaves."""
        await self._offsets.persist(list(self._offsets.snapshot()), wait=True)

    async def _leave(self, session: Session) -> None:
        await self._supervisor.stop()
        if self._tracer is not None:
            await self._tracer.close()
        await session.unregister(self)
        await self._sessions.release(session)
        if self._blocking is not None:
            self._blocking.close()

    # --- queues and offsets ----------------------------------------------------------------

    async def fetch_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be read; `NoRouteError` if there is no such topic."""
        session, name = self._running(), self._named(topic)
        if not session.routes.subscribe_queues(name):
            await session.routes.refresh(name)
        return session.routes.subscribe_queues(name)

    @property
    def invalid_message_counts(self) -> InvalidMessageCounts:
        """What became of messages that could not be decoded."""
        return replace(self._invalid_messages.counts)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The first offset that is still kept."""
        return await self._calls.min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return await self._calls.max_offset(queue)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset at or after a time."""
        return await self._calls.search_offset(queue, timestamp_ms)

    # --- what the session asks (Participant) -----------------------------------------------

    def heartbeat(self) -> ConsumerGroup:
        """What brokers are told every half minute."""
        return ConsumerGroup(
            group_name=self.group,
            consume_type="CONSUME_ACTIVELY",
            message_model=self._message_model.value,
            consume_from_where=self._consume_from_where,
            subscription_data_set=tuple(self._subscriptions.values()),
            unit_mode=self._unit_mode,
        )

    def topics(self) -> Iterable[str]:
        """The topics whose routes are kept fresh."""
        return tuple(self._subscriptions)

    def on_routes_changed(self, topic: str) -> None:
        """Queues came or went."""

    async def persist_offsets(self) -> None:
        """Keep how far we have come."""
        if self.state is ServiceState.RUNNING:
            await self._offsets.persist(list(self._offsets.snapshot()))

    def rebalance_soon(self) -> None:
        """The group has changed."""

    # --- what brokers ask (ServedConsumer) -------------------------------------------------

    def running_info(self) -> RunningInfo:
        """What this consumer is doing."""
        return pulling_info(
            self._java_settings(),
            started_ms=self._started_ms,
            name_servers=self._running().name_servers.addresses,
            subscriptions=self._subscriptions.values(),
            queues=self._held_queues(),
            offsets=self._offsets,
            invalid=self._invalid_messages.counts,
            user_info=self.user_info,
        )

    def consumed_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """How far we have come in a topic."""
        self._running()
        return self._offsets.snapshot(topic)

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Not for consumers that pull by themselves: the program says where it goes on."""
        del offsets
        _log.warning("group %s pulls by itself; its offsets of %s stay", self.group, topic)

    async def consume_directly(
        self, message: ReceivedMessage, broker_name: str
    ) -> ConsumeDirectlyResult | None:
        """There is no listener that could."""
        del message, broker_name
        return None

    # --- inside ----------------------------------------------------------------------------

    def _named(self, topic: str) -> str:
        return with_namespace(topic, self._client.namespace)

    def _give(self, queue: MessageQueue, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """The messages under the names that the user knows; hooks see that he gets them."""
        namespace = self._client.namespace
        if namespace:
            for message in messages:
                message.topic = without_namespace(message.topic, namespace)
        if self.consume_hooks and messages:
            show_given(self.consume_hooks, self.group, namespace, queue, messages)
        return messages

    def _invalid_policy(self) -> InvalidMessagePolicy:
        """What is done with a message that cannot be decoded."""
        raise NotImplementedError

    def _on_settled(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        """An invalid message is dealt with; `offset` is what may be committed now."""

    def _java_settings(self) -> dict[str, str]:
        """The settings under the names that operators know."""
        raise NotImplementedError

    def _held_queues(self) -> Mapping[MessageQueue, ProcessQueue]:
        """The queues from which messages are fetched ahead."""
        return {}

    def _version_ms(self) -> int:
        return self._session.clock.wall_ms() if self._session is not None else 0

    def _tell_brokers(self) -> None:
        if self._session is not None and self.state is ServiceState.RUNNING:
            self._supervisor.spawn("subscriptions changed", self._announce(self._session))

    async def _announce(self, session: Session) -> None:
        try:
            await session.refresh_routes()
            await session.heartbeats.send_to_all(forget_known=True)
        except RocketMQError as error:
            _log.warning("brokers not told what group %s wants now: %s", self.group, error)
        self.rebalance_soon()

    def _running(self) -> Session:
        if self._session is None or self.state is not ServiceState.RUNNING:
            raise ClientStateError(
                f"consumer {self.group} is {self.state.value}, not RUNNING; start it first"
            )
        return self._session

    @property
    def _calls(self) -> QueueCalls:
        self._running()
        assert self._calls_ is not None
        return self._calls_

    @property
    def _puller(self) -> Puller:
        assert self._puller_ is not None
        return self._puller_

    @property
    def _invalid_messages(self) -> InvalidMessages:
        self._running()
        assert self._invalid_messages_ is not None
        return self._invalid_messages_

    @property
    def _offsets(self) -> OffsetStore:
        assert self._offsets_ is not None
        return self._offsets_


def _only_logged(name: str, error: BaseException) -> None:
    """For owners without a process to stop: the supervisor has logged the failure already."""
    del name, error
