"""One queue of a lite pull consumer: messages are fetched ahead and wait until they are polled."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from downrange.client.consumer_settings import LitePullSettings
from downrange.client.errors import BrokerRefusal, RocketMQError
from downrange.client.flow_control import hold_back
from downrange.client.invalid_messages import InvalidMessages
from downrange.client.message import ReceivedMessage
from downrange.client.process_queue import ProcessQueue
from downrange.client.pull_loop import BROKER_FLOW_CONTROL_S, FLOW_CONTROL_S, PAUSED_S
from downrange.client.pulling import Puller, PullStatus
from downrange.client.wakeup import Wakeup
from downrange.filtering.tags import is_tag_type
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.heartbeat import Subscription
from downrange.protocol.response_codes import ResponseCode
from downrange.runtime.clock import Clock

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class FetchParts:
    """What the queues of one consumer share."""

    settings: LitePullSettings
    puller: Puller
    invalid_messages: InvalidMessages
    clock: Clock
    subscription: Callable[[str], Subscription | None]
    waiting: Callable[[], int]  # messages of all queues that wait to be polled
    on_messages: Callable[["FetchedQueue", list[ReceivedMessage]], None]


@dataclass(slots=True)
class FetchedQueue:
    """A queue that is ours. `stop` ends its task; a seek stops it, moves it and runs it again."""

    queue: MessageQueue
    held: ProcessQueue
    offset: int  # to fetch from next
    parts: FetchParts
    polled_offset: int | None = None  # behind what the program has got
    is_paused: bool = False
    moved: Wakeup = field(default_factory=Wakeup)
    is_failing: bool = False
    stop: Callable[[], object] = field(default=lambda: None)

    async def run(self) -> None:
        """Fetch until dropped."""
        held = self.held
        while not held.is_dropped:
            held.last_pull_s = self.parts.clock.monotonic_s()
            delay_s = self._reason_to_wait()
            if delay_s is None:
                delay_s = await self._fetch_once()
            if delay_s > 0:
                await self.moved.wait(delay_s)

    def _reason_to_wait(self) -> float | None:
        settings = self.parts.settings
        if self.is_paused or self.held.is_stopped:
            return PAUSED_S
        if self.parts.waiting() > settings.pull_threshold_for_all:
            return FLOW_CONTROL_S
        if hold_back(self.held, settings.flow_limits, in_order=False) is not None:
            return FLOW_CONTROL_S
        return None

    async def _fetch_once(self) -> float:
        parts, settings = self.parts, self.parts.settings
        subscription = parts.subscription(self.queue.topic)
        error_s = settings.error_delay_ms / 1000
        if subscription is None:
            return error_s
        if is_tag_type(subscription.expression_type) and subscription.sub_version:
            # The broker takes the tags from the pull, so no heartbeat must have come before it.
            subscription = Subscription(
                topic=subscription.topic,
                sub_string=subscription.sub_string,
                tags_set=subscription.tags_set,
                code_set=subscription.code_set,
            )
        try:
            found = await parts.puller.pull(
                self.queue,
                subscription,
                self.offset,
                count_max=settings.pull_batch_size,
                timeout_s=settings.timeout_when_suspended_s,
                suspend_s=settings.suspend_max_s,
                with_subscription=True,
                lite=True,
            )
        except RocketMQError as error:
            if isinstance(error, BrokerRefusal) and error.code == ResponseCode.FLOW_CONTROL:
                return BROKER_FLOW_CONTROL_S
            if not self.is_failing:
                _log.warning("pull from %s failed: %s", self.queue, error)
            self.is_failing = True
            return error_s
        self.is_failing = False
        if self.held.is_dropped:
            return 0.0
        if found.status is PullStatus.OFFSET_ILLEGAL:
            _log.warning(
                "%s has no offset %d; goes on at %d", self.queue, self.offset, found.next_offset
            )
        if found.invalid:
            found = parts.invalid_messages.admit(found, self.held)
        self.offset = found.next_offset
        if found.messages:
            self.held.put(found.messages)
        if found.invalid:
            parts.invalid_messages.take(self.queue, self.held, found.invalid)
        if found.messages:
            parts.on_messages(self, found.messages)
        return 0.0
