"""Brings a message to a broker: finds the queue, sends, tries others when one fails.

All tries share one deadline. A message with a queue of its own is tried once, since no other broker
has that queue.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from downrange.client.errors import (
    BrokerRefusal,
    ClientTimeoutError,
    RocketMQError,
)
from downrange.client.message import SendReceipt, SendStatus
from downrange.client.outgoing import Outgoing
from downrange.client.peers import translated
from downrange.client.publish_routes import PublishRoutes
from downrange.client.queue_choice import FaultTable, QueueChoice
from downrange.client.receipts import STATUS, SUCCESS, Receipts, refusal
from downrange.client.send_channel import SendChannel
from downrange.client.send_frames import QueueParts, SendFrames, write_header
from downrange.client.send_hooks import SendHooks
from downrange.client.send_lanes import PLAIN, SendLanes
from downrange.client.session import Session
from downrange.client.settings import ProducerSettings
from downrange.model.topics import MessageQueue
from downrange.protocol.command import Command
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.errors import RemotingError

RETRY_CODES: Final = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Refusals after which another broker may take the message."""


class Attempt(NamedTuple):
    """A try that is under way; whoever began it must say `answered` or `forget` in the end."""

    channel: SendChannel
    opaque: int
    future: asyncio.Future[Command]
    queue: MessageQueue
    address: str


class FirstTry(NamedTuple):
    """A try that is over and did not simply succeed."""

    queue: MessageQueue
    error: RocketMQError
    answer: Command | None = None


class Sender:
    """The sending half of one producer."""

    def __init__(
        self,
        session: Session,
        settings: ProducerSettings,
        frames: SendFrames,
        hooks: SendHooks,
    ) -> None:
        self._session = session
        self._settings = settings
        self._frames = frames
        self._clock = session.clock
        self._routes = session.routes
        self._peers = session.peers
        self.receipts = Receipts(session.settings.namespace)
        self.places = PublishRoutes(
            session.routes,
            settings.create_topic_key,
            settings.default_topic_queue_nums,
            vip_channel=session.settings.vip_channel,
        )
        self._choice = QueueChoice(
            session.chance, FaultTable() if settings.latency_fault_tolerance else None
        )
        self.faults = self._choice.faults
        self._lanes = SendLanes(session.routes, session.peers, frames, session.loop)
        self._hooks = hooks
        # Who wants to know how long each try took, or another port, goes the long way.
        self._is_quick = not (settings.latency_fault_tolerance or session.settings.vip_channel)

    # --- sending ---------------------------------------------------------------------------

    async def send(
        self,
        outgoing: Outgoing,
        queue: MessageQueue | None,
        timeout_s: float,
        *,
        tries: int,
        retries_refusals: bool = True,
    ) -> SendReceipt:
        """Send and wait for the answer."""
        started_s = self._clock.monotonic_s()
        limit_s = timeout_s
        if self._settings.send_timeout_per_try_s is not None:
            limit_s = self._limit_s(timeout_s, tries > 1 and queue is None)
        attempt = self.begin(outgoing, queue, limit_s)
        first: FirstTry | None = None
        if attempt is not None:
            try:
                answer = await attempt.future
            except RemotingError as error:
                attempt.channel.forget(attempt.opaque)
                first = FirstTry(attempt.queue, translated(error))
            except BaseException:
                attempt.channel.forget(attempt.opaque)
                raise
            else:
                attempt.channel.answered(attempt.opaque)
                if answer.code == SUCCESS:
                    return self.receipts.receipt(answer, outgoing, attempt.queue)
                first = self.first_try(attempt, answer)
        return await self.go_on(
            outgoing,
            queue,
            started_s,
            timeout_s,
            first,
            tries=tries,
            retries_refusals=retries_refusals,
        )

    def first_try(self, attempt: Attempt, answer: Command) -> FirstTry:
        """What an answer that is no plain success means for the tries to come."""
        self._leave_if_told(answer, attempt.address, attempt.channel)
        return FirstTry(attempt.queue, refusal(answer, attempt.address), answer)

    def begin(
        self, outgoing: Outgoing, queue: MessageQueue | None, timeout_s: float
    ) -> Attempt | None:
        """Send at once if everything is there: the route, the connection, and nobody looking on.

        That is nearly every message; whatever has to wait for something goes the long way.
        """
        topic = outgoing.topic
        if not self._is_quick or not self._peers.is_plain or not self._hooks.is_empty:
            return None
        target = queue
        if target is None:
            queues = self._routes.publish_queues(topic)
            if not queues:
                return None
            target = self._choice.choose(topic, queues)
        lane = self._lanes.to(target)
        if lane is None:
            if queue is None:
                self._choice.take_back(topic)
            return None
        parts, channel = lane.parts, lane.channel
        if outgoing.code != PLAIN:
            parts = self._frames.parts(target, lane.broker, outgoing.code)
        opaque, future = self._write(channel, parts, outgoing, timeout_s)
        return Attempt(channel, opaque, future, target, lane.address)

    async def go_on(
        self,
        outgoing: Outgoing,
        queue: MessageQueue | None,
        started_s: float,
        timeout_s: float,
        first: FirstTry | None,
        *,
        tries: int,
        retries_refusals: bool,
    ) -> SendReceipt:
        """The long way: all tries, the first of which may be over already."""
        now_s = self._clock.monotonic_s
        deadline_s = started_s + timeout_s
        topic = outgoing.topic
        if queue is not None:
            tries = 1
        failed: list[str] = []
        kept: SendReceipt | None = None
        error: RocketMQError | None = None
        for attempt in range(tries):
            began_s = now_s()
            left_s = deadline_s - began_s
            if left_s <= 0 and first is None:
                break
            target, result = await self._one_try(
                outgoing, queue, first, failed, self._limit_s(left_s, attempt + 1 < tries)
            )
            first = None
            self._note(target, began_s, result)
            failed.append(target.broker_name)
            if isinstance(result, SendReceipt):
                if (
                    result.status is SendStatus.SEND_OK
                    or not self._settings.retry_another_broker_when_not_stored
                ):
                    return result
                kept = result
            elif self._is_retriable(result, retries_refusals=retries_refusals):
                error = result
            elif kept is None:
                raise result
            else:
                return kept
        if kept is not None:
            return kept
        raise self._gave_up(topic, error, failed, now_s() - started_s, tries)

    async def send_one_way(
        self, outgoing: Outgoing, queue: MessageQueue | None, timeout_s: float
    ) -> None:
        """Send once; nobody answers, so nobody knows whether it arrived."""
        queues = (queue,) if queue else await self.places.queues(outgoing.topic, timeout_s)
        target = self._choice.choose(outgoing.topic, queues) if queue is None else queue
        broker, address = await self.places.address(target)
        context = self._hooks.before(outgoing, target, address)
        born_ms = self._clock.wall_ms()
        if self._peers.is_plain:
            channel = await self._lanes.open(address, timeout_s)
            parts = self._frames.parts(target, broker, outgoing.code)
            try:
                opaque = channel.number_one_way()
            except RemotingError as error:
                raise translated(error) from error
            header = write_header(parts, outgoing, born_ms, opaque, one_way=True)
            channel.write(header, outgoing.body)
        else:
            fields = encode_header(self._frames.header(outgoing, target, broker, born_ms))
            await self._peers.one_way(
                address, outgoing.code, fields, outgoing.body, timeout_s=timeout_s
            )
        self._hooks.after(context, None, None)

    # --- one try ---------------------------------------------------------------------------

    async def _one_try(
        self,
        outgoing: Outgoing,
        queue: MessageQueue | None,
        first: FirstTry | None,
        failed: Sequence[str],
        timeout_s: float,
    ) -> tuple[MessageQueue, SendReceipt | RocketMQError]:
        """Where it went, and what came of it. Errors before that are the caller's to hear."""
        if first is not None:
            if first.answer is not None and first.answer.code in STATUS:
                return first.queue, self.receipts.receipt(first.answer, outgoing, first.queue)
            return first.queue, first.error
        self._session.check_usable()
        if queue is None:
            queues = await self.places.queues(outgoing.topic, timeout_s)
            last = failed[-1] if failed else None
            now_ms = self._clock.monotonic_s() * 1000
            queue = self._choice.choose(outgoing.topic, queues, last, now_ms)
        try:
            broker, address = await self.places.address(queue)
            if self._hooks.is_empty:
                return queue, await self._exchange(outgoing, queue, broker, address, timeout_s)
            return queue, await self._try_hooked(outgoing, queue, broker, address, timeout_s)
        except RocketMQError as error:
            return queue, error

    async def _exchange(
        self, outgoing: Outgoing, queue: MessageQueue, broker: str, address: str, timeout_s: float
    ) -> SendReceipt:
        began_s = self._clock.monotonic_s()
        channel = await self._lanes.open(address, timeout_s)
        left_s = timeout_s - (self._clock.monotonic_s() - began_s)
        if not self._peers.is_plain:
            header = self._frames.header(outgoing, queue, broker, self._clock.wall_ms())
            answer = await self._peers.call(
                address, outgoing.code, encode_header(header), outgoing.body, timeout_s=left_s
            )
            return self.receipts.checked(answer, outgoing, queue, address)
        parts = self._frames.parts(queue, broker, outgoing.code)
        opaque, future = self._write(channel, parts, outgoing, left_s)
        try:
            answer = await future
        except RemotingError as error:
            raise translated(error) from error
        finally:
            channel.forget(opaque)
        self._leave_if_told(answer, address, channel)
        return self.receipts.checked(answer, outgoing, queue, address)

    async def _try_hooked(
        self, outgoing: Outgoing, queue: MessageQueue, broker: str, address: str, timeout_s: float
    ) -> SendReceipt:
        context = self._hooks.before(outgoing, queue, address)
        try:
            receipt = await self._exchange(outgoing, queue, broker, address, timeout_s)
        except RocketMQError as error:
            self._hooks.after(context, None, error)
            raise
        self._hooks.after(context, receipt, None)
        return receipt

    def _write(
        self, channel: SendChannel, parts: QueueParts, outgoing: Outgoing, timeout_s: float
    ) -> tuple[int, asyncio.Future[Command]]:
        body = outgoing.body
        try:
            opaque, future = channel.expect(len(outgoing.properties_json) + len(body), timeout_s)
        except RemotingError as error:
            raise translated(error) from error
        born_ms = self._clock.wall_ns() // 1_000_000
        channel.write(write_header(parts, outgoing, born_ms, opaque), body)
        return opaque, future

    def _leave_if_told(self, answer: Command, address: str, channel: SendChannel) -> None:
        """A broker that says GO_AWAY takes no more on this connection; the first answer counts."""
        if answer.code == ResponseCode.GO_AWAY:
            self._lanes.leave(address, channel)

    # --- after a try -----------------------------------------------------------------------

    def _is_retriable(self, error: RocketMQError, *, retries_refusals: bool) -> bool:
        if isinstance(error, BrokerRefusal):
            return retries_refusals and error.code in RETRY_CODES
        return error.retriable

    def _limit_s(self, left_s: float, may_try_again: bool) -> float:
        limit_s = self._settings.send_timeout_per_try_s
        return left_s if limit_s is None or not may_try_again else min(limit_s, left_s)

    def _note(
        self, queue: MessageQueue, began_s: float, result: SendReceipt | RocketMQError
    ) -> None:
        faults = self.faults
        if faults is not None:
            now_s = self._clock.monotonic_s()
            is_done = isinstance(result, SendReceipt)
            # Who asks whether a broker answers again may count a silent one as out of reach.
            is_silent = not is_done and not isinstance(result, BrokerRefusal)
            faults.update(
                queue.broker_name,
                (now_s - began_s) * 1000,
                now_s * 1000,
                failed=not is_done,
                reachable=is_done or (is_silent and not self._settings.fault_detector),
            )

    @staticmethod
    def _gave_up(
        topic: str,
        error: RocketMQError | None,
        failed: Sequence[str],
        took_s: float,
        tries: int,
    ) -> RocketMQError:
        text = (
            f"sent {len(failed)} of {tries} times in {took_s:.3f} s, topic {topic!r}, "
            f"brokers {', '.join(failed) or 'none'}"
        )
        if error is None or len(failed) < tries:
            late = ClientTimeoutError(f"no time is left: {text}" + (f": {error}" if error else ""))
            late.__cause__ = error
            return late
        error.add_note(text)
        return error
