"""Reads a topic without being in a group: nothing is committed, nobody is disturbed.

Pulls carry their subscription, so a broker asks for no heartbeat. The group they name is RocketMQ's
own for tools, which every broker knows.
"""

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from downrange.admin.errors import NothingThereError
from downrange.admin.offset_plan import Target, TargetKind
from downrange.client.errors import RocketMQError
from downrange.client.invalid_message import InvalidMessage
from downrange.client.message import ReceivedMessage
from downrange.client.pulling import Puller, PullStatus
from downrange.client.queue_calls import QueueCalls
from downrange.client.session import Session
from downrange.client.subscription import subscribe
from downrange.client.wakeup import pause
from downrange.filtering.tags import EVERYTHING, SQL92_TYPE, TAG_TYPE
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.heartbeat import Subscription
from downrange.runtime.service import Supervisor

_log = logging.getLogger(__name__)

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
BATCH: Final = 32
PULL_TIMEOUT_S: Final = 10.0
SUSPEND_S: Final = 15.0
SUSPENDED_TIMEOUT_S: Final = 30.0
RETRY_S: Final = 1.0  # between two tries of a queue whose broker fails

OnMessages = Callable[[Sequence[ReceivedMessage]], bool]
"""Takes messages; False ends the reading."""
OnInvalid = Callable[[InvalidMessage], None]
"""Takes a message that cannot be decoded; the reading goes on behind it."""


@dataclass(frozen=True, slots=True)
class Span:
    """What is to be read of one queue: from `start`, below `stop`."""

    start: int
    stop: int


class TopicReader:
    """Reads the queues of one topic; those of some ids only, if wanted."""

    def __init__(
        self,
        session: Session,
        topic: str,
        *,
        queue_ids: Sequence[int] = (),
        broker: str | None = None,
        tags: str = EVERYTHING,
        sql: str | None = None,
        on_invalid: OnInvalid | None = None,
    ) -> None:
        self._session = session
        self._topic = topic
        self._queue_ids = frozenset(queue_ids)
        self._broker = broker
        self._on_invalid = on_invalid or _log_invalid
        self._calls = QueueCalls(session, TOOLS_GROUP)
        self._puller = Puller(session, self._calls, TOOLS_GROUP)
        self._subscription: Subscription = (
            subscribe(topic, tags, TAG_TYPE, version_ms=0)
            if sql is None
            else subscribe(topic, sql, SQL92_TYPE, version_ms=session.clock.wall_ms())
        )

    async def queues(self) -> list[MessageQueue]:
        """The queues to read; `NothingThereError` if there is none."""
        await self._session.routes.refresh(self._topic)
        found = [
            queue
            for queue in self._session.routes.subscribe_queues(self._topic)
            if (not self._queue_ids or queue.queue_id in self._queue_ids)
            and self._broker in {None, queue.broker_name}
        ]
        if not found:
            raise NothingThereError(f"topic {self._topic!r} has no such queue that can be read")
        return found

    async def spans(self, start: Target) -> dict[MessageQueue, Span]:
        """From a place to the end of now, for each queue."""
        found = {}
        for queue in await self.queues():
            low = await self._calls.min_offset(queue)
            high = await self._calls.max_offset(queue)
            wanted = await self._offset_of(start, queue, low, high)
            found[queue] = Span(min(max(wanted, low), high), high)
        return found

    async def read(
        self, spans: Mapping[MessageQueue, Span]
    ) -> AsyncGenerator[ReceivedMessage, None]:
        """The messages of some stretches, the oldest first; ends with the last one."""
        fetched = [_Fetched(self, queue, span) for queue, span in spans.items()]
        heap: list[_Place] = []
        for one in fetched:
            await _push(heap, one)
        while heap:
            one = heapq.heappop(heap)[-1]
            yield one.take()
            await _push(heap, one)

    async def pull(
        self, queue: MessageQueue, offset: int, *, count_max: int = BATCH
    ) -> tuple[list[ReceivedMessage], int]:
        """Messages from an offset on, and where to go on; nothing is waited for."""
        found = await self._puller.pull(
            queue,
            self._subscription,
            offset,
            count_max=count_max,
            timeout_s=PULL_TIMEOUT_S,
            with_subscription=True,
        )
        self._report(found.invalid)
        if found.status is PullStatus.OFFSET_ILLEGAL and found.next_offset <= offset:
            return [], found.max_offset
        return found.messages, found.next_offset

    async def follow(self, offsets: Mapping[MessageQueue, int], on_messages: OnMessages) -> None:
        """Hand over what comes, from these offsets on, until that returns False."""
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def fail(_name: str, error: BaseException) -> None:
            if not end.done():
                end.set_exception(error)

        async def watch(queue: MessageQueue, offset: int) -> None:
            try:
                while not end.done():
                    offset = await self._hand_over(queue, offset, on_messages, end)
            except Exception as error:  # noqa: BLE001 - raised again where `end` is awaited
                fail("", error)

        supervisor = Supervisor(fail)
        try:
            for queue, offset in offsets.items():
                supervisor.spawn(f"follow {queue}", watch(queue, offset))
            await end
        finally:
            await supervisor.stop()

    async def _hand_over(
        self,
        queue: MessageQueue,
        offset: int,
        on_messages: OnMessages,
        end: asyncio.Future[None],
    ) -> int:
        """One wait for messages; where to go on. A broker that is away is waited for."""
        try:
            messages, offset = await self._wait(queue, offset)
        except RocketMQError as error:
            if not error.retriable:
                raise
            await pause(RETRY_S)
            return offset
        if messages and not end.done() and not on_messages(messages):
            end.set_result(None)
        return offset

    async def _offset_of(self, start: Target, queue: MessageQueue, low: int, high: int) -> int:
        match start.kind:
            case TargetKind.EARLIEST:
                return low
            case TargetKind.LATEST:
                return high
            case TargetKind.TIME:
                return await self._calls.search_offset(queue, start.value)
            case TargetKind.OFFSET:
                return start.value
            case TargetKind.SHIFT:
                return high + start.value

    async def _wait(self, queue: MessageQueue, offset: int) -> tuple[list[ReceivedMessage], int]:
        found = await self._puller.pull(
            queue,
            self._subscription,
            offset,
            count_max=BATCH,
            timeout_s=SUSPENDED_TIMEOUT_S,
            suspend_s=SUSPEND_S,
            with_subscription=True,
        )
        self._report(found.invalid)
        return found.messages, found.next_offset

    def _report(self, invalid: Sequence[InvalidMessage]) -> None:
        for one in invalid:
            self._on_invalid(one)


def _log_invalid(invalid: InvalidMessage) -> None:
    _log.warning("%s left out: it cannot be decoded: %s", invalid, invalid.reason)


class _Fetched:
    """One queue of a merge: what was pulled and not taken yet."""

    def __init__(self, reader: TopicReader, queue: MessageQueue, span: Span) -> None:
        self._reader = reader
        self.queue = queue
        self._offset = span.start
        self._stop = span.stop
        self._messages: deque[ReceivedMessage] = deque()

    async def first(self) -> ReceivedMessage | None:
        """The next message, pulled if need be; None at the end."""
        while not self._messages and self._offset < self._stop:
            before = self._offset
            messages, self._offset = await self._reader.pull(self.queue, before)
            self._messages.extend(one for one in messages if one.queue_offset < self._stop)
            if self._offset <= before:
                break  # a broker that does not get on must not keep us forever
        return self._messages[0] if self._messages else None

    def take(self) -> ReceivedMessage:
        """The message that `first` has shown."""
        return self._messages.popleft()


# Store time, broker, place in its log, queue: messages of one broker keep the order they came in.
_Place = tuple[int, str, int, MessageQueue, int, _Fetched]


async def _push(heap: list[_Place], one: _Fetched) -> None:
    message = await one.first()
    if message is not None:
        heapq.heappush(
            heap,
            (
                message.store_timestamp_ms,
                message.broker_name,
                message.physical_offset,
                one.queue,
                message.queue_offset,
                one,
            ),
        )
