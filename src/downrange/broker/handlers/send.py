"""SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE: a producer hands over messages."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Protocol

from downrange.broker.admission import check_queue, check_sendable
from downrange.broker.batch_slices import SLICED_BODY_BYTES, put_in_slices
from downrange.broker.creation_wait import CreationWait
from downrange.broker.message_writer import MessageWriter
from downrange.broker.overload import Gate
from downrange.broker.rates import PutTimes
from downrange.broker.registration import Announced
from downrange.broker.retry_sends import RetrySends
from downrange.broker.send_reply import SendReply
from downrange.broker.stats import BrokerStats
from downrange.model.names import (
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    is_retry_topic,
)
from downrange.model.topics import TopicConfig
from downrange.protocol.command import Command
from downrange.protocol.headers.send import SendRequest, decode_send
from downrange.protocol.properties import find_property, remove_property, replace_property
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.sys_flag import BORN_HOST_V6, MULTI_TAGS, TRANSACTION_PREPARED
from downrange.protocol.unique_id import UniqueIdGenerator
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused
from downrange.runtime.clock import Clock, monotonic_ms
from downrange.store.appended import Appended, AppendedBatch
from downrange.store.appender import HOST_V4_BYTES
from downrange.store.errors import PutStatus
from downrange.store.flush import Release

_HELP = "see https://rocketmq.apache.org/docs/bestPractice/06FAQ for more"

Reply = Callable[[Answer], None]  # takes an answer that was not there at once


class Topics(Protocol):
    """What sending needs of the topic table."""

    def get(self, topic: str) -> TopicConfig | None:
        """The topic's configuration."""
        ...

    def create_for_send(
        self, topic: str, default_topic: str, queue_nums: int, sys_flag: int
    ) -> TopicConfig | None:
        """Create a topic because somebody sends to it; None if that is not allowed."""
        ...

    def create_for_send_back(
        self, topic: str, queue_nums: int, sys_flag: int
    ) -> TopicConfig | None:
        """Create a retry or dead-letter topic."""
        ...


class HalfMessages(Protocol):
    """Where transactional messages wait for their end."""

    def put_half(
        self,
        header: SendRequest,
        queue_id: int,
        body: bytes,
        properties: bytes,
        connection: Connection,
    ) -> Appended:
        """Put a half message."""
        ...


class SendHandler:
    """Checks a send and puts it; answers when it is as durable as the flush mode promises."""

    def __init__(
        self,
        topics: Topics,
        retries: RetrySends,
        writer: MessageWriter,
        half_messages: HalfMessages,
        stats: BrokerStats,
        times: PutTimes,
        reply: SendReply,
        unique_ids: UniqueIdGenerator,
        clock: Clock,
        chance: random.Random,
        announced: Announced,
        creations: CreationWait,
        gate: Gate,
        *,
        cluster_name: str,
        region: str,
        traces: bool,
        broker_address: str,
        is_writable: bool = True,
        rejects_transactions: bool = False,
        accepts_from_ms: int = 0,
    ) -> None:
        self._topics = topics
        self._retries = retries
        self._writer = writer
        self._half_messages = half_messages
        self._stats = stats
        self._times = times
        self._reply = reply
        self._unique_ids = unique_ids
        self._clock = clock
        self._chance = chance
        self._announced = announced
        self._creations = creations
        self._gate = gate
        # What the real broker adds to the text of every single message.
        self.additions = (
            f"MSG_REGION\x01{region}\x02TRACE_ON\x01{str(traces).lower()}\x02"
            f"CLUSTER\x01{cluster_name}\x02"
        ).encode()
        self._broker_address = broker_address
        # The configuration with which a topic was last found good; it is replaced, never changed.
        self.admitted: dict[str, TopicConfig] = {}
        self.change(
            is_writable=is_writable,
            rejects_transactions=rejects_transactions,
            accepts_from_ms=accepts_from_ms,
        )

    def change(
        self, *, is_writable: bool, rejects_transactions: bool, accepts_from_ms: int
    ) -> None:
        """Follow other settings from now on."""
        self._is_writable = is_writable
        self._rejects_transactions = rejects_transactions
        self._accepts_from_ms = accepts_from_ms
        self.admitted.clear()

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(
        self, request: Command, connection: Connection
    ) -> Answer | Coroutine[None, None, Answer]:
        """One message or a batch."""
        if self._gate.is_closed:
            raise self._gate.refusal()
        header = decode_send(request.code, request.ext_fields)
        return self._send(request, header, connection, connection.reply)

    def _send(
        self,
        request: Command,
        header: SendRequest,
        connection: Connection,
        reply: Reply,
        *,
        has_waited: bool = False,
    ) -> Answer | Coroutine[None, None, Answer]:
        config = self._topics.get(header.topic)
        if config is None or self.admitted.get(header.topic) is not config:
            config = self._admit(header)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._chance.randrange(max(config.write_queue_nums, 1))
        else:
            check_queue(queue_id, config, header.topic)
        if header.batch:
            return self._send_batch(
                request, connection, reply, header, config, queue_id, has_waited=has_waited
            )
        text = (header.properties or "").encode()
        if b"POP_CK\x01" in text:
            text = remove_property(text, b"POP_CK")
        unique_key = find_property(text, b"UNIQ_KEY")
        if unique_key is None:
            unique_key = self._unique_ids.next_id().encode()
            text = replace_property(text, b"UNIQ_KEY", unique_key)
        topic = header.topic
        if topic.startswith("%RETRY%"):
            topic, queue_id, text = self._retries.target(request.version, header, queue_id, text)
        if not self._creations.can_put(topic, queue_id, has_waited=has_waited):
            return self._send_later(request, header, connection)
        if text and not text.endswith(b"\x02"):
            text += b"\x02"
        if b"MSG_REGION\x01" in text or b"CLUSTER\x01" in text:
            for name in (b"MSG_REGION", b"TRACE_ON", b"CLUSTER"):  # of its former life
                text = remove_property(text, name)
        text += self.additions
        appended = self._put(request, connection, header, config, topic, queue_id, text)
        if request.is_one_way:
            return None
        if b"WAIT\x01false" not in text and self._writer.wait_durable(
            appended.end_offset,
            self._answer_later(request, reply, [appended], queue_id, unique_key),
        ):
            return None
        self._times.add(0)  # no wait was in between
        if has_waited:
            return self._reply.later(request, PutStatus.PUT_OK, [appended], queue_id, unique_key)
        return self._reply.now(
            request.serialization, request.opaque, appended, queue_id, unique_key
        )

    async def _send_later(
        self, request: Command, header: SendRequest, connection: Connection
    ) -> Answer:
        """Put a message when its topic is on disk, and answer when the topic has a route.

        A consumer may be started at once then.
        """
        late: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def keep(answer: Answer) -> None:
            if not late.done():  # the producer may be gone
                late.set_result(answer)

        await self._creations.wait(header.topic)
        answer = self._send(request, header, connection, keep, has_waited=True)
        assert not isinstance(answer, Coroutine)
        if answer is not None or request.is_one_way:
            keep(answer)
        answer = await late  # when the message is durable, in SYNC_FLUSH
        if answer is not None:
            await self._announced()
        return answer

    def _put(
        self,
        request: Command,
        connection: Connection,
        header: SendRequest,
        config: TopicConfig,
        topic: str,
        queue_id: int,
        text: bytes,
    ) -> Appended:
        body = request.body
        if body is None:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "the message is illegal: it has no body")
        if b"TRAN_MSG\x01true" in text and not (header.reconsume_times and b"DELAY\x01" in text):
            if self._rejects_transactions:
                raise Refused(
                    ResponseCode.NO_PERMISSION,
                    f"the broker[{self._broker_address}] sending transaction message is forbidden",
                )
            appended = self._half_messages.put_half(header, queue_id, body, text, connection)
            self._stats.add_put(HALF_TOPIC, 1, appended.size)
            return appended
        sys_flag = self._sys_flag(header.sys_flag, config, connection)
        appended = self._writer.put(
            topic,
            queue_id,
            body,
            text,
            sys_flag,
            header.flag,
            header.born_timestamp,
            connection.host,
            header.reconsume_times or 0,
        )
        # A delayed message counts under its own topic when it is delivered.
        is_delayed = b"DELAY\x01" in text and find_property(text, b"DELAY") != b"0"
        self._stats.add_put(SCHEDULE_TOPIC if is_delayed else topic, 1, appended.size)
        return appended

    def _send_batch(
        self,
        request: Command,
        connection: Connection,
        reply: Reply,
        header: SendRequest,
        config: TopicConfig,
        queue_id: int,
        *,
        has_waited: bool,
    ) -> Answer | Coroutine[None, None, Answer]:
        if not self._creations.can_put(header.topic, queue_id, has_waited=has_waited):
            return self._send_later(request, header, connection)
        # Messages of a batch keep their own text: the real broker adds nothing to it.
        sys_flag = self._sys_flag(header.sys_flag, config, connection)
        body = request.body or b""

        def put(batch: bytes) -> AppendedBatch:
            return self._writer.put_batch(
                header.topic, queue_id, batch, sys_flag, header.born_timestamp, connection.host
            )

        if len(body) > SLICED_BODY_BYTES and not has_waited:
            slices = put_in_slices(body, self._writer.body_bytes_max, put)
            return self._answer_slices(slices, request, reply, header, queue_id)
        return self._answer_batch(put(body), request, reply, header, queue_id)

    async def _answer_slices(
        self,
        slices: Coroutine[None, None, AppendedBatch],
        request: Command,
        reply: Reply,
        header: SendRequest,
        queue_id: int,
    ) -> Answer:
        return self._answer_batch(await slices, request, reply, header, queue_id)

    def _answer_batch(
        self,
        placed: AppendedBatch,
        request: Command,
        reply: Reply,
        header: SendRequest,
        queue_id: int,
    ) -> Answer:
        size = placed[-1].end_offset - placed[0].physical_offset
        self._stats.add_put(header.topic, len(placed), size)
        if request.is_one_way:
            return None
        unique_key = find_property((header.properties or "").encode(), b"UNIQ_KEY")
        if self._writer.wait_durable(
            placed[-1].end_offset,
            self._answer_later(request, reply, placed, queue_id, unique_key),
        ):
            return None
        self._times.add(0)
        return self._reply.later(request, PutStatus.PUT_OK, placed, queue_id, unique_key)

    def _answer_later(
        self,
        request: Command,
        reply: Reply,
        placed: Sequence[Appended],
        queue_id: int,
        unique_key: bytes | None,
    ) -> Release:
        begun_ms = monotonic_ms(self._clock)

        def answer(status: PutStatus) -> None:
            self._times.add(monotonic_ms(self._clock) - begun_ms)
            reply(self._reply.later(request, status, placed, queue_id, unique_key))

        return answer

    def _admit(self, header: SendRequest) -> TopicConfig:
        """Whether anybody may send to this topic now; creates it if that is allowed."""
        topic = header.topic
        check_sendable(topic, self._clock.wall_ms(), self._accepts_from_ms)
        config = self._topics.get(topic)
        if config is None:
            unit_flag = (2 if is_retry_topic(topic) else 1) if header.unit_mode else 0
            config = self._topics.create_for_send(
                topic, header.default_topic, header.default_topic_queue_nums, unit_flag
            )
            if config is None and is_retry_topic(topic):
                config = self._topics.create_for_send_back(topic, 1, unit_flag)
        if config is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] not exist, apply first please! Create it, or allow "
                f"autoCreateTopicEnable; {_HELP}",
            )
        if not self._is_writable and config.order:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker_address}] sending message is forbidden",
            )
        if self._is_writable and self._creations.is_over(topic):
            self.admitted[topic] = config
        return config

    @staticmethod
    def _sys_flag(sys_flag: int, config: TopicConfig, connection: Connection) -> int:
        if config.topic_filter_type == "MULTI_TAG":
            sys_flag |= MULTI_TAGS
        if len(connection.host) > HOST_V4_BYTES:
            sys_flag |= BORN_HOST_V6
        return sys_flag & ~TRANSACTION_PREPARED
