"""Collects messages for a few milliseconds and sends them as one batch; Java's ProduceAccumulator.

Messages meet if they have the same topic, queue, tag and waiting. A batch goes when it is large or
old enough; each of its senders gets a receipt of its own.
"""

import asyncio
from typing import Final, NamedTuple

import msgspec

from downrange.client.errors import BadAnswerError, RocketMQError
from downrange.client.message import Message, SendReceipt
from downrange.client.outgoing import OutgoingMaker
from downrange.client.queue_target import QueueSelector, QueueTargets
from downrange.client.sender import Sender
from downrange.client.settings import ProducerSettings
from downrange.model.names import is_retry_topic
from downrange.model.topics import MessageQueue
from downrange.protocol import property_names as names
from downrange.runtime.service import Supervisor

CLOSE_S_MAX: Final = 5.0
_ALONE: Final = frozenset(
    {
        names.DELAY_LEVEL,
        names.TIMER_DELAY_MS,
        names.TIMER_DELAY_SECONDS,
        names.TIMER_DELIVER_MS,
        names.PRODUCER_GROUP,  # a half message
    }
)


class _Key(NamedTuple):
    topic: str
    queue: MessageQueue | None
    waits: str | None
    tag: str | None


class _Batch:
    __slots__ = ("body_bytes", "futures", "messages", "timer")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.futures: list[asyncio.Future[SendReceipt]] = []
        self.body_bytes = 0
        self.timer: asyncio.TimerHandle | None = None


class Accumulator:
    """The batches of one producer that are being filled; belongs to its event loop."""

    def __init__(
        self,
        settings: ProducerSettings,
        maker: OutgoingMaker,
        targets: QueueTargets,
        sender: Sender,
        supervisor: Supervisor,
    ) -> None:
        self._bytes_max = settings.batch_bytes_max
        self._delay_s = settings.batch_delay_ms_max / 1000
        self._held_bytes_max = settings.batch_total_bytes_max
        self._timeout_s = settings.send_timeout_s
        self._tries = 1 + settings.retries
        self._maker = maker
        self._targets = targets
        self._sender = sender
        self._supervisor = supervisor
        self._filling: dict[_Key, _Batch] = {}
        self._under_way: set[asyncio.Future[SendReceipt]] = set()
        self._held_bytes = 0

    def takes(self, message: Message) -> bool:
        """Whether a message may wait for others; the rest is sent alone and at once."""
        return (
            self._held_bytes < self._held_bytes_max
            and type(message.body) is bytes  # what is not is refused where it is made ready
            and len(message.body) <= self._bytes_max
            and _ALONE.isdisjoint(message.properties)
            and not is_retry_topic(message.topic)
        )

    async def add(
        self, message: Message, queue: MessageQueue | None, selector: QueueSelector | None
    ) -> asyncio.Future[SendReceipt]:
        """Send with others; the future gets the message's own receipt, or the batch's error."""
        self._maker.check(message)
        if queue is not None or selector is not None:
            topic = self._maker.topic(message.topic)
            queue = await self._targets.find(message, topic, queue, selector, self._timeout_s)
        return self._add(message, queue)

    async def close(self) -> None:
        """Send what is held and wait for it, for a while."""
        for key, batch in list(self._filling.items()):
            self._go(key, batch)
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=CLOSE_S_MAX)

    def _add(self, message: Message, queue: MessageQueue | None) -> asyncio.Future[SendReceipt]:
        properties = message.properties
        key = _Key(
            message.topic, queue, properties.get(names.WAIT_STORE_OK), properties.get(names.TAGS)
        )
        batch = self._filling.get(key)
        if batch is None:
            batch = self._filling[key] = _Batch()
            batch.timer = self._supervisor.later(self._delay_s, lambda: self._go(key, batch))
        future: asyncio.Future[SendReceipt] = asyncio.get_running_loop().create_future()
        batch.messages.append(message)
        batch.futures.append(future)
        batch.body_bytes += len(message.body)
        self._held_bytes += len(message.body)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        if batch.body_bytes > self._bytes_max:
            self._go(key, batch)
        return future

    def _go(self, key: _Key, batch: _Batch) -> None:
        if self._filling.get(key) is not batch:
            return  # it was full before it was old
        del self._filling[key]
        if batch.timer is not None:
            batch.timer.cancel()
        self._supervisor.spawn("send a batch", self._bring(key, batch))

    async def _bring(self, key: _Key, batch: _Batch) -> None:
        try:
            receipts = _split(await self._send(batch.messages, key.queue), len(batch.messages))
        except RocketMQError as error:
            for future in batch.futures:
                if not future.done():
                    future.set_exception(error)
        except BaseException:
            for future in batch.futures:
                future.cancel()
            raise
        else:
            for future, receipt in zip(batch.futures, receipts, strict=True):
                if not future.done():
                    future.set_result(receipt)
        finally:
            self._held_bytes -= batch.body_bytes

    async def _send(self, messages: list[Message], queue: MessageQueue | None) -> SendReceipt:
        maker = self._maker
        outgoing = maker.make(messages[0]) if len(messages) == 1 else maker.make_batch(messages)
        return await self._sender.send(outgoing, queue, self._timeout_s, tries=self._tries)


def _split(receipt: SendReceipt, count: int) -> list[SendReceipt]:
    """A receipt for each message of a batch; a queue of batches has one for all."""
    ids = receipt.message_id.split(",")
    if count == 1 or len(ids) == 1:
        return [receipt] * count
    places = receipt.offset_message_id.split(",")
    if len(ids) != count or len(places) != count:
        raise BadAnswerError(
            f"broker {receipt.queue.broker_name}",
            f"{len(ids)} ids and {len(places)} places for a batch of {count} messages",
        )
    return [
        msgspec.structs.replace(
            receipt,
            message_id=message_id,
            offset_message_id=place,
            queue_offset=receipt.queue_offset + number,
        )
        for number, (message_id, place) in enumerate(zip(ids, places, strict=True))
    ]
