"""Message trace: what was sent and consumed when, as lines in RMQ_SYS_TRACE_TOPIC.

    Pub ␁ time ␁ region ␁ group ␁ topic ␁ id ␁ tags ␁ keys ␁ store host ␁ body bytes ␁ cost
        ␁ type ␁ offset id ␁ success ␂
    SubBefore ␁ time ␁ region ␁ group ␁ request ␁ id ␁ retries ␁ keys ␂
    SubAfter ␁ request ␁ id ␁ cost ␁ success ␁ keys ␁ code ␁ time ␁ group ␂
    EndTransaction ␁ time ␁ region ␁ group ␁ topic ␁ id ␁ tags ␁ keys ␁ store host ␁ type
        ␁ transaction ␁ state ␁ from check ␂
    Recall ␁ time ␁ region ␁ group ␁ topic ␁ id ␁ success ␂

Fields end with 0x01, lines with 0x02, as Java's TraceDataEncoder writes them.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from downrange.client.errors import RocketMQError
from downrange.client.hooks import EndTransactionContext, SendContext
from downrange.client.message import Message, SendStatus
from downrange.client.namespace import without_namespace
from downrange.client.outgoing import OutgoingMaker
from downrange.client.send_frames import SendFrames
from downrange.client.send_hooks import SendHooks
from downrange.client.sender import Sender
from downrange.client.session import Session
from downrange.client.settings import ProducerSettings
from downrange.model.names import TRACE_TOPIC
from downrange.protocol import property_names as names
from downrange.protocol.properties import split_keys
from downrange.runtime.clock import monotonic_ms

_log = logging.getLogger(__name__)
_BEGAN: Final = "trace began"

LINES_MAX: Final = 2_048  # waiting to be sent; more are dropped and counted
BATCH_LINES: Final = 10
FLUSH_S: Final = 5.0
MESSAGE_BYTES_MAX: Final = 128_000
SEND_TIMEOUT_S: Final = 5.0
CLOSE_TIMEOUT_S: Final = 5.0
GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER"
DEFAULT_REGION: Final = "DefaultRegion"

_MESSAGE_TYPES: Final = {
    "Normal_Msg": 0,
    "Trans_Msg_Half": 1,
    "Trans_msg_Commit": 2,
    "Delay_Msg": 3,
    "Order_Msg": 4,
}
_FIELD_END: Final = "\x01"
_LINE_END: Final = "\x02"


@dataclass(frozen=True, slots=True)
class TraceLine:
    """A line or several of one event; `keys` is what the trace can be found by."""

    topic: str
    text: str
    keys: tuple[str, ...] = field(default=())


def pub_line(
    *,
    time_ms: int,
    region: str,
    group: str,
    topic: str,
    message_id: str,
    tags: str | None,
    keys: str | None,
    store_host: str,
    body_bytes: int,
    cost_ms: int,
    message_type: str,
    offset_message_id: str,
    is_success: bool,
) -> TraceLine:
    """A message was sent."""
    text = _line(
        "Pub", time_ms, region, group, topic, message_id, tags, keys, store_host, body_bytes,
        cost_ms, _MESSAGE_TYPES[message_type], offset_message_id, is_success,
    )  # fmt: skip
    return TraceLine(topic, text, _keys(message_id, keys))


def sub_before_line(
    *,
    time_ms: int,
    region: str,
    group: str,
    topic: str,
    request_id: str,
    message_id: str,
    retry_times: int,
    keys: str | None,
) -> TraceLine:
    """A listener is about to get a message."""
    text = _line("SubBefore", time_ms, region, group, request_id, message_id, retry_times, keys)
    return TraceLine(topic, text, _keys(message_id, keys))


def sub_after_line(
    *,
    time_ms: int,
    group: str,
    topic: str,
    request_id: str,
    message_id: str,
    cost_ms: int,
    is_success: bool,
    keys: str | None,
    context_code: int,
) -> TraceLine:
    """A listener has had it."""
    text = _line(
        "SubAfter", request_id, message_id, cost_ms, is_success, keys, context_code, time_ms, group
    )
    return TraceLine(topic, text, _keys(message_id, keys))


def end_transaction_line(
    *,
    time_ms: int,
    region: str,
    group: str,
    topic: str,
    message_id: str,
    tags: str | None,
    keys: str | None,
    store_host: str,
    transaction_id: str,
    state: str,
    is_from_check: bool,
) -> TraceLine:
    """A transaction has ended."""
    text = _line(
        "EndTransaction", time_ms, region, group, topic, message_id, tags, keys, store_host,
        _MESSAGE_TYPES["Trans_msg_Commit"], transaction_id, state, is_from_check,
    )  # fmt: skip
    return TraceLine(topic, text, _keys(message_id, keys))


class Tracer:
    """Collects lines and sends them in the background, at most `LINES_MAX` at a time."""

    def __init__(self, session: Session, group: str, topic: str = "") -> None:
        self._session = session
        self.topic = topic or TRACE_TOPIC
        self.namespace = session.settings.namespace
        self.clock = session.clock
        settings = ProducerSettings(
            message_bytes_max=MESSAGE_BYTES_MAX, send_timeout_s=SEND_TIMEOUT_S
        )
        trace_group = f"{GROUP_PREFIX}-{group}-PRODUCE"
        frames = SendFrames(
            trace_group,
            settings.create_topic_key,
            settings.default_topic_queue_nums,
            unit_mode=False,
        )
        self._sender = Sender(
            session, settings, frames, SendHooks(trace_group, session.settings.client_ip)
        )
        self._maker = OutgoingMaker(settings, "", session.unique_ids)
        self._tries = 1 + settings.retries_async
        self._lines: deque[TraceLine] = deque()
        self._is_sending = False
        self._is_closed = False
        self.dropped = 0
        session.supervisor.later(FLUSH_S, self._tick)

    def append(self, line: TraceLine) -> None:
        """Take a line; it is dropped and counted if too many wait."""
        if len(self._lines) >= LINES_MAX:
            self.dropped += 1
            return
        self._lines.append(line)
        if len(self._lines) >= BATCH_LINES:
            self._begin()

    async def close(self) -> None:
        """Send what is left, as far as that goes in a few seconds."""
        self._is_closed = True
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._send_all()
        except TimeoutError:
            self.dropped += len(self._lines)
            _log.warning("trace of %d messages is lost at the end", len(self._lines))

    def _tick(self) -> None:
        if not self._is_closed:
            self._begin()
            self._session.supervisor.later(FLUSH_S, self._tick)

    def _begin(self) -> None:
        if self._lines and not self._is_sending:
            self._is_sending = True
            self._session.supervisor.spawn("trace", self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._lines:
                count = min(BATCH_LINES, len(self._lines))
                await self._send([self._lines.popleft() for _ in range(count)])
        finally:
            self._is_sending = False

    async def _send(self, lines: Iterable[TraceLine]) -> None:
        by_topic: dict[str, list[TraceLine]] = {}
        for line in lines:
            by_topic.setdefault(line.topic, []).append(line)
        for group in by_topic.values():
            keys = dict.fromkeys(key for line in group for key in line.keys)
            body = "".join(line.text for line in group).encode()
            message = Message(self.topic, body, keys=" ".join(keys))
            try:
                await self._sender.send(
                    self._maker.make(message), None, SEND_TIMEOUT_S, tries=self._tries
                )
            except RocketMQError as error:
                self.dropped += len(group)
                _log.warning("trace of %d messages is lost: %s", len(group), error)


class TraceSendHook:
    """Traces what a producer sends."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def before_send(self, context: SendContext) -> None:
        """Remember when it began."""
        clock = self._tracer.clock
        context.shared[_BEGAN] = (clock.wall_ms(), monotonic_ms(clock))

    def after_send(self, context: SendContext) -> None:
        """Write the line, unless the broker does not want traces."""
        receipt = context.receipt
        began = context.shared.get(_BEGAN)
        if receipt is None or not receipt.is_traced or not isinstance(began, tuple):
            return
        wall_ms, began_ms = began
        message, namespace = context.message, self._tracer.namespace
        if message.topic.startswith(self._tracer.topic):
            return
        self._tracer.append(
            pub_line(
                time_ms=wall_ms,
                region=receipt.region,
                group=without_namespace(context.group, namespace),
                topic=without_namespace(message.topic, namespace),
                message_id=receipt.message_id,
                tags=message.properties.get(names.TAGS),
                keys=message.properties.get(names.KEYS),
                store_host=context.broker_address,
                body_bytes=len(message.body),
                cost_ms=monotonic_ms(self._tracer.clock) - began_ms,
                message_type=context.message_type,
                offset_message_id=receipt.offset_message_id,
                is_success=receipt.status is SendStatus.SEND_OK,
            )
        )


class TraceEndTransactionHook:
    """Traces how transactions end."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Write the line."""
        properties, namespace = context.message.properties, self._tracer.namespace
        self._tracer.append(
            end_transaction_line(
                time_ms=self._tracer.clock.wall_ms(),
                region=properties.get(names.MESSAGE_REGION) or DEFAULT_REGION,
                group=without_namespace(context.group, namespace),
                topic=without_namespace(context.message.topic, namespace),
                message_id=context.message_id,
                tags=properties.get(names.TAGS),
                keys=properties.get(names.KEYS),
                store_host=context.broker_address,
                transaction_id=context.transaction_id,
                state=context.state,
                is_from_check=context.is_from_check,
            )
        )


def _line(*fields: object) -> str:
    return _FIELD_END.join(_text(value) for value in fields) + _LINE_END


def _text(value: object) -> str:
    """As Java's StringBuilder writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _keys(message_id: str, keys: str | None) -> tuple[str, ...]:
    return (message_id, *split_keys(keys or ""))
