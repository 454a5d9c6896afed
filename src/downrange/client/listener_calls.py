"""Calls a listener: hooks around it, its time taken, whatever it does caught."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

from downrange.client.consume_hook_calls import run_consume_hooks
from downrange.client.consume_stats import ConsumeStats
from downrange.client.hooks import ConsumeContext, ConsumeHook
from downrange.client.listeners import Batch, ReturnType
from downrange.client.message import ReceivedMessage
from downrange.client.namespace import without_namespace
from downrange.client.process_queue import ProcessQueue
from downrange.model.names import retry_topic
from downrange.model.topics import MessageQueue
from downrange.protocol import property_names as names
from downrange.runtime.clock import Clock

_log = logging.getLogger(__name__)

RETURN_TYPE_PROPERTY: Final = "ConsumeContextType"
C = TypeVar("C")
S = TypeVar("S", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Statuses(Generic[S]):
    """What a listener of one kind may answer."""

    kind: type[S]
    success: S
    failure: S
    also_success: S | None = None


class ListenerCalls(Generic[C, S]):
    """The calls of one consumer's listener. Owned by its event loop."""

    def __init__(
        self,
        call: Callable[[Batch, C], Awaitable[S | None]],
        statuses: Statuses[S],
        *,
        group: str,
        namespace: str,
        clock: Clock,
        stats: ConsumeStats,
        timeout_s: float,
    ) -> None:
        self._call = call
        self._statuses = statuses
        self.group = group
        self._namespace = namespace
        self._clock = clock
        self._stats = stats
        self._timeout_s = timeout_s
        self._retry_topic = retry_topic(group)
        self.hooks: list[ConsumeHook] = []

    async def consume(
        self,
        queue: MessageQueue,
        held: ProcessQueue,
        messages: list[ReceivedMessage],
        context: C,
    ) -> S:
        """Give a batch to the listener; an error of it is a failure of the batch."""
        self.restore_topics(queue, messages)
        hook_context = self._before(queue, messages) if self.hooks else None
        started_s = self._clock.monotonic_s()
        held.begin_call(messages)
        status, error = None, None
        try:
            status = await self._call(messages, context)
        except Exception as raised:  # noqa: BLE001 - a listener may raise anything
            error = raised
            self._log_failure(queue, messages, raised)
        finally:
            held.end_call(messages)
        elapsed_s = self._clock.monotonic_s() - started_s
        counts = self._stats.topic(queue.topic)
        counts.batches += 1
        counts.consume_ms += elapsed_s * 1000
        verdict = self.verdict(status, error)
        if hook_context is not None:
            self._after(hook_context, verdict, error, elapsed_s)
        return verdict

    async def raw(self, batch: Batch, context: C) -> S | None:
        """Call the listener with nothing around it; its errors are the caller's."""
        return await self._call(batch, context)

    def verdict(self, status: S | None, error: Exception | None) -> S:
        """What an answer means: nothing is success, an error or nonsense is failure."""
        if error is not None:
            return self._statuses.failure
        if status is None:
            return self._statuses.success
        if not isinstance(status, self._statuses.kind):
            _log.error(
                "the listener of group %s returned %r, which is no %s; the batch has failed",
                self.group,
                status,
                self._statuses.kind.__name__,
            )
            return self._statuses.failure
        return status

    def restore_topics(self, queue: MessageQueue, messages: Batch) -> None:
        """Give messages that come again the topic they had, and all the name the user knows."""
        if queue.topic == self._retry_topic:
            for message in messages:
                message.topic = message.properties.get(names.RETRY_TOPIC, message.topic)
        if self._namespace:
            for message in messages:
                message.topic = without_namespace(message.topic, self._namespace)

    def _log_failure(self, queue: MessageQueue, messages: Batch, error: Exception) -> None:
        _log.warning(
            "the listener of group %s failed: %s: %s; %d messages of %s from offset %d",
            self.group,
            type(error).__name__,
            error,
            len(messages),
            queue,
            messages[0].queue_offset,
            exc_info=error,
        )

    def _before(self, queue: MessageQueue, messages: Batch) -> ConsumeContext:
        context = ConsumeContext(
            group=self.group, messages=messages, queue=queue, namespace=self._namespace
        )
        run_consume_hooks(self.hooks, "before_consume", context)
        return context

    def _after(
        self, context: ConsumeContext, verdict: S, error: Exception | None, elapsed_s: float
    ) -> None:
        statuses = self._statuses
        context.is_success = verdict in {statuses.success, statuses.also_success}
        context.status = verdict.value
        if error is not None:
            kind = ReturnType.EXCEPTION
        elif elapsed_s >= self._timeout_s:
            kind = ReturnType.TIME_OUT
        else:
            kind = ReturnType.FAILED if verdict is statuses.failure else ReturnType.SUCCESS
        context.properties[RETURN_TYPE_PROPERTY] = kind.value
        run_consume_hooks(self.hooks, "after_consume", context)
