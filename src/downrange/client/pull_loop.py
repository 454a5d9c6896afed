"""Pulls one queue again and again, one pull at a time, while the consumer has room for more."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from downrange.client.consume_stats import ConsumeStats
from downrange.client.consumer_settings import PushConsumerSettings
from downrange.client.errors import BrokerRefusal, BrokerUnreachableError, RocketMQError
from downrange.client.flow_control import FlowLimits, HoldBack, hold_back
from downrange.client.invalid_messages import InvalidMessages
from downrange.client.message import ReceivedMessage
from downrange.client.offset_store import OffsetStore
from downrange.client.process_queue import ProcessQueue
from downrange.client.pulling import Puller, PullResult, PullStatus
from downrange.client.wakeup import pause
from downrange.model.names import is_retry_topic
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.heartbeat import Subscription
from downrange.protocol.response_codes import ResponseCode
from downrange.runtime.clock import Clock

_log = logging.getLogger(__name__)

FLOW_CONTROL_S: Final = 0.05
BROKER_FLOW_CONTROL_S: Final = 0.02
PAUSED_S: Final = 1.0
# A connection that breaks and a broker that has just come back need no more than a moment; Java
# waits three seconds for everything.
FIRST_RETRY_S: Final = 0.1
BROKER_HOLDS_S: Final = 15.0
TIMEOUT_S: Final = 30.0
LOG_EVERY: Final = 1000
_STRANGER: Final = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    }
)


class Consumption(Protocol):
    """Where pulled messages go."""

    def submit(
        self,
        queue: MessageQueue,
        held: ProcessQueue,
        messages: list[ReceivedMessage],
        *,
        begin: bool,
    ) -> None:
        """Have them consumed."""
        ...


@dataclass(slots=True)
class PullParts:
    """What the pull loops of one consumer share."""

    group: str
    settings: PushConsumerSettings
    is_in_order: bool
    puller: Puller
    invalid_messages: InvalidMessages
    consumption: Consumption
    offsets: OffsetStore
    stats: ConsumeStats
    clock: Clock
    subscription: Callable[[str], Subscription | None]
    on_illegal: Callable[[MessageQueue, ProcessQueue, int], None]
    greet: Callable[[MessageQueue], Awaitable[object]]
    limits: FlowLimits
    is_paused: bool = False
    held_back: int = 0  # how often flow control has struck


class PullLoop:
    """One queue's loop; ends when the queue is dropped."""

    def __init__(
        self, queue: MessageQueue, held: ProcessQueue, offset: int, parts: PullParts
    ) -> None:
        self._queue = queue
        self._held = held
        self._offset = offset
        self._parts = parts
        self._failures: set[object] = set()  # what has failed since the last success

    async def run(self) -> None:
        """Pull until dropped."""
        held, parts = self._held, self._parts
        while not held.is_dropped:
            held.last_pull_s = parts.clock.monotonic_s()
            delay_s = self._reason_to_wait()
            if delay_s is None:
                delay_s = await self._pull_once()
            if delay_s > 0:
                await pause(delay_s)

    def _reason_to_wait(self) -> float | None:
        parts, held = self._parts, self._held
        if parts.is_paused or held.is_stopped:
            return PAUSED_S
        reason = hold_back(held, parts.limits, in_order=parts.is_in_order)
        if reason is not None:
            self._note_flow_control(reason)
            return FLOW_CONTROL_S
        if parts.is_in_order and not parts.settings.is_broadcasting and not held.is_locked:
            return parts.settings.error_delay_ms / 1000
        return None

    async def _pull_once(self) -> float:
        """One pull; how long to wait before the next one."""
        parts, queue = self._parts, self._queue
        subscription = parts.subscription(queue.topic)
        if subscription is None:
            return parts.settings.error_delay_ms / 1000
        settings = parts.settings
        commit = None if settings.is_broadcasting else parts.offsets.in_memory(queue)
        started_s = parts.clock.monotonic_s()
        try:
            result = await parts.puller.pull(
                queue,
                subscription,
                self._offset,
                count_max=settings.pull_batch_size,
                bytes_max=settings.pull_batch_bytes,
                timeout_s=TIMEOUT_S,
                suspend_s=BROKER_HOLDS_S,
                commit_offset=commit or None,
                with_subscription=settings.post_subscription_when_pull,
            )
        except RocketMQError as error:
            return await self._failed(error)
        self._failures.clear()
        if self._held.is_dropped:
            return 0.0
        return self._take(result, (parts.clock.monotonic_s() - started_s) * 1000)

    def _take(self, result: PullResult, elapsed_ms: float) -> float:
        parts, queue, held = self._parts, self._queue, self._held
        if result.status is PullStatus.OFFSET_ILLEGAL:
            parts.on_illegal(queue, held, result.next_offset)
            return 0.0
        if result.invalid:
            result = parts.invalid_messages.admit(result, held)
        self._offset = result.next_offset
        if result.status is not PullStatus.FOUND:
            self._correct_offset()
            return 0.0
        counts = parts.stats.topic(queue.topic)
        counts.pulls += 1
        counts.pull_ms += elapsed_ms
        messages = result.messages
        if not messages:
            parts.invalid_messages.take(queue, held, result.invalid)
            self._correct_offset()
            return 0.0
        counts.pulled += len(messages)
        begin = held.put(messages, queue_end=result.max_offset)
        if result.invalid:
            parts.invalid_messages.take(queue, held, result.invalid)
        parts.consumption.submit(queue, held, messages, begin=begin)
        return parts.settings.pull_interval_ms / 1000

    def _correct_offset(self) -> None:
        """Messages that nobody here wants count as consumed, once those before them are."""
        if not self._held.count:
            self._parts.offsets.update(self._queue, self._offset, increase_only=True)

    async def _failed(self, error: RocketMQError) -> float:
        parts, queue = self._parts, self._queue
        code = error.response_code if isinstance(error, BrokerRefusal) else None
        if code == ResponseCode.FLOW_CONTROL:
            return BROKER_FLOW_CONTROL_S
        if not self._failures and not is_retry_topic(queue.topic):
            _log.warning("pull of group %s from %s failed: %s", parts.group, queue, error)
        kind = BrokerUnreachableError if isinstance(error, BrokerUnreachableError) else code
        is_new = kind not in self._failures
        self._failures.add(kind)
        if code in _STRANGER and is_new:
            # On a new connection a pull may come before the heartbeat that says who pulls.
            await self._greet()
            return FIRST_RETRY_S
        if kind is BrokerUnreachableError and is_new:
            return FIRST_RETRY_S
        return parts.settings.error_delay_ms / 1000

    async def _greet(self) -> None:
        try:
            await self._parts.greet(self._queue)
        except RocketMQError as error:
            _log.debug("broker of %s not greeted: %s", self._queue, error)

    def _note_flow_control(self, reason: HoldBack) -> None:
        parts, held = self._parts, self._held
        if parts.held_back % LOG_EVERY == 0:
            _log.warning(
                "group %s pulls nothing from %s for a moment: %s (%d messages, %d bytes, span %d)",
                parts.group,
                self._queue,
                reason.value,
                held.count,
                held.bytes,
                held.span,
            )
        parts.held_back += 1
