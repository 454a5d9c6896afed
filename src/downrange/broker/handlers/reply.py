"""SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2: the answer to a request, for the client that waits.

The reply is pushed to that client at once; it is stored too, for the record, and nobody reads it.
"""

import logging
import random
from typing import Protocol

from downrange.broker.admission import check_queue, check_sendable
from downrange.broker.creation_wait import CreationWait
from downrange.broker.message_writer import MessageWriter
from downrange.broker.stats import BrokerStats
from downrange.model.topics import TopicConfig
from downrange.protocol.command import Command, response
from downrange.protocol.errors import LocalProtocolError
from downrange.protocol.headers.broker_to_client import PushReplyRequest
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.headers.send import SendRequest, SendResponse, decode_send
from downrange.protocol.hosts import decode_host, format_address
from downrange.protocol.message_id import encode_message_id
from downrange.protocol.properties import find_property, replace_property
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.sys_flag import BORN_HOST_V6, COMPRESSED, COMPRESSION_MASK
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused, RemotingError
from downrange.runtime.clock import Clock
from downrange.store.appended import Appended
from downrange.store.appender import HOST_V4_BYTES
from downrange.store.errors import PutStatus

_log = logging.getLogger(__name__)

PUSH_TIMEOUT_S = 10.0


class Topics(Protocol):
    """What replying needs of the topic table."""

    def get(self, topic: str) -> TopicConfig | None:
        """The topic's configuration."""
        ...

    def create_for_send(
        self, topic: str, default_topic: str, queue_nums: int, sys_flag: int
    ) -> TopicConfig | None:
        """Create a topic because somebody sends to it; None if that is not allowed."""
        ...


class Clients(Protocol):
    """What replying needs of the producer table: who asks is a producer."""

    def find(self, client_id: str) -> Connection | None:
        """The connection of a client."""
        ...


class ReplyHandler:
    """Hands a reply on, and says to who replied whether it arrived."""

    def __init__(
        self,
        topics: Topics,
        clients: Clients,
        creations: CreationWait,
        writer: MessageWriter,
        stats: BrokerStats,
        clock: Clock,
        chance: random.Random,
        *,
        store_host: bytes,
        region: str,
        traces: bool,
        stores_replies: bool = True,
        accepts_from_ms: int = 0,
    ) -> None:
        self._topics = topics
        self._clients = clients
        self._creations = creations
        self._writer = writer
        self._stats = stats
        self._clock = clock
        self._chance = chance
        self._store_host = store_host
        self._store_address = format_address(*decode_host(store_host))
        self._region = region
        self._traces = traces
        self.change(stores_replies=stores_replies, accepts_from_ms=accepts_from_ms)

    def change(self, *, stores_replies: bool, accepts_from_ms: int) -> None:
        """Follow other settings from now on."""
        self._stores_replies = stores_replies
        self._accepts_from_ms = accepts_from_ms

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
        }

    async def reply(self, request: Command, connection: Connection) -> Answer:
        """Push, then store; the code says whether the push arrived, whatever became of the copy."""
        header = decode_send(request.code, request.ext_fields)
        config = self._admit(header)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._chance.randrange(max(config.write_queue_nums, 1))
        try:
            text = (header.properties or "").encode()
            text = replace_property(text, b"MSG_REGION", self._region.encode())
            text = replace_property(text, b"TRACE_ON", b"true" if self._traces else b"false")
        except LocalProtocolError as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        body = request.body or b""
        failure = await self._push(header, text, body, connection)
        appended = None
        if self._stores_replies and request.body is not None:
            appended = await self._store(header, queue_id, text, body, connection)
        return self._answer(request, failure, queue_id, appended)

    def _admit(self, header: SendRequest) -> TopicConfig:
        topic = header.topic
        check_sendable(topic, self._clock.wall_ms(), self._accepts_from_ms)
        config = self._topics.get(topic) or self._topics.create_for_send(
            topic, header.default_topic, header.default_topic_queue_nums, int(header.unit_mode)
        )
        if config is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!"
            )
        check_queue(header.queue_id, config, topic)
        return config

    async def _push(
        self, header: SendRequest, text: bytes, body: bytes, connection: Connection
    ) -> str | None:
        """Hand the reply to the client that waits; returns why that was not possible."""
        name = find_property(text, b"REPLY_TO_CLIENT")
        if name is None:
            return "reply message properties[REPLY_TO_CLIENT] is null"
        client_id = name.decode("utf-8", "replace")
        receiver = self._clients.find(client_id)
        if receiver is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now_ms = self._clock.wall_ms()
        pushed = PushReplyRequest(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=(text + b"PUSH_REPLY_TIME\x01%d\x02" % now_ms).decode(),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
            born_host=connection.address,
            store_host=self._store_address,
            store_timestamp=now_ms,
        )
        try:
            answer = await receiver.call(
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
                encode_header(pushed),
                body,
                timeout_s=PUSH_TIMEOUT_S,
            )
        except RemotingError as error:
            return f"push reply message to {client_id} fail. {error}"
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id} fail. {answer.remark}"
        return None

    async def _store(
        self, header: SendRequest, queue_id: int, text: bytes, body: bytes, connection: Connection
    ) -> Appended | None:
        """Keep a copy, as durable as the flush mode promises; None if that was not possible."""
        sys_flag = 0
        if header.sys_flag & COMPRESSED:
            sys_flag = header.sys_flag & (COMPRESSED | COMPRESSION_MASK)
        if len(connection.host) > HOST_V4_BYTES:
            sys_flag |= BORN_HOST_V6
        try:
            if not self._creations.can_put(header.topic, queue_id):
                await self._creations.wait(header.topic)
                self._creations.can_put(header.topic, queue_id, has_waited=True)
            appended = self._writer.put(
                header.topic,
                queue_id,
                body,
                text,
                sys_flag,
                header.flag,
                header.born_timestamp,
                connection.host,
                header.reconsume_times or 0,
            )
        except Refused as error:
            _log.warning("reply not stored: %s", error.remark)
            return None
        self._stats.add_put(header.topic, 1, appended.size)
        status = await self._writer.durable(appended.end_offset)
        if status is not PutStatus.PUT_OK:
            _log.warning("reply stored, but it may be lost: %s", status.name)
        return appended

    def _answer(
        self, request: Command, failure: str | None, queue_id: int, appended: Appended | None
    ) -> Answer:
        # Without a stored copy there is still an id, because clients want to read one.
        message_id, queue_offset = "0", 0
        if appended is not None:
            message_id = encode_message_id(self._store_host, appended.physical_offset)
            queue_offset = appended.queue_offset
        fields = encode_header(
            SendResponse(
                msg_id=message_id,
                queue_id=queue_id,
                queue_offset=queue_offset,
                region=self._region,
                trace_on=self._traces,
            )
        )
        code = ResponseCode.SUCCESS if failure is None else ResponseCode.SYSTEM_ERROR
        if failure is not None:
            _log.warning("%s", failure)
        return response(request, code, remark=failure, ext_fields=fields)
