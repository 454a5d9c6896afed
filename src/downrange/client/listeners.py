"""What a program gives a push consumer to call, and what it may answer.

A listener gets a batch of messages and a context. It is a coroutine function, which runs on the
event loop, or a plain function, which runs in a thread and may block. Returning nothing means
success and raising means failure; Java takes null for a failure, which in Python would let every
function without a `return` fail.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

from downrange.client.message import ReceivedMessage
from downrange.model.topics import MessageQueue

ALL_OF_THEM: Final = (1 << 31) - 1


class ConsumeStatus(StrEnum):
    """What became of a batch that may be consumed in any order."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


class OrderlyStatus(StrEnum):
    """What became of a batch that is consumed in order; COMMIT and ROLLBACK without auto commit."""

    SUCCESS = "SUCCESS"
    ROLLBACK = "ROLLBACK"
    COMMIT = "COMMIT"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


class ReturnType(StrEnum):
    """How a call of a listener ended, as hooks and traces see it."""

    SUCCESS = "SUCCESS"
    TIME_OUT = "TIME_OUT"
    EXCEPTION = "EXCEPTION"
    RETURNNULL = "RETURNNULL"
    FAILED = "FAILED"


class ConcurrentContext:
    """What a listener may say about a batch beyond its status.

    `ack_index`: with success, messages behind this index have failed nevertheless.
    `delay_level`: when the failed ones come again; 0 lets the broker decide, -1 is the dead-letter
    queue at once.
    """

    __slots__ = ("ack_index", "delay_level", "queue")

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.ack_index = ALL_OF_THEM
        self.delay_level = 0


class OrderlyContext:
    """What a listener in order may say beyond its status.

    Without `auto_commit` batches add up until one is answered with COMMIT or ROLLBACK.
    `suspend_ms`: how long the queue rests before the batch comes again; None is the setting's.
    """

    __slots__ = ("auto_commit", "queue", "suspend_ms")

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.auto_commit = True
        self.suspend_ms: int | None = None


Batch: TypeAlias = Sequence[ReceivedMessage]
Listener: TypeAlias = Callable[
    [Batch, ConcurrentContext], ConsumeStatus | Awaitable[ConsumeStatus | None] | None
]
OrderlyListener: TypeAlias = Callable[
    [Batch, OrderlyContext], OrderlyStatus | Awaitable[OrderlyStatus | None] | None
]
T = TypeVar("T")
C = TypeVar("C")


class ListenerThreads(Protocol):
    """Where plain functions run."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run the work; its result and its errors come here."""
        ...

    def close(self) -> None:
        """Take nothing more."""
        ...


class ThreadPool:
    """As many threads as calls may run at the same time, made when needed."""

    def __init__(self, threads_max: int, group: str) -> None:
        # Java cuts long group names too; a thread's name is for people.
        prefix = f"ConsumeMessageThread_{group[:100]}_"
        self._threads = ThreadPoolExecutor(max_workers=threads_max, thread_name_prefix=prefix)

    async def run(self, work: Callable[[], T]) -> T:
        """Run the work in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Let go of idle threads at once, of others when their work ends."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class OnTheLoop:
    """Runs plain functions on the event loop: for those that never block, and for tests."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run the work at once."""
        return work()

    def close(self) -> None:
        """Nothing to let go of."""


def caller(
    listener: Callable[[Batch, C], T | Awaitable[T | None] | None], threads: ListenerThreads
) -> Callable[[Batch, C], Awaitable[T | None]]:
    """The one way to call a listener of either kind."""
    if is_coroutine_function(listener):
        return listener  # type: ignore[return-value]  # what was just asked

    async def call(batch: Batch, context: C) -> T | None:
        result = await threads.run(partial(listener, batch, context))
        if inspect.isawaitable(result):  # a plain function that gives back a coroutine
            return await result
        return result

    return call


def is_coroutine_function(listener: object) -> bool:
    """Whether calling it gives a coroutine: a function, or an object with such a `__call__`."""
    call = getattr(listener, "__call__", None)  # noqa: B004 - to look at it, not to test for it
    return inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(call)
