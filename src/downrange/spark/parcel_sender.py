"""Brings the parcels of one task to the brokers: several under way, every answer awaited.

The client's own rules come first: a try that fails is made again at other queues and brokers. What
still fails for a reason that passes (no broker answers, all are busy) is tried again after a pause,
until the delivery time-out. Parcels with a queue of their own go one after the other, so that rows
of one ordering key stay in order.
"""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from downrange.client.errors import BrokerRefusal, NoRouteCause, NoRouteError, RocketMQError
from downrange.client.message import Message, SendReceipt, SendStatus
from downrange.client.wakeup import pause
from downrange.model.topics import MessageQueue
from downrange.protocol.response_codes import ResponseCode
from downrange.runtime.clock import Clock
from downrange.spark.parcels import Parcel
from downrange.sync.io_thread import IoThread

PAUSE_S_FIRST: Final = 0.1
PAUSE_S_MAX: Final = 5.0
GRACE_S: Final = 10.0  # an inner deadline shall speak first, it knows more
_PASSING_CODES: Final = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.GO_AWAY}
)


class SinkSendError(Exception):
    """Rows that no broker took; the text has the rows, the topic and the broker's own words."""


class Sending(Protocol):
    """What is needed of a producer."""

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Send one message."""
        ...

    async def send_encoded_batch(
        self,
        topic: str,
        body: bytes,
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Send a batch body."""
        ...

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRules:
    """How much at once, how long, and what counts as sent."""

    in_flight_max: int
    send_timeout_s: float
    delivery_timeout_s: float
    requires_send_ok: bool


class _Lane:
    """The turn of parcels for one queue; after a failure no more go there."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.has_failed = False


class ParcelSender:
    """Belongs to the thread of a task; the sending itself happens in the I/O thread.

    When `finish` returns, every parcel has been stored; the first failure is raised by the next
    call.
    """

    def __init__(self, producer: Sending, io: IoThread, rules: SendRules, clock: Clock) -> None:
        self._producer = producer
        self._io = io
        self._rules = rules
        self._clock = clock
        self._slots = threading.BoundedSemaphore(rules.in_flight_max)
        self._failure: BaseException | None = None
        self._lanes: dict[MessageQueue, _Lane] = {}
        self._queues: dict[str, Sequence[MessageQueue]] = {}
        self._topics_reached: set[str] = set()
        self.parcels = 0
        self.repeats = 0

    def queues_of(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of a topic, the same for the whole task: a key must not change its queue."""
        found = self._queues.get(topic)
        if found is None:
            limit_s = self._rules.send_timeout_s + GRACE_S
            asked = self._io.call(self._producer.queues(topic), limit_s)
            found = sorted(asked, key=lambda queue: (queue.broker_name, queue.queue_id))
            self._queues[topic] = found
        return found

    def send(self, parcel: Parcel) -> None:
        """Begin to send; waits while as many are under way as may be."""
        self._take_slot()
        self.parcels += 1
        future = self._io.begin(self._deliver(parcel))
        future.add_done_callback(lambda done: self._ended(done.exception()))

    def finish(self) -> None:
        """Wait until all is stored."""
        for _ in range(self._rules.in_flight_max):
            self._take_slot()
        for _ in range(self._rules.in_flight_max):
            self._slots.release()

    def _take_slot(self) -> None:
        # Lanes make a parcel wait for those before it, each of which has its own time.
        limit_s = self._rules.delivery_timeout_s * self._rules.in_flight_max + GRACE_S
        if not self._slots.acquire(timeout=limit_s):
            raise SinkSendError(f"no answer to any of {self._rules.in_flight_max} sends")
        if self._failure is not None:
            self._slots.release()
            raise self._failure

    def _ended(self, error: BaseException | None) -> None:
        if error is not None and self._failure is None:
            self._failure = error
        self._slots.release()

    # --- in the I/O thread -----------------------------------------------------------------

    async def _deliver(self, parcel: Parcel) -> None:
        queue = parcel.queue
        if queue is None or parcel.message is not None:
            await self._until_stored(parcel)
            return
        lane = self._lanes.setdefault(queue, _Lane())
        async with lane.turn:
            if lane.has_failed:
                raise SinkSendError(f"not sent, since rows before it were not stored: {parcel}")
            try:
                await self._until_stored(parcel)
            except BaseException:
                lane.has_failed = True
                raise

    async def _until_stored(self, parcel: Parcel) -> None:
        deadline_s = self._clock.monotonic_s() + self._rules.delivery_timeout_s
        pause_s, tries = PAUSE_S_FIRST, 1
        while True:
            left_s = deadline_s - self._clock.monotonic_s()
            try:
                limit_s = max(min(self._rules.send_timeout_s, left_s), 0.001)
                receipt = await self._send(parcel, limit_s)
            except RocketMQError as error:
                if left_s <= pause_s or not self._may_pass(error, parcel.topic):
                    raise _failed(parcel, error, tries) from error
            else:
                self._check(receipt, parcel)
                self._topics_reached.add(parcel.topic)
                return
            await pause(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
            tries += 1
            self.repeats += 1

    async def _send(self, parcel: Parcel, timeout_s: float) -> SendReceipt:
        if parcel.message is not None:
            return await self._producer.send(
                parcel.message, queue=parcel.queue, timeout_s=timeout_s
            )
        return await self._producer.send_encoded_batch(
            parcel.topic, parcel.body, queue=parcel.queue, timeout_s=timeout_s
        )

    def _may_pass(self, error: RocketMQError, topic: str) -> bool:
        if isinstance(error, BrokerRefusal):
            return error.code in _PASSING_CODES
        if isinstance(error, NoRouteError) and error.cause is NoRouteCause.TOPIC_UNKNOWN:
            # A broker that starts again takes its topics away for a moment; one that was never
            # reached is more likely a wrong name.
            return topic in self._topics_reached
        return error.retriable

    def _check(self, receipt: SendReceipt, parcel: Parcel) -> None:
        if self._rules.requires_send_ok and receipt.status is not SendStatus.SEND_OK:
            raise SinkSendError(
                f"{parcel}: stored at {receipt.queue.broker_name}, but with "
                f"{receipt.status.value}, so that it may be lost when that machine is; repair the "
                f"broker, or accept it with the option requireSendOk=false"
            )


def _failed(parcel: Parcel, error: RocketMQError, tries: int) -> SinkSendError:
    code = "" if error.code is None else f" (code {error.code})"
    notes = "; ".join(getattr(error, "__notes__", ()))
    text = str(error) if code and f"(code {error.code})" in str(error) else f"{error}{code}"
    return SinkSendError(
        f"not stored: {parcel}: {text}" + (f"; {notes}" if notes else "") + f"; rounds: {tries}"
    )
