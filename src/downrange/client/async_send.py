"""A send whose sender does not wait: the callback hears how it ended.

As long as all goes well there is no task, only the answer that calls back; a failed first try
starts one for the rest.
"""

import asyncio
import logging
from collections.abc import Callable

from downrange.client.backpressure import Backpressure
from downrange.client.errors import BrokerUnreachableError, RocketMQError
from downrange.client.message import SendReceipt
from downrange.client.outgoing import Outgoing
from downrange.client.peers import translated
from downrange.client.sender import Attempt, FirstTry, Sender
from downrange.client.session import Session
from downrange.model.topics import MessageQueue
from downrange.protocol.command import Command
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.errors import RemotingError

_log = logging.getLogger(__name__)

OnDone = Callable[[SendReceipt | RocketMQError], None]
"""Hears what became of a message that was sent with a callback."""


class AsyncSend:
    """One message under way; `on_done` is called once, whatever happens."""

    __slots__ = (
        "_on_done",
        "_outgoing",
        "_pressure",
        "_queue",
        "_sender",
        "_session",
        "_started_s",
        "_timeout_s",
        "_tries",
    )

    def __init__(
        self,
        sender: Sender,
        session: Session,
        outgoing: Outgoing,
        on_done: OnDone,
        pressure: Backpressure | None,
        *,
        tries: int,
    ) -> None:
        self._sender = sender
        self._session = session
        self._outgoing = outgoing
        self._on_done = on_done
        self._pressure = pressure
        self._tries = tries
        self._queue: MessageQueue | None = None
        self._timeout_s = 0.0
        self._started_s = 0.0

    def start(self, queue: MessageQueue | None, timeout_s: float) -> None:
        """Begin."""
        self._queue, self._timeout_s = queue, timeout_s
        self._started_s = self._session.clock.monotonic_s()
        try:
            attempt = self._sender.begin(self._outgoing, queue, timeout_s)
        except RocketMQError as error:
            self._finish(error)
            return
        if attempt is None:
            self._session.supervisor.spawn("send", self._go_on(None))
        else:
            attempt.future.add_done_callback(lambda future: self._on_answer(attempt, future))

    def _on_answer(self, attempt: Attempt, future: asyncio.Future[Command]) -> None:
        attempt.channel.forget(attempt.opaque)
        sender = self._sender
        if future.cancelled():
            self._finish(BrokerUnreachableError("the client was shut down", is_connected=True))
            return
        error = future.exception()
        if error is None:
            answer = future.result()
            if answer.code == ResponseCode.SUCCESS:
                self._finish(sender.receipts.receipt(answer, self._outgoing, attempt.queue))
                return
            first = sender.first_try(attempt, answer)
        else:
            assert isinstance(error, RemotingError)
            first = FirstTry(attempt.queue, translated(error))
        self._session.supervisor.spawn("send", self._go_on(first))

    async def _go_on(self, first: FirstTry | None) -> None:
        result: SendReceipt | RocketMQError
        try:
            result = await self._sender.go_on(
                self._outgoing,
                self._queue,
                self._started_s,
                self._timeout_s,
                first,
                tries=self._tries,
                retries_refusals=False,
            )
        except RocketMQError as error:
            result = error
        except asyncio.CancelledError:
            self._finish(BrokerUnreachableError("the client was shut down", is_connected=True))
            raise
        self._finish(result)

    def _finish(self, result: SendReceipt | RocketMQError) -> None:
        if self._pressure is not None:
            self._pressure.release(len(self._outgoing.body))
        _call(self._on_done, result)


def tell(on_done: OnDone, future: asyncio.Future[SendReceipt]) -> None:
    """Call back with what became of a message that went with others."""
    if future.cancelled():
        _call(on_done, BrokerUnreachableError("the client was shut down", is_connected=True))
        return
    error = future.exception()
    assert error is None or isinstance(error, RocketMQError)
    _call(on_done, future.result() if error is None else error)


def _call(on_done: OnDone, result: SendReceipt | RocketMQError) -> None:
    try:
        on_done(result)
    except Exception:  # noqa: BLE001 - the user's own, and the message is sent
        _log.exception("the callback of a send failed")
