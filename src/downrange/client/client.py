"""One connection to a cluster for a program that sends and consumes; what `connect` gives.

async with downrange.connect("127.0.0.1:9876") as mq:
    await mq.send("orders", b"...", tag="new", key="42")
    async for message in mq.consume("orders", group="billing"):
        ...
"""

import itertools
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from typing import Final, Literal, Self, TypedDict

from downrange.client.acl_signature import Credentials
from downrange.client.client_id import DEFAULT_INSTANCE, process_id, process_instance_name
from downrange.client.consumer_settings import PushConsumerSettings
from downrange.client.errors import BrokerRefusal, ClientStateError, InvalidMessageError
from downrange.client.message import Message, SendReceipt
from downrange.client.message_stream import MessageStream
from downrange.client.producer import Producer
from downrange.client.push_consumer import PushConsumer
from downrange.client.queue_target import QueueSelector
from downrange.client.session_table import SESSIONS, SessionTable
from downrange.client.settings import ClientSettings, ProducerSettings
from downrange.client.start_offset import ConsumeFromWhere
from downrange.client.tls import TlsSettings
from downrange.client.wakeup import pause
from downrange.filtering.tags import EVERYTHING
from downrange.model.topics import MessageQueue
from downrange.protocol import property_names as names
from downrange.protocol.delay_levels import DelayLevels
from downrange.protocol.java_hash import java_hash
from downrange.runtime.service import Supervisor

PRODUCER_GROUP: Final = "DOWNRANGE_PRODUCER"
PREFETCH: Final = 100
PULL_BATCH_MAX: Final = 32
_LEVELS: Final = DelayLevels.parse()
_INSTANCES: Final = itertools.count(time.monotonic_ns())

StartAt = Literal["first", "last"] | datetime
"""Where a group begins that has no offset yet: with what is kept, what is to come, or a time."""


def connect(
    name_servers: str | Sequence[str] = (),
    *,
    namespace: str = "",
    credentials: Credentials | None = None,
    use_tls: bool = False,
    tls: TlsSettings | None = None,
    producer_group: str = PRODUCER_GROUP,
    producer: ProducerSettings | None = None,
    settings: ClientSettings | None = None,
    sessions: SessionTable = SESSIONS,
) -> "Client":
    """A client of the cluster that these name servers know; use it in `async with`.

    Several name servers are a list or have ; between them; without any the variable NAMESRV_ADDR
    is read. `use_tls` verifies servers by the CAs of the system; `tls` says more. `settings` takes
    the place of these five for whoever needs more than those.
    """
    if settings is None:
        settings = ClientSettings(
            name_servers=name_servers,
            namespace=namespace,
            credentials=credentials,
            use_tls=use_tls,
            tls=tls,
        )
    elif name_servers or namespace or credentials is not None or use_tls or tls is not None:
        raise InvalidMessageError(
            "give settings, or name servers, namespace, credentials, use_tls and tls; not both",
            code=None,
        )
    return Client(settings, producer_group=producer_group, producer=producer, sessions=sessions)


class Client:
    """A producer and any number of consumer groups on connections of their own.

    Belongs to one event loop; opened and closed once.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        producer_group: str = PRODUCER_GROUP,
        producer: ProducerSettings | None = None,
        sessions: SessionTable = SESSIONS,
    ) -> None:
        self._given = self._settings = settings
        self._producer_group = producer_group
        self._producer_settings = producer
        self._producer: Producer | None = None
        self._sessions = sessions
        self._streams: set[MessageStream] = set()
        self._supervisor = Supervisor(_only_logged)

    # --- life ------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Start; brokers are met when they are needed."""
        if self._producer is not None:
            raise ClientStateError("this client was opened before; connect again for another one")
        if self._given.instance_name == DEFAULT_INSTANCE:
            # Two clients in one program must not meet in one session: a group is there once. Named
            # here and not before, because a fork may come between.
            name = process_instance_name(process_id(), next(_INSTANCES))
            self._settings = replace(self._given, instance_name=name)
        self._producer = Producer(
            self._producer_group,
            client=self._settings,
            settings=self._producer_settings,
            sessions=self._sessions,
        )
        await self._producer.start()

    async def aclose(self) -> None:
        """Give back what is in hand, leave all groups, close the connections."""
        async with AsyncExitStack() as ending:  # goes on when one of them fails; the last is first
            ending.push_async_callback(self._supervisor.stop)
            if self._producer is not None:
                ending.push_async_callback(self._producer.shutdown)
            for stream in self._streams:
                ending.push_async_callback(stream.aclose)

    @property
    def settings(self) -> ClientSettings:
        """What producers and consumers need to share its connections, once it is open."""
        return self._settings

    @property
    def producer(self) -> Producer:
        """What sends, for all that it can do and `send` has no argument for."""
        if self._producer is None:
            raise ClientStateError("not connected yet; use `async with downrange.connect(…) as mq`")
        return self._producer

    # --- sending ---------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str | None = None,
        key: str | None = None,
        keys: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        order_key: str | None = None,
        delay_s: float | None = None,
        delay_level: int | None = None,
        deliver_at_ms: int | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Send a message and wait until the broker has it.

        Messages with the same `order_key` go to the same queue, which a consumer `in_order` gets in
        their order. `delay_s` is a delay level if RocketMQ's table has exactly that time (1, 5, 10,
        30 s, 1 to 10, 20, 30 min, 1, 2 h), else it needs a broker with a timer wheel.
        """
        message = Message(
            topic,
            body,
            tag=tag,
            keys=_keys(key, keys),
            properties=properties,
            sharding_key=order_key,
            **_delay(delay_s, delay_level, deliver_at_ms),
        )
        selector = None if order_key is None else _queue_of(order_key)
        try:
            return await self.producer.send(
                message, queue=queue, selector=selector, timeout_s=timeout_s
            )
        except BrokerRefusal as error:
            if _needs_timer(message) and "timer" in error.remark:
                raise BrokerRefusal(error.code or 0, _no_timer(error), error.broker) from error
            raise

    # --- consuming -------------------------------------------------------------------------

    def consume(
        self,
        topic: str,
        *,
        group: str,
        tags: str = EVERYTHING,
        sql: str | None = None,
        in_order: bool = False,
        concurrency: int = 1,
        prefetch: int = PREFETCH,
        start_at: StartAt | None = None,
        max_reconsume_times: int | None = None,
        idle_timeout_s: float | None = None,
        settings: PushConsumerSettings | None = None,
    ) -> MessageStream:
        """The messages of a topic as a member of a group, for `async for`.

        `tags` ("new || paid") or an `sql` expression choose among them. `concurrency` messages may
        be in hand at the same time, one for each loop; `prefetch` wait here for each queue.
        A new group begins with what is to come unless `start_at` says otherwise.
        A loop ends when nothing has come for `idle_timeout_s`. `settings` are for what has no
        argument here.
        """
        _ = self.producer  # connected?
        if sql is not None and tags != EVERYTHING:
            raise InvalidMessageError("choose by tags or by sql, not by both", code=None)
        settings = replace(
            starting_settings(settings or PushConsumerSettings(), start_at),
            consume_threads_min=concurrency,
            consume_threads_max=concurrency,
            pull_threshold_for_queue=prefetch,
            pull_batch_size=min(prefetch, PULL_BATCH_MAX),
            consume_batch_size=1,
        )
        if max_reconsume_times is not None:
            settings = replace(settings, max_reconsume_times=max_reconsume_times)
        consumer = PushConsumer(
            group,
            # A broadcasting consumer finds its offsets again by the name that it was given.
            client=self._given if settings.is_broadcasting else self._settings,
            settings=settings,
            sessions=self._sessions,
            retry_sender=self._send_retry,
        )
        if sql is None:
            consumer.subscribe(topic, tags)
        else:
            consumer.subscribe_sql(topic, sql)
        stream = MessageStream(
            consumer,
            in_order=in_order,
            idle_timeout_s=idle_timeout_s,
            before_start=self._wait_for_closing,
            close_soon=self._close_soon,
            on_closed=self._streams.discard,
        )
        self._streams.add(stream)
        return stream

    # --- inside ----------------------------------------------------------------------------

    async def _send_retry(self, message: Message) -> None:
        _ = await self.producer.send(message)

    async def _wait_for_closing(self, stream: MessageStream) -> None:
        """A group whose last loop was just left is free again when that stream has closed."""
        await pause(0)  # a loop that was left a moment ago has told the event loop, not yet us
        for other in list(self._streams):
            if other is not stream and other.group == stream.group and other.is_closing:
                await other.aclose()

    def _close_soon(self, stream: MessageStream) -> None:
        self._supervisor.spawn(f"leave group {stream.group}", stream.aclose())


def _keys(key: str | None, keys: Sequence[str] | None) -> Sequence[str] | None:
    if key is None:
        return keys
    if keys is not None:
        raise InvalidMessageError("give key or keys, not both")
    return (key,)


class _Delay(TypedDict, total=False):
    delay_level: int | None
    delay_s: float | None
    deliver_at_ms: int | None


def _delay(delay_s: float | None, delay_level: int | None, deliver_at_ms: int | None) -> _Delay:
    if delay_s is not None and delay_level is None and deliver_at_ms is None:
        delay_ms = round(delay_s * 1000)
        if delay_ms in _LEVELS.delays_ms:
            return {"delay_level": _LEVELS.delays_ms.index(delay_ms) + 1}
    return {"delay_s": delay_s, "delay_level": delay_level, "deliver_at_ms": deliver_at_ms}


def _queue_of(order_key: str) -> QueueSelector:
    """As Java's SelectMessageQueueByHash, so that both sides of a key agree on its queue."""

    def select(queues: Sequence[MessageQueue], _message: Message) -> MessageQueue:
        return queues[abs(java_hash(order_key)) % len(queues)]

    return select


def _needs_timer(message: Message) -> bool:
    return names.TIMER_DELAY_MS in message.properties or (
        names.TIMER_DELIVER_MS in message.properties
    )


def _no_timer(error: BrokerRefusal) -> str:
    return (
        f"{error.remark}; this broker has no timer wheel (timerWheelEnable) and can delay only by "
        f"its levels: 1, 5, 10, 30 s, 1 to 10, 20, 30 min, 1, 2 h unless configured otherwise"
    )


def starting_settings(
    settings: PushConsumerSettings, start_at: StartAt | None
) -> PushConsumerSettings:
    """The settings with another place to begin at; None leaves it."""
    if start_at is None:
        return settings
    if start_at == "first":
        return replace(settings, consume_from_where=ConsumeFromWhere.FIRST_OFFSET)
    if start_at == "last":
        return replace(settings, consume_from_where=ConsumeFromWhere.LAST_OFFSET)
    if not isinstance(start_at, datetime):
        raise InvalidMessageError(
            f"start_at is {start_at!r}; it is 'first', 'last' or a datetime", code=None
        )
    return replace(
        settings,
        consume_from_where=ConsumeFromWhere.TIMESTAMP,
        consume_timestamp_ms=round(start_at.timestamp() * 1000),
    )


def _only_logged(name: str, error: BaseException) -> None:
    """The supervisor has logged the failure already."""
    del name, error
