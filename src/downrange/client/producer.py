"""Sends messages: awaiting the receipt, with a callback, or without an answer.

async with Producer("orders", client=ClientSettings(name_servers="127.0.0.1:9876")) as producer:
    receipt = await producer.send(Message("orders", b"...", tag="new"))
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Self

from downrange.client.accumulator import Accumulator
from downrange.client.async_send import AsyncSend, OnDone, tell
from downrange.client.backpressure import Backpressure
from downrange.client.errors import (
    ClientStateError,
    InvalidMessageError,
)
from downrange.client.fault_detector import FaultDetector
from downrange.client.hooks import ForbiddenHook, SendHook
from downrange.client.message import Message, ReceivedMessage, SendReceipt
from downrange.client.namespace import with_namespace
from downrange.client.outgoing import Outgoing, OutgoingMaker
from downrange.client.queue_target import QueueSelector, QueueTargets
from downrange.client.recall_handle import read_recall_handle
from downrange.client.request_reply import request_properties
from downrange.client.send_frames import SendFrames
from downrange.client.send_hooks import SendHooks
from downrange.client.sender import Sender
from downrange.client.session import ServiceState, Session
from downrange.client.session_table import SESSIONS, SessionTable
from downrange.client.settings import DEFAULT_PRODUCER_GROUP, ClientSettings, ProducerSettings
from downrange.client.trace import Tracer, TraceSendHook
from downrange.model.names import InvalidNameError, check_group, is_dlq_topic, is_retry_topic
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.heartbeat import ProducerGroup
from downrange.protocol.headers.send import RecallRequest

PUBLISHED_TOPICS_MAX: Final = 10_000


class Producer:
    """A producer group's member in this process; `start` and `shutdown` once each.

    Any number of sends may be under way at the same time; all calls come from one event loop.
    """

    def __init__(
        self,
        group: str,
        *,
        client: ClientSettings,
        settings: ProducerSettings | None = None,
        sessions: SessionTable = SESSIONS,
        send_hooks: Iterable[SendHook] = (),
        forbidden_hooks: Iterable[ForbiddenHook] = (),
    ) -> None:
        _check_group(group)
        self._client = client
        self.settings = settings or ProducerSettings()
        self._group = with_namespace(group, client.namespace)
        self._sessions = sessions
        self._send_hooks = list(send_hooks)
        self._forbidden_hooks = list(forbidden_hooks)
        self._published: dict[str, None] = {}
        self._session: Session | None = None
        self._sender: Sender | None = None
        self._maker: OutgoingMaker | None = None
        self._tracer: Tracer | None = None
        self._pressure: Backpressure | None = None
        self._targets: QueueTargets | None = None
        self._batches: Accumulator | None = None
        self._stop_detector: Callable[[], object] = lambda: None
        self.state = ServiceState.CREATE_JUST

    # --- life ------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    async def start(self) -> None:
        """Join or open the session of these settings. Brokers are met when they are needed."""
        if self.state is not ServiceState.CREATE_JUST:
            raise ClientStateError(
                f"producer {self._group!r} is {self.state.value}; a producer starts once"
            )
        self.state = ServiceState.START_FAILED
        session = self._sessions.acquire(self._client)
        try:
            session.register(self)
            await session.start()
            self._build(session)
            for topic in self.settings.topics:
                await self._queues_of(topic, self.settings.send_timeout_s)
        except BaseException:
            self._session = None
            await session.unregister(self)
            await self._sessions.release(session)
            raise
        self.state = ServiceState.RUNNING
        # Brokers that the session knows already must hear of a new group before they can ask it.
        session.supervisor.spawn("greet brokers", session.heartbeats.send_to_all())

    async def shutdown(self) -> None:
        """Send the rest of the trace, leave the group, give the session back."""
        session, self._session = self._session, None
        if session is None:
            return
        self.state = ServiceState.SHUTDOWN_ALREADY
        if self._batches is not None:
            await self._batches.close()
        self._stop_detector()
        if self._tracer is not None:
            await self._tracer.close()
        await session.unregister(self)
        await self._sessions.release(session)

    # --- sending ---------------------------------------------------------------------------

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Send and wait until the broker has it.

        With a queue or a selector there is one try, else 1 + `retries` over different brokers;
        all of it within `timeout_s`.
        """
        # Written out instead of calling `_send`: this is the path of nearly every message.
        sender, maker = self._ready()
        if self._batches is not None and timeout_s is None and self._batches.takes(message):
            self._note_topic(maker.topic(message.topic))
            return await (await self._batches.add(message, queue, selector))
        outgoing = maker.make(message)
        limit_s = self.settings.send_timeout_s if timeout_s is None else timeout_s
        if queue is not None or selector is not None:
            queue = await self._target(outgoing, queue, selector, limit_s)
        if outgoing.topic not in self._published:
            self._note_topic(outgoing.topic)
        return await sender.send(outgoing, queue, limit_s, tries=1 + self.settings.retries)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Send several messages of one topic to one queue, in one request."""
        sender, maker = self._ready()
        return await self._send(sender, maker.make_batch(messages), queue, None, timeout_s)

    async def send_encoded_batch(
        self,
        topic: str,
        body: bytes,
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """The same for a body that is encoded (`protocol/batch`); its messages have their ids."""
        sender, maker = self._ready()
        outgoing = maker.make_encoded_batch(topic, body)
        return await self._send(sender, outgoing, queue, None, timeout_s)

    async def send_one_way(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
    ) -> None:
        """Send without waiting for an answer: fast, and it may be lost."""
        sender, maker = self._ready()
        outgoing = maker.make(message)
        limit_s = self.settings.send_timeout_s
        target = await self._target(outgoing, queue, selector, limit_s)
        self._note_topic(outgoing.topic)
        await sender.send_one_way(outgoing, target, limit_s)

    async def send_async(
        self,
        message: Message,
        on_done: OnDone,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Begin to send; `on_done` hears the receipt or the error.

        Returns when the message is under way. That waits if back pressure is on and too much is
        in flight. A message that cannot be one is an error here, not in the callback.
        """
        sender, maker = self._ready()
        session = self._session
        assert session is not None
        if self._batches is not None and timeout_s is None and self._batches.takes(message):
            self._note_topic(maker.topic(message.topic))
            future = await self._batches.add(message, queue, selector)
            future.add_done_callback(partial(tell, on_done))
            return
        outgoing = maker.make(message)
        limit_s = self.settings.send_timeout_s if timeout_s is None else timeout_s
        started_s = session.clock.monotonic_s()
        pressure = self._pressure
        if pressure is not None:
            await pressure.acquire(len(outgoing.body), limit_s)
            limit_s -= session.clock.monotonic_s() - started_s
        call = AsyncSend(
            sender, session, outgoing, on_done, pressure, tries=1 + self.settings.retries_async
        )
        self._note_topic(outgoing.topic)
        if queue is not None or selector is not None:
            queue = await self._target(outgoing, queue, selector, limit_s)
        call.start(queue, limit_s)

    async def request(
        self,
        message: Message,
        *,
        timeout_s: float,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
    ) -> ReceivedMessage:
        """Send a request and wait for the reply that a consumer of the topic gives to it."""
        sender, maker = self._ready()
        session = self._session
        assert session is not None
        correlation_id, properties = request_properties(
            message.properties, session.client_id, timeout_s, session.chance
        )
        with_id = Message.of_properties(message.topic, message.body, properties, message.flag)
        outgoing = maker.make(with_id)
        deadline_s = session.clock.monotonic_s() + timeout_s
        if session.routes.route(outgoing.topic) is None:
            await sender.places.queues(outgoing.topic, timeout_s)
            # A broker can push the reply only to a client that it knows.
            await session.heartbeat_to_all()
        future = session.replies.expect(correlation_id)
        try:
            left_s = max(deadline_s - session.clock.monotonic_s(), 0.001)
            await self._send(sender, outgoing, queue, selector, left_s)
            left_s = max(deadline_s - session.clock.monotonic_s(), 0.001)
            return await session.replies.wait(future, left_s, message.topic, timeout_s)
        finally:
            session.replies.forget(correlation_id)

    async def recall(self, topic: str, recall_handle: str, *, timeout_s: float = 3.0) -> str:
        """Take back a delayed message by the handle of its receipt; the id of the message."""
        sender, maker = self._ready()
        session = self._session
        assert session is not None
        wrapped = maker.topic(topic)
        if is_retry_topic(wrapped) or is_dlq_topic(wrapped):
            raise InvalidMessageError(f"nothing can be recalled from topic {topic!r}", code=None)
        handle = read_recall_handle(recall_handle)
        await sender.places.queues(wrapped, timeout_s)
        address = session.routes.master_address(handle.broker_name)
        address = address or session.routes.any_address(wrapped, session.chance)
        assert address is not None  # a topic with queues has a broker
        header = RecallRequest(
            producer_group=self._group, topic=wrapped, recall_handle=recall_handle
        )
        return await session.calls.recall(address, header, timeout_s=timeout_s)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that may be written to."""
        found = await self._queues_of(topic, self.settings.send_timeout_s)
        assert self._targets is not None
        return tuple(self._targets.for_user(queue) for queue in found)

    # --- as a participant of the session ----------------------------------------------------

    @property
    def group(self) -> str:
        """The group as brokers know it."""
        return self._group

    def heartbeat(self) -> ProducerGroup:
        """What the heartbeat says about it."""
        return ProducerGroup(group_name=self._group)

    def topics(self) -> Iterable[str]:
        """Every topic that something was sent to."""
        return list(self._published)

    def on_routes_changed(self, topic: str) -> None:
        """Nothing to do: every send looks at the routes."""

    async def persist_offsets(self) -> None:
        """A producer has none."""

    def rebalance_soon(self) -> None:
        """A producer has no share of queues."""

    # --- inside ----------------------------------------------------------------------------

    def _build(self, session: Session) -> None:
        settings, client = self.settings, session.settings
        self._session = session
        frames = SendFrames(
            self._group,
            settings.create_topic_key,
            settings.default_topic_queue_nums,
            unit_mode=client.unit_mode,
        )
        hooks = SendHooks(self._group, client.client_ip)
        hooks.sends.extend(self._send_hooks)
        hooks.forbids.extend(self._forbidden_hooks)
        self._sender = Sender(session, settings, frames, hooks)
        self._maker = OutgoingMaker(settings, client.namespace, session.unique_ids)
        self._targets = QueueTargets(client.namespace, self._sender.places)
        if settings.auto_batch:
            self._batches = Accumulator(
                settings, self._maker, self._targets, self._sender, session.supervisor
            )
        if self._sender.faults is not None and settings.fault_detector:
            detector = FaultDetector(self._sender.faults, session, settings, self.topics)
            self._stop_detector = session.supervisor.spawn_until("detector", detector.run())
        if client.trace:
            self._tracer = Tracer(session, self._group, client.trace_topic)
            hooks.sends.append(TraceSendHook(self._tracer))
        if settings.backpressure:
            self._pressure = Backpressure(
                settings.backpressure_count_max, settings.backpressure_bytes_max
            )

    def _ready(self) -> tuple[Sender, OutgoingMaker]:
        session, sender, maker = self._session, self._sender, self._maker
        if session is None or sender is None or maker is None:
            raise ClientStateError(
                f"producer {self._group!r} is {self.state.value}, not RUNNING; start it first"
            )
        session.check_usable()
        return sender, maker

    async def _send(
        self,
        sender: Sender,
        outgoing: Outgoing,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        timeout_s: float | None,
    ) -> SendReceipt:
        settings = self.settings
        limit_s = settings.send_timeout_s if timeout_s is None else timeout_s
        if queue is not None or selector is not None:
            queue = await self._target(outgoing, queue, selector, limit_s)
        if outgoing.topic not in self._published:
            self._note_topic(outgoing.topic)
        return await sender.send(outgoing, queue, limit_s, tries=1 + settings.retries)

    async def _target(
        self,
        outgoing: Outgoing,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        timeout_s: float,
    ) -> MessageQueue | None:
        assert self._targets is not None
        return await self._targets.find(
            outgoing.message, outgoing.topic, queue, selector, timeout_s
        )

    async def _queues_of(self, topic: str, timeout_s: float) -> tuple[MessageQueue, ...]:
        assert self._maker is not None
        assert self._sender is not None
        wrapped = self._maker.topic(topic)
        self._note_topic(wrapped)
        return await self._sender.places.queues(wrapped, timeout_s)

    def _note_topic(self, topic: str) -> None:
        if len(self._published) < PUBLISHED_TOPICS_MAX:
            self._published[topic] = None


def _check_group(group: str) -> None:
    try:
        check_group(group)
    except InvalidNameError as error:
        raise InvalidMessageError(str(error), code=None) from None
    if group == DEFAULT_PRODUCER_GROUP:
        raise InvalidMessageError(
            f"producer group {group!r} is nobody's; choose one for your program", code=None
        )
