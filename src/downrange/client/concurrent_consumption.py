"""Consumes in any order: batches wait in a line, workers take them to the listener.

A worker is a task that ends when the line is empty, so there is none per message and none when
there is nothing to do. What the listener could not consume is given back to the broker, or tried
again here if nobody takes it; broadcasting drops it.
"""

import logging
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from downrange.client.consume_stats import ConsumeStats
from downrange.client.listener_calls import ListenerCalls
from downrange.client.listeners import ConcurrentContext, ConsumeStatus
from downrange.client.message import ReceivedMessage
from downrange.client.offset_store import OffsetStore
from downrange.client.process_queue import ProcessQueue
from downrange.client.send_back import SendBack
from downrange.client.wakeup import pause
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.consumer import ConsumeDirectlyResult
from downrange.runtime.clock import Clock
from downrange.runtime.service import Supervisor

_log = logging.getLogger(__name__)

LOCAL_RETRY_S: Final = 5.0
OVERDUE_DELAY_LEVEL: Final = 3
OVERDUE_AT_ONCE_MAX: Final = 16
TURN_S_MAX: Final = 0.005  # a listener that never waits must let heartbeats through


class _Batch(NamedTuple):
    queue: MessageQueue
    held: ProcessQueue
    messages: list[ReceivedMessage]


class ConcurrentConsumption:
    """The consuming half of a push consumer. Owned by its event loop."""

    is_in_order = False

    def __init__(
        self,
        calls: ListenerCalls[ConcurrentContext, ConsumeStatus],
        *,
        workers_max: int,
        batch_size: int,
        is_broadcasting: bool,
        clock: Clock,
        stats: ConsumeStats,
        offsets: OffsetStore,
        send_back: SendBack,
        supervisor: Supervisor,
    ) -> None:
        self.calls = calls
        self.workers_max = workers_max
        self._batch_size = batch_size
        self._is_broadcasting = is_broadcasting
        self._clock = clock
        self._stats = stats
        self._offsets = offsets
        self._send_back = send_back
        self._supervisor = supervisor
        self._line: deque[_Batch] = deque()
        self._workers = 0
        self._busy = 0  # workers that wait for the listener, or for a broker to take something back

    def submit(
        self,
        queue: MessageQueue,
        held: ProcessQueue,
        messages: list[ReceivedMessage],
        *,
        begin: bool,
    ) -> None:
        """Have messages consumed that were just put into the process queue."""
        del begin
        size = self._batch_size
        if len(messages) <= size:
            self._line.append(_Batch(queue, held, messages))
        else:
            for start in range(0, len(messages), size):
                self._line.append(_Batch(queue, held, messages[start : start + size]))
        while self._workers < self.workers_max and self._workers - self._busy < len(self._line):
            self._workers += 1
            self._supervisor.spawn("consume", self._work())

    async def check_overdue(
        self, queues: Mapping[MessageQueue, ProcessQueue], timeout_s: float
    ) -> None:
        """Give back what the listener has had for too long, so that the queue can go on."""
        for queue, held in queues.items():
            for _ in range(OVERDUE_AT_ONCE_MAX):
                message = held.overdue(timeout_s)
                if message is None or held.is_dropped:
                    break
                if not await self._send_back.give_back(message, queue, OVERDUE_DELAY_LEVEL):
                    break
                _log.warning("%s given back after %.0f s at the listener", message, timeout_s)
                if held.first_offset == message.queue_offset:
                    self._done(queue, held, [message])

    async def directly(self, message: ReceivedMessage, broker_name: str) -> ConsumeDirectlyResult:
        """CONSUME_MESSAGE_DIRECTLY: what does the listener make of this message?"""
        queue = MessageQueue(message.topic, broker_name, message.queue_id)
        message.broker_name = broker_name
        self.calls.restore_topics(queue, [message])
        started_s = self._clock.monotonic_s()
        result, remark = "CR_SUCCESS", None
        try:
            status = await self.calls.raw([message], ConcurrentContext(queue))
            if self.calls.verdict(status, None) is ConsumeStatus.RECONSUME_LATER:
                result = "CR_LATER"
        except Exception as error:  # noqa: BLE001 - a listener may raise anything
            result, remark = "CR_THROW_EXCEPTION", f"{type(error).__name__}: {error}"
        return ConsumeDirectlyResult(
            order=False,
            auto_commit=True,
            consume_result=result,
            remark=remark,
            spent_time_mills=int((self._clock.monotonic_s() - started_s) * 1000),
        )

    # --- inside ----------------------------------------------------------------------------

    async def _work(self) -> None:
        line, clock = self._line, self._clock
        turn_s = clock.monotonic_s()
        try:
            while line:
                self._busy += 1
                try:
                    await self._consume(line.popleft())
                finally:
                    self._busy -= 1
                if clock.monotonic_s() - turn_s > TURN_S_MAX:
                    await pause(0)
                    turn_s = clock.monotonic_s()
        finally:
            self._workers -= 1

    async def _consume(self, batch: _Batch) -> None:
        if batch.held.is_dropped:
            return
        batch.held.begin_batch()
        try:
            await self._consume_all(*batch)
        finally:
            batch.held.end_batch()

    async def _consume_all(
        self, queue: MessageQueue, held: ProcessQueue, messages: list[ReceivedMessage]
    ) -> None:
        context = ConcurrentContext(queue)
        status = await self.calls.consume(queue, held, messages, context)
        counts = self._stats.topic(queue.topic)
        if status is ConsumeStatus.CONSUME_SUCCESS:
            good = min(max(context.ack_index + 1, 0), len(messages))
        else:
            good = 0
        counts.consumed += good
        if good < len(messages):
            counts.failed += len(messages) - good
            messages = await self._failed(queue, held, messages, good, context.delay_level)
        self._done(queue, held, messages)

    def _done(
        self, queue: MessageQueue, held: ProcessQueue, messages: list[ReceivedMessage]
    ) -> None:
        offset = held.remove(messages)
        if offset is not None and not held.is_released:
            self._offsets.update(queue, offset, increase_only=True)

    async def _failed(
        self,
        queue: MessageQueue,
        held: ProcessQueue,
        messages: list[ReceivedMessage],
        good: int,
        delay_level: int,
    ) -> list[ReceivedMessage]:
        """Give back what failed; returns what is done with, the rest is tried again here."""
        if self._is_broadcasting:
            for message in messages[good:]:
                _log.warning("%s could not be consumed; broadcasting drops it", message)
            return messages
        done, again = messages[:good], []
        for message in messages[good:]:
            # One that is not held any more was given back when its time was over.
            if message not in held or await self._send_back.give_back(message, queue, delay_level):
                done.append(message)
            else:
                message.reconsume_times += 1
                again.append(message)
        if again:
            self._supervisor.later(
                LOCAL_RETRY_S, lambda: self.submit(queue, held, again, begin=False)
            )
        return done
