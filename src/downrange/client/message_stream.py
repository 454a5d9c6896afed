"""Messages of a group for `async for`: leaving the body acknowledges, raising gives back.

A message is acknowledged when its loop asks for the next one. A loop that is left in any other way
(an error, a cancelled task, `break`, `aclose`) gives the message in hand back, and it comes again
like one that a listener has failed on. Python tells an iterator nothing when its loop is left, so
a loop without `async with` is noticed when its iterator is let go of, at once in CPython.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, NamedTuple, Self

from downrange.client.errors import ClientStateError
from downrange.client.listeners import (
    Batch,
    ConcurrentContext,
    ConsumeStatus,
    OrderlyContext,
    OrderlyStatus,
)
from downrange.client.message import ReceivedMessage
from downrange.client.push_consumer import PushConsumer


class _Verdict(NamedTuple):
    is_done: bool
    delay_level: int = 0


_DONE: Final = _Verdict(is_done=True)
_AGAIN: Final = _Verdict(is_done=False)


class _Offer:
    """A message that waits for a loop, or is in the hand of one, and what became of it."""

    __slots__ = ("message", "verdict")

    def __init__(self, message: ReceivedMessage, verdict: asyncio.Future[_Verdict]) -> None:
        self.message = message
        self.verdict = verdict

    def settle(self, verdict: _Verdict) -> None:
        if not self.verdict.done():
            self.verdict.set_result(verdict)


class _Handout:
    """Between the consumer, whose workers offer messages, and the loops that take them."""

    def __init__(self, idle_timeout_s: float | None) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._line: deque[_Offer] = deque()
        self._arrived = asyncio.Event()
        self.in_hand: dict[int, _Offer] = {}
        self.is_stopped = False

    async def offer(self, message: ReceivedMessage) -> _Verdict:
        """Wait until a loop has taken the message and is done with it."""
        offer = _Offer(message, asyncio.get_running_loop().create_future())
        if self.is_stopped:
            offer.verdict.cancel()  # it stays where it is, as if it had not been pulled
        self._line.append(offer)
        self._arrived.set()
        try:
            return await offer.verdict
        finally:
            self.in_hand.pop(id(message), None)

    async def take(self) -> _Offer | None:
        """The next message; None when there will be none."""
        try:
            async with asyncio.timeout(self._idle_timeout_s):
                while not self.is_stopped:
                    while self._line:
                        offer = self._line.popleft()
                        if not offer.verdict.done():
                            self.in_hand[id(offer.message)] = offer
                            return offer
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return None
        return None

    def stop(self) -> None:
        """Hand out nothing more; what waits in the line stays with the broker."""
        self.is_stopped = True
        for offer in self._line:
            offer.verdict.cancel()
        self._line.clear()
        self._arrived.set()

    def settle(self, message: ReceivedMessage, verdict: _Verdict) -> None:
        """What became of a message that is in somebody's hand."""
        offer = self.in_hand.get(id(message))
        if offer is None:
            raise ClientStateError(f"{message!r} is not in hand: it has been settled already")
        offer.settle(verdict)

    def give_all_back(self) -> None:
        """Have everything come again that is in hand."""
        for offer in list(self.in_hand.values()):
            offer.settle(_AGAIN)


class MessageStream:
    """One membership in a consumer group; made by `Client.consume`. Belongs to one event loop.

    `async for message in stream` joins the group at its first message. Several tasks may loop over
    one stream and get different messages, `concurrency` of them at the same time. In `async with`
    it leaves the group at the end of the block, else when its last loop has ended.
    """

    def __init__(
        self,
        consumer: PushConsumer,
        *,
        in_order: bool,
        idle_timeout_s: float | None,
        before_start: Callable[["MessageStream"], Awaitable[None]],
        close_soon: Callable[["MessageStream"], None],
        on_closed: Callable[["MessageStream"], None],
    ) -> None:
        self.consumer = consumer
        self._handout = _Handout(idle_timeout_s)
        self._before_start = before_start
        self._close_soon = close_soon
        self._on_closed = on_closed
        self._turn = asyncio.Lock()
        self._is_started = False
        self._is_closing = False
        self._is_closed = False
        self._is_entered = False
        self._loops = 0
        if in_order:
            consumer.listen_in_order(self._consume_in_order)
        else:
            consumer.listen(self._consume)

    @property
    def group(self) -> str:
        """The group as brokers know it."""
        return self.consumer.group

    @property
    def is_closing(self) -> bool:
        """Whether it leaves the group, or has left."""
        return self._is_closing

    # --- life ------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._is_entered = True
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Join the group, if that has not happened yet."""
        async with self._turn:
            if self._is_closed or self._is_closing:
                raise ClientStateError(
                    f"the messages of group {self.group} have ended with their loop; call consume "
                    f"again, or use it in `async with` to loop several times"
                )
            if not self._is_started:
                try:
                    await self._before_start(self)
                    await self.consumer.start()
                except BaseException:
                    self._is_closed = True
                    self._on_closed(self)
                    raise
                self._is_started = True

    def stop(self) -> None:
        """Hand out nothing more: each loop ends, acknowledged, when it asks for the next one."""
        self._handout.stop()

    async def aclose(self) -> None:
        """Give back what is in hand and leave the group. May be called again, and by others."""
        self._is_closing = True
        self._handout.stop()
        async with self._turn:
            if self._is_closed:
                return
            try:
                self._handout.give_all_back()
                if self._is_started:
                    await self.consumer.shutdown()
            finally:
                self._is_closed = True
                self._on_closed(self)

    # --- messages --------------------------------------------------------------------------

    def __aiter__(self) -> "MessageLoop":
        self._loops += 1
        return MessageLoop(self)

    def ack(self, message: ReceivedMessage) -> None:
        """Acknowledge a message before its body is left, for example before a `break`."""
        self._handout.settle(message, _DONE)

    def retry(self, message: ReceivedMessage, *, delay_level: int = 0) -> None:
        """Have a message come again without leaving the loop.

        Level 0 leaves it to the broker when, -1 is the dead-letter queue at once. Without effect
        in order: there the queue rests for a second, and the message comes first again.
        """
        self._handout.settle(message, _Verdict(is_done=False, delay_level=delay_level))

    async def take(self) -> _Offer | None:
        """For loops: the next message, or None at the end."""
        if not self._is_started or self._is_closing:
            await self.start()
        return await self._handout.take()

    async def loop_ended(self) -> None:
        """For loops: one has come to its end."""
        if self._was_last():
            await self.aclose()

    def loop_left(self, offer: _Offer | None) -> None:
        """For loops: one was left before its end, with this in hand."""
        if offer is not None:
            offer.settle(_AGAIN)
        if self._was_last() and not self._is_closed:
            self._is_closing = True
            self._handout.stop()
            self._close_soon(self)

    # --- inside ----------------------------------------------------------------------------

    def _was_last(self) -> bool:
        self._loops -= 1
        return self._loops == 0 and not self._is_entered

    async def _consume(self, batch: Batch, context: ConcurrentContext) -> ConsumeStatus:
        (message,) = batch
        verdict = await self._handout.offer(message)
        if verdict.is_done:
            return ConsumeStatus.CONSUME_SUCCESS
        if self._is_closing:
            # The shutdown waits for this call, not for what happens behind it.
            if await self.consumer.send_back(message, verdict.delay_level):
                return ConsumeStatus.CONSUME_SUCCESS
            raise asyncio.CancelledError  # stays where it is; another member will pull it
        context.delay_level = verdict.delay_level
        return ConsumeStatus.RECONSUME_LATER

    async def _consume_in_order(self, batch: Batch, context: OrderlyContext) -> OrderlyStatus:
        del context
        (message,) = batch
        verdict = await self._handout.offer(message)
        return (
            OrderlyStatus.SUCCESS
            if verdict.is_done
            else OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        )


class MessageLoop(AsyncIterator[ReceivedMessage]):
    """One `async for` over a stream; it has at most one message in hand."""

    def __init__(self, stream: MessageStream) -> None:
        self._stream = stream
        self._offer: _Offer | None = None
        self._is_over = True  # until there is a loop to tell
        self._loop = asyncio.get_running_loop()
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        if self._is_over:
            raise StopAsyncIteration
        if self._offer is not None:
            self._offer.settle(_DONE)
            self._offer = None
        try:
            offer = await self._stream.take()
        except ClientStateError:
            self._is_over = True
            raise
        if offer is None:
            self._is_over = True
            await self._stream.loop_ended()
            raise StopAsyncIteration
        self._offer = offer
        return offer.message

    async def aclose(self) -> None:
        """Leave the loop: what is in hand comes again."""
        self.leave()

    def leave(self) -> None:
        """The same, without waiting."""
        if not self._is_over:
            self._is_over = True
            self._stream.loop_left(self._offer)

    def __del__(self) -> None:
        # Garbage is collected in any thread, so the loop is asked to do the rest.
        if not self._is_over and not self._loop.is_closed():
            self._is_over = True
            self._loop.call_soon_threadsafe(self._stream.loop_left, self._offer)
