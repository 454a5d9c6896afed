"""Consumes each queue in order: batch after batch, and only while the broker's lock is ours.

One chain of calls a queue: it begins when messages come and nobody takes them, and ends when there
are none. A batch that failed stays at the head of its queue and comes again after a rest.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from downrange.client.consume_stats import ConsumeStats
from downrange.client.consumer_settings import RECONSUME_FOR_EVER
from downrange.client.listener_calls import ListenerCalls
from downrange.client.listeners import OrderlyContext, OrderlyStatus
from downrange.client.message import ReceivedMessage
from downrange.client.offset_store import OffsetStore
from downrange.client.process_queue import ProcessQueue
from downrange.client.send_back import SendBack
from downrange.model.topics import MessageQueue
from downrange.protocol import property_names as names
from downrange.protocol.bodies.consumer import ConsumeDirectlyResult
from downrange.runtime.clock import Clock
from downrange.runtime.service import Supervisor

_log = logging.getLogger(__name__)

TURN_S_MAX: Final = 60.0  # then others who wait for a worker get one
AGAIN_S: Final = 0.01
LOCK_AGAIN_S: Final = 0.01
LOCK_REFUSED_S: Final = 3.0
SUSPEND_MS_MIN: Final = 10
SUSPEND_MS_MAX: Final = 30_000
_RESULTS: Final = {
    OrderlyStatus.SUCCESS: "CR_SUCCESS",
    OrderlyStatus.COMMIT: "CR_COMMIT",
    OrderlyStatus.ROLLBACK: "CR_ROLLBACK",
    OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT: "CR_LATER",
}


class OrderlyConsumption:
    """The consuming half of a push consumer in order. Owned by its event loop."""

    is_in_order = True

    def __init__(
        self,
        calls: ListenerCalls[OrderlyContext, OrderlyStatus],
        *,
        workers_max: int,
        batch_size: int,
        is_broadcasting: bool,
        max_reconsume_times: int | None,
        suspend_ms: int,
        clock: Clock,
        stats: ConsumeStats,
        offsets: OffsetStore,
        send_back: SendBack,
        supervisor: Supervisor,
        lock: Callable[[MessageQueue], Awaitable[bool]],
    ) -> None:
        self.calls = calls
        self.workers_max = workers_max
        self._workers = asyncio.Semaphore(workers_max)
        self._batch_size = batch_size
        self._is_broadcasting = is_broadcasting
        self._max_reconsume_times = (
            RECONSUME_FOR_EVER if max_reconsume_times is None else max_reconsume_times
        )
        self._suspend_ms = suspend_ms
        self._clock = clock
        self._stats = stats
        self._offsets = offsets
        self._send_back = send_back
        self._supervisor = supervisor
        self._lock = lock
        self._unlocked: set[MessageQueue] = set()  # queues that rest for the lack of a lock

    def submit(
        self,
        queue: MessageQueue,
        held: ProcessQueue,
        messages: list[ReceivedMessage],
        *,
        begin: bool,
    ) -> None:
        """Messages were put into the process queue; `begin` if nobody takes them yet."""
        del messages
        if begin:
            self._begin(queue, held)

    async def check_overdue(
        self, queues: Mapping[MessageQueue, ProcessQueue], timeout_s: float
    ) -> None:
        """Nothing: what is in order cannot be overtaken."""

    async def directly(self, message: ReceivedMessage, broker_name: str) -> ConsumeDirectlyResult:
        """CONSUME_MESSAGE_DIRECTLY: what does the listener make of this message?"""
        queue = MessageQueue(message.topic, broker_name, message.queue_id)
        message.broker_name = broker_name
        self.calls.restore_topics(queue, [message])
        context = OrderlyContext(queue)
        started_s = self._clock.monotonic_s()
        remark = None
        try:
            status = await self.calls.raw([message], context)
            result = _RESULTS[self.calls.verdict(status, None)]
        except Exception as error:  # noqa: BLE001 - a listener may raise anything
            result, remark = "CR_THROW_EXCEPTION", f"{type(error).__name__}: {error}"
        return ConsumeDirectlyResult(
            order=True,
            auto_commit=context.auto_commit,
            consume_result=result,
            remark=remark,
            spent_time_mills=int((self._clock.monotonic_s() - started_s) * 1000),
        )

    # --- the chain of one queue ------------------------------------------------------------

    def _begin(self, queue: MessageQueue, held: ProcessQueue) -> None:
        self._supervisor.spawn("consume in order", self._run(queue, held))

    def _begin_later(self, queue: MessageQueue, held: ProcessQueue, delay_s: float) -> None:
        self._supervisor.later(delay_s, lambda: self._begin(queue, held))

    async def _run(self, queue: MessageQueue, held: ProcessQueue) -> None:
        async with self._workers:
            deadline_s = self._clock.monotonic_s() + TURN_S_MAX
            while not held.is_dropped:
                if not self._is_broadcasting and not held.may_consume_in_order:
                    break
                if self._clock.monotonic_s() > deadline_s:
                    self._begin_later(queue, held, AGAIN_S)
                    return
                messages = held.take(self._batch_size)
                if not messages or not await self._consume(queue, held, messages):
                    return
        if not held.is_dropped:
            self._supervisor.spawn("lock again", self._lock_again(queue, held))

    async def _lock_again(self, queue: MessageQueue, held: ProcessQueue) -> None:
        if queue not in self._unlocked:
            self._unlocked.add(queue)
            _log.warning("group %s has no lock on %s now; asks for it", self.calls.group, queue)
        got_it = await self._lock(queue)
        if got_it:
            self._unlocked.discard(queue)
        self._begin_later(queue, held, LOCK_AGAIN_S if got_it else LOCK_REFUSED_S)

    async def _consume(
        self, queue: MessageQueue, held: ProcessQueue, messages: list[ReceivedMessage]
    ) -> bool:
        """One batch; whether the chain goes on now."""
        held.begin_batch()
        try:
            return await self._consume_in_order(queue, held, messages)
        finally:
            held.end_batch()

    async def _consume_in_order(
        self, queue: MessageQueue, held: ProcessQueue, messages: list[ReceivedMessage]
    ) -> bool:
        context = OrderlyContext(queue)
        status = await self.calls.consume(queue, held, messages, context)
        counts = self._stats.topic(queue.topic)
        commit: int | None = None
        go_on = True
        if status is OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT:
            counts.failed += len(messages)
            if await self._must_come_again(messages):
                held.consume_again(messages)
                go_on = False
            elif context.auto_commit:
                commit = held.commit()
        elif context.auto_commit:
            if status is not OrderlyStatus.SUCCESS:
                _log.warning(
                    "%s with auto commit on means success: %s of group %s",
                    status,
                    queue,
                    self.calls.group,
                )
            commit = held.commit()
            counts.consumed += len(messages)
        elif status is OrderlyStatus.COMMIT:
            commit = held.commit()
        elif status is OrderlyStatus.ROLLBACK:
            held.rollback()
            go_on = False
        else:
            counts.consumed += len(messages)
        if not go_on:
            suspend_ms = self._suspend_ms if context.suspend_ms is None else context.suspend_ms
            bounded_ms = min(max(suspend_ms, SUSPEND_MS_MIN), SUSPEND_MS_MAX)
            self._begin_later(queue, held, bounded_ms / 1000)
        if commit is not None and not held.is_released and self._is_ours(held):
            self._offsets.update(queue, commit, increase_only=False)
        return go_on

    def _is_ours(self, held: ProcessQueue) -> bool:
        """A queue that is being handed over is ours while the lock is: nobody else has begun."""
        return not held.is_dropped or self._is_broadcasting or held.may_consume_in_order

    async def _must_come_again(self, messages: list[ReceivedMessage]) -> bool:
        """Count one more try; one with too many goes to the broker, and on to the dead letters."""
        again = False
        for message in messages:
            if message.reconsume_times >= self._max_reconsume_times:
                message.properties[names.RECONSUME_TIME] = str(message.reconsume_times)
                if await self._send_back.send_again(message):
                    continue
            again = True
            message.reconsume_times += 1
        return again
