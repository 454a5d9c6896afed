"""`connect` for programs that block.

with downrange.sync.connect("127.0.0.1:9876") as mq:
    mq.send("orders", b"...", tag="new", key="42")
    for message in mq.consume("orders", group="billing"):
        ...
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Self

from downrange.client import client as of_asyncio
from downrange.client import message_stream
from downrange.client.acl_signature import Credentials
from downrange.client.client import PREFETCH, PRODUCER_GROUP, StartAt
from downrange.client.consumer_settings import PushConsumerSettings
from downrange.client.errors import ClientStateError
from downrange.client.message import ReceivedMessage, SendReceipt
from downrange.client.session_table import SessionTable
from downrange.client.settings import ClientSettings, ProducerSettings
from downrange.client.tls import TlsSettings
from downrange.filtering.tags import EVERYTHING
from downrange.model.topics import MessageQueue
from downrange.sync.io_thread import IoThread, io_thread
from downrange.sync.member import CALL_S_MAX, GRACE_S, SHUTDOWN_S_MAX, START_S_MAX, SYNC_SESSIONS

DEFAULT_SEND_S: Final = ProducerSettings().send_timeout_s


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
    sessions: SessionTable = SYNC_SESSIONS,
) -> "Client":
    """A client of the cluster that these name servers know; see `downrange.connect`.

    Use it in `with`, or call `open` and `close`.
    """

    def make() -> of_asyncio.Client:
        return of_asyncio.connect(
            name_servers,
            namespace=namespace,
            credentials=credentials,
            use_tls=use_tls,
            tls=tls,
            producer_group=producer_group,
            producer=producer,
            settings=settings,
            sessions=sessions,
        )

    send_s = DEFAULT_SEND_S if producer is None else producer.send_timeout_s
    return Client(make, send_timeout_s=send_s)


class Client:
    """Sends and consumes, from any thread.

    In a child of a fork its first use opens it anew; loops over messages stay with the parent.
    """

    def __init__(self, make: Callable[[], of_asyncio.Client], *, send_timeout_s: float) -> None:
        self._make = make
        self._send_timeout_s = send_timeout_s
        self._inner = make()  # wrong settings are an error here
        self._io: IoThread | None = None

    # --- life ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Start; brokers are met when they are needed."""
        self._open(io_thread())

    def close(self) -> None:
        """Give back what is in hand, leave all groups, close the connections."""
        self.close_at_exit(SHUTDOWN_S_MAX)

    def close_at_exit(self, timeout_s: float) -> None:
        """Close within the time; what the parent of a fork has opened stays as it is."""
        io, self._io = self._io, None
        if io is not None and io is io_thread():
            io.closed(self)
            io.call(self._inner.aclose(), timeout_s)

    # --- messages --------------------------------------------------------------------------

    def send(
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
        """Send a message and wait until the broker has it."""
        io = self._ready()
        sending = self._inner.send(
            topic,
            body,
            tag=tag,
            key=key,
            keys=keys,
            properties=properties,
            order_key=order_key,
            delay_s=delay_s,
            delay_level=delay_level,
            deliver_at_ms=deliver_at_ms,
            queue=queue,
            timeout_s=timeout_s,
        )
        return io.call(
            sending, (self._send_timeout_s if timeout_s is None else timeout_s) + GRACE_S
        )

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
    ) -> "MessageStream":
        """The messages of a topic as a member of a group, for `for`; loops in several threads."""
        io = self._ready()

        async def make() -> message_stream.MessageStream:
            return self._inner.consume(
                topic,
                group=group,
                tags=tags,
                sql=sql,
                in_order=in_order,
                concurrency=concurrency,
                prefetch=prefetch,
                start_at=start_at,
                max_reconsume_times=max_reconsume_times,
                idle_timeout_s=idle_timeout_s,
                settings=settings,
            )

        return MessageStream(io, io.call(make(), CALL_S_MAX))

    def _ready(self) -> IoThread:
        if self._io is None:
            raise ClientStateError(
                "not connected; use `with downrange.sync.connect(…) as mq`, or call open"
            )
        io = io_thread()
        if self._io is not io:  # of the parent
            with io.opening:  # several threads may come here first
                if self._io is not io:
                    self._inner = self._make()
                    self._open(io)
        return io

    def _open(self, io: IoThread) -> None:
        io.call(self._inner.open(), START_S_MAX)
        self._io = io
        io.opened(self)


class MessageStream:
    """One membership in a consumer group; the rules are those of the asyncio class."""

    def __init__(self, io: IoThread, inner: message_stream.MessageStream) -> None:
        self._io = io
        self._inner = inner

    def __enter__(self) -> Self:
        self._io.call(self._inner.__aenter__(), START_S_MAX)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back what is in hand and leave the group. May be called again."""
        self._io.call(self._inner.aclose(), SHUTDOWN_S_MAX)

    def stop(self) -> None:
        """Hand out nothing more: each loop ends, acknowledged, when it asks for the next one."""
        self._io.soon(self._inner.stop)

    def ack(self, message: ReceivedMessage) -> None:
        """Acknowledge a message before its body is left, for example before a `break`."""
        self._io.call(_do(partial(self._inner.ack, message)), CALL_S_MAX)

    def retry(self, message: ReceivedMessage, *, delay_level: int = 0) -> None:
        """Have a message come again without leaving the loop."""
        self._io.call(_do(partial(self._inner.retry, message, delay_level=delay_level)), CALL_S_MAX)

    def __iter__(self) -> "MessageLoop":
        return MessageLoop(self._io, self._io.call(_loop_over(self._inner), CALL_S_MAX))


class MessageLoop(Iterator[ReceivedMessage]):
    """One `for` over a stream; it has at most one message in hand."""

    def __init__(self, io: IoThread, inner: message_stream.MessageLoop) -> None:
        self._io = io
        self._inner = inner

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        message = self._io.wait(_next(self._inner))
        if message is None:
            raise StopIteration
        return message

    def __del__(self) -> None:
        self._io.soon(self._inner.leave)


async def _do(what: Callable[[], None]) -> None:
    what()


async def _loop_over(stream: message_stream.MessageStream) -> message_stream.MessageLoop:
    return aiter(stream)


async def _next(loop: message_stream.MessageLoop) -> ReceivedMessage | None:
    try:
        return await anext(loop)
    except StopAsyncIteration:
        return None
