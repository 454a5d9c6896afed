"""Deals with the messages of one consumer that cannot be decoded, so that its queues go on.

Each is logged and counted once, and held in its process queue until it is settled: given to the
hook, published as a dead letter, or skipped. Until then the group commits no offset beyond it,
while valid messages behind it are consumed within the limits of the process queue.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from downrange.client.dead_letter import dead_letter
from downrange.client.errors import InvalidMessageError, RocketMQError
from downrange.client.invalid_message import InvalidMessage, InvalidMessagePolicy
from downrange.client.listeners import ListenerThreads, is_coroutine_function
from downrange.client.message import Message
from downrange.client.process_queue import ProcessQueue
from downrange.client.pulling import PullResult
from downrange.client.wakeup import pause
from downrange.model.topics import MessageQueue
from downrange.runtime.service import Supervisor

_log = logging.getLogger(__name__)

FIRST_RETRY_S: Final = 1.0
RETRY_S_MAX: Final = 60.0
InvalidMessageHook: TypeAlias = Callable[[InvalidMessage], Awaitable[None] | None]
"""Takes a message that cannot be decoded; once it returns, the consumer goes on behind it."""
Settled: TypeAlias = Callable[[MessageQueue, ProcessQueue, int], None]


@dataclass(slots=True)
class InvalidMessageCounts:
    """What became of the messages that a consumer could not decode."""

    received: int = 0
    given_to_hook: int = 0
    dead_lettered: int = 0
    skipped: int = 0
    stopped_queues: int = 0


class InvalidMessages:
    """The invalid messages of one consumer. Owned by its event loop."""

    def __init__(
        self,
        *,
        group: str,
        policy: InvalidMessagePolicy,
        is_broadcasting: bool,
        hook: Callable[[], InvalidMessageHook | None],
        threads: ListenerThreads,
        sender: Callable[[Message], Awaitable[object]],
        supervisor: Supervisor,
        settled: Settled,
    ) -> None:
        self._group = group
        # Every member of a group that broadcasts would publish the same dead letter.
        is_skipped = is_broadcasting and policy is InvalidMessagePolicy.DEAD_LETTER
        self._policy = InvalidMessagePolicy.SKIP if is_skipped else policy
        self._hook = hook
        self._threads = threads
        self._sender = sender
        self._supervisor = supervisor
        self._settled = settled
        self.counts = InvalidMessageCounts()

    def admit(self, result: PullResult, process_queue: ProcessQueue) -> PullResult:
        """What of a pull may be consumed: all that is valid, or what is in front of a stop."""
        if self._policy is not InvalidMessagePolicy.STOP or self._hook() is not None:
            return result
        first = min(result.invalid, key=lambda one: one.queue_offset)
        self.counts.received += 1
        self._stop(first, process_queue)
        before = [one for one in result.messages if one.queue_offset < first.queue_offset]
        return replace(result, messages=before, invalid=[], next_offset=first.queue_offset)

    def take(
        self, queue: MessageQueue, process_queue: ProcessQueue, invalid: Sequence[InvalidMessage]
    ) -> None:
        """Hold invalid messages in the process queue and settle them, at once or in a task."""
        hook = self._hook()
        action = "passed to the hook" if hook is not None else self._policy.value
        for one in invalid:
            process_queue.hold_invalid(one.queue_offset, len(one.body))
            self._note(one, action)
        if hook is None and self._policy is InvalidMessagePolicy.SKIP:
            for one in invalid:
                self.counts.skipped += 1
                self._settle(queue, process_queue, one)
        elif invalid:
            self._supervisor.spawn(
                "invalid messages", self._settle_all(queue, process_queue, list(invalid))
            )

    async def report(self, invalid: Sequence[InvalidMessage]) -> None:
        """Log, count and show them to the hook: all that is done for a program that pulls."""
        for one in invalid:
            self._note(one, "reported to the caller of pull")
            await self._given_to_hook(one)

    def _note(self, invalid: InvalidMessage, action: str) -> None:
        self.counts.received += 1
        _log.warning(
            "consumer group %s: %s cannot be decoded: %s; %s",
            self._group,
            invalid,
            invalid.reason,
            action,
        )

    async def _settle_all(
        self, queue: MessageQueue, process_queue: ProcessQueue, invalid: list[InvalidMessage]
    ) -> None:
        for one in invalid:
            if await self._given_to_hook(one) or await self._by_policy(process_queue, one):
                self._settle(queue, process_queue, one)

    def _settle(
        self, queue: MessageQueue, process_queue: ProcessQueue, invalid: InvalidMessage
    ) -> None:
        offset = process_queue.settle(invalid.queue_offset)
        if offset is not None and not process_queue.is_released:
            self._settled(queue, process_queue, offset)

    async def _given_to_hook(self, invalid: InvalidMessage) -> bool:
        hook = self._hook()
        if hook is None:
            return False
        try:
            if is_coroutine_function(hook):
                result = hook(invalid)
            else:
                result = await self._threads.run(partial(hook, invalid))
            if inspect.isawaitable(result):
                await result
        except Exception:  # noqa: BLE001 - a hook may raise anything
            _log.exception(
                "consumer group %s: the hook for invalid messages failed at the %s; policy %s "
                "applies",
                self._group,
                invalid,
                self._policy.value,
            )
            return False
        self.counts.given_to_hook += 1
        return True

    async def _by_policy(self, process_queue: ProcessQueue, invalid: InvalidMessage) -> bool:
        match self._policy:
            case InvalidMessagePolicy.DEAD_LETTER:
                return await self._publish(process_queue, invalid)
            case InvalidMessagePolicy.SKIP:
                self.counts.skipped += 1
                return True
            case InvalidMessagePolicy.STOP:
                self._stop(invalid, process_queue)
                return False

    async def _publish(self, process_queue: ProcessQueue, invalid: InvalidMessage) -> bool:
        """Publish a dead letter, however long it takes; False if the queue was lost meanwhile."""
        letter = dead_letter(invalid, self._group)
        delay_s = FIRST_RETRY_S
        while process_queue.is_unsettled(invalid.queue_offset) and not process_queue.is_dropped:
            try:
                await self._sender(letter)
            except InvalidMessageError:
                _log.exception(
                    "consumer group %s: no dead letter can be made of the %s; skipped",
                    self._group,
                    invalid,
                )
                self.counts.skipped += 1
                return True
            except RocketMQError as error:
                if delay_s == FIRST_RETRY_S:
                    _log.warning(
                        "consumer group %s: dead letter of the %s not published, tried again until "
                        "it is: %s",
                        self._group,
                        invalid,
                        error,
                    )
            else:
                self.counts.dead_lettered += 1
                return True
            await pause(delay_s)
            delay_s = min(delay_s * 2, RETRY_S_MAX)
        return False

    def _stop(self, invalid: InvalidMessage, process_queue: ProcessQueue) -> None:
        process_queue.is_stopped = True
        self.counts.stopped_queues += 1
        _log.error(
            "consumer group %s: queue stopped: the %s cannot be decoded: %s; reset the offset of "
            "the group beyond it, or set invalid_messages to DEAD_LETTER or SKIP",
            self._group,
            invalid,
            invalid.reason,
        )
