"""Blocking producers; what they do is told at the asyncio classes of the same names."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial

from downrange.client import producer as of_asyncio
from downrange.client import transaction_producer as transactions_of_asyncio
from downrange.client.async_send import OnDone
from downrange.client.message import Message, ReceivedMessage, SendReceipt
from downrange.client.queue_target import QueueSelector
from downrange.client.session_table import SessionTable
from downrange.client.settings import ClientSettings, ProducerSettings
from downrange.client.transaction_producer import (
    TransactionListener,
    TransactionReceipt,
    TransactionState,
    Verdict,
)
from downrange.model.topics import MessageQueue
from downrange.sync.listener_threads import DaemonThreads
from downrange.sync.member import CALL_S_MAX, GRACE_S, SYNC_SESSIONS, Member

TRANSACTION_THREADS_MAX = 20


class Producer(Member):
    """Sends and waits for the answer."""

    def __init__(
        self,
        group: str,
        *,
        client: ClientSettings,
        settings: ProducerSettings | None = None,
        sessions: SessionTable = SYNC_SESSIONS,
    ) -> None:
        inner = of_asyncio.Producer(group, client=client, settings=settings, sessions=sessions)
        self._take(inner)

    def _take(self, inner: of_asyncio.Producer) -> None:
        self._inner = inner
        super().__init__(inner)

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Send and wait until the broker has it."""
        sending = self._inner.send(message, queue=queue, selector=selector, timeout_s=timeout_s)
        return self._call(sending, self._limit_s(timeout_s))

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Send several messages of one topic to one queue, in one request."""
        sending = self._inner.send_batch(messages, queue=queue, timeout_s=timeout_s)
        return self._call(sending, self._limit_s(timeout_s))

    def send_one_way(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
    ) -> None:
        """Send without waiting for an answer: fast, and it may be lost."""
        sending = self._inner.send_one_way(message, queue=queue, selector=selector)
        self._call(sending, self._limit_s(None))

    def send_async(
        self,
        message: Message,
        on_done: OnDone,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Begin to send; `on_done` hears the result in the I/O thread and must not block."""
        sending = self._inner.send_async(
            message, on_done, queue=queue, selector=selector, timeout_s=timeout_s
        )
        self._call(sending, self._limit_s(timeout_s))

    def request(
        self,
        message: Message,
        *,
        timeout_s: float,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
    ) -> ReceivedMessage:
        """Send a request and wait for the reply of a consumer."""
        asking = self._inner.request(message, timeout_s=timeout_s, queue=queue, selector=selector)
        return self._call(asking, self._limit_s(timeout_s))

    def recall(self, topic: str, recall_handle: str, *, timeout_s: float = 3.0) -> str:
        """Take back a delayed message by the handle of its receipt; the id of the message."""
        recalling = self._inner.recall(topic, recall_handle, timeout_s=timeout_s)
        return self._call(recalling, self._limit_s(timeout_s))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that may be written to."""
        return self._call(self._inner.queues(topic), self._limit_s(None))

    def _limit_s(self, timeout_s: float | None) -> float:
        return (self._inner.settings.send_timeout_s if timeout_s is None else timeout_s) + GRACE_S


class TransactionProducer(Producer):
    """The same with a listener for its transactions, which may block: it has threads."""

    def __init__(
        self,
        group: str,
        listener: TransactionListener,
        *,
        client: ClientSettings,
        settings: ProducerSettings | None = None,
        sessions: SessionTable = SYNC_SESSIONS,
    ) -> None:
        self._listener = _InThreads(listener, DaemonThreads(TRANSACTION_THREADS_MAX, "transaction"))
        self._transactions = transactions_of_asyncio.TransactionProducer(
            group, self._listener, client=client, settings=settings, sessions=sessions
        )
        self._take(self._transactions)

    def send_in_transaction(
        self,
        message: Message,
        argument: object = None,
        *,
        timeout_s: float | None = None,
        transaction_timeout_s: float = CALL_S_MAX,
    ) -> TransactionReceipt:
        """Store the half message, run the local transaction, tell the broker the verdict.

        The listener has `transaction_timeout_s`; after that an error is raised here, while it may
        still come to its verdict, which the broker will ask for.
        """
        sending = self._transactions.send_in_transaction(message, argument, timeout_s=timeout_s)
        return self._call(sending, 2 * self._limit_s(timeout_s) + transaction_timeout_s)

    def close_at_exit(self, timeout_s: float) -> None:
        """End, threads too."""
        try:
            super().close_at_exit(timeout_s)
        finally:
            self._listener.threads.close()


class _InThreads:
    """A transaction listener whose plain functions run in threads."""

    def __init__(self, listener: TransactionListener, threads: DaemonThreads) -> None:
        self._listener = listener
        self.threads = threads

    async def execute(
        self, message: Message, transaction_id: str, argument: object
    ) -> TransactionState:
        return await self._run(partial(self._listener.execute, message, transaction_id, argument))

    async def check(self, message: ReceivedMessage) -> TransactionState:
        return await self._run(partial(self._listener.check, message))

    async def _run(self, ask: Callable[[], Verdict]) -> TransactionState:
        verdict = await self.threads.run(ask)
        return await verdict if inspect.isawaitable(verdict) else TransactionState(verdict)
