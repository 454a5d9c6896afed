"""Request and reply over topics: the reply finds its request by a number that both carry."""

import asyncio
import random
from collections.abc import Mapping

from downrange.client.errors import (
    CREATE_REPLY_FAILED,
    InvalidMessageError,
    InvalidStoredMessageError,
    RequestTimeoutError,
    TooMuchInFlightError,
)
from downrange.client.message import Message, ReceivedMessage
from downrange.model.names import reply_topic
from downrange.protocol import property_names as names
from downrange.protocol.command import Command, response
from downrange.protocol.compression import DECOMPRESSED_BYTES_MAX, decompress_by_flag
from downrange.protocol.errors import ProtocolError
from downrange.protocol.headers.broker_to_client import PushReplyRequest
from downrange.protocol.headers.fields import decode_header
from downrange.protocol.hosts import encode_host, parse_address
from downrange.protocol.properties import decode_property_text, encode_properties
from downrange.protocol.sys_flag import COMPRESSED, without_compressed_bit
from downrange.remoting.connection import Connection
from downrange.runtime.clock import Clock

REQUESTS_MAX = 65_535
_REPLY = "reply"


class ReplyTable:
    """The requests of one session that wait for a reply."""

    def __init__(self, clock: Clock, *, body_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> None:
        self._clock = clock
        self._body_bytes_max = body_bytes_max
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}

    def expect(self, correlation_id: str) -> asyncio.Future[ReceivedMessage]:
        """Where the reply to a request will be; `forget` it in the end."""
        if len(self._waiting) >= REQUESTS_MAX:
            raise TooMuchInFlightError(f"{REQUESTS_MAX} requests wait for a reply already")
        future: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return future

    def forget(self, correlation_id: str) -> None:
        """Nobody waits any more."""
        self._waiting.pop(correlation_id, None)

    async def wait(
        self,
        future: asyncio.Future[ReceivedMessage],
        left_s: float,
        topic: str,
        timeout_s: float,
    ) -> ReceivedMessage:
        """The reply, or `RequestTimeoutError`."""
        try:
            async with asyncio.timeout(left_s):
                return await future
        except TimeoutError:
            raise RequestTimeoutError(
                f"the request to topic {topic!r} was sent, and no reply came in {timeout_s:g} s; "
                f"does a consumer of the topic reply?"
            ) from None

    def on_push(self, request: Command, _connection: Connection) -> Command:
        """A broker brings a reply."""
        header = decode_header(PushReplyRequest, request.ext_fields)
        properties = decode_property_text(header.properties or "")
        future = self._waiting.get(properties.get(names.CORRELATION_ID, ""))
        if future is None or future.done():
            return response(request, 0)
        try:
            body = self._body(request.body or b"", header.sys_flag)
        except ProtocolError as error:
            future.set_exception(
                InvalidStoredMessageError(f"the reply in topic {header.topic!r}", str(error))
            )
        else:
            properties[names.REPLY_ARRIVE_TIME] = str(self._clock.wall_ms())
            future.set_result(_reply(header, body, properties))
        return response(request, 0)

    def _body(self, body: bytes, sys_flag: int) -> bytes:
        if not sys_flag & COMPRESSED:
            return body
        return decompress_by_flag(body, sys_flag, bytes_max=self._body_bytes_max)


def request_properties(
    properties: Mapping[str, str], client_id: str, timeout_s: float, chance: random.Random
) -> tuple[str, dict[str, str]]:
    """A new correlation id, and the properties of a request that carries it."""
    bits = chance.getrandbits(128)
    text = f"{bits:032x}"
    correlation_id = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    return correlation_id, {
        **properties,
        names.CORRELATION_ID: correlation_id,
        names.REPLY_TO_CLIENT: client_id,
        names.REPLY_TTL: str(round(timeout_s * 1000)),
    }


def make_reply(request: ReceivedMessage, body: bytes) -> Message:
    """The reply to a request that a consumer has received; send it with any producer."""
    asked = request.properties
    cluster = asked.get(names.CLUSTER)
    reply_to = asked.get(names.REPLY_TO_CLIENT)
    correlation_id = asked.get(names.CORRELATION_ID)
    if cluster is None or reply_to is None or correlation_id is None:
        raise InvalidMessageError(
            "the message is no request: it lacks cluster, sender or correlation id",
            code=CREATE_REPLY_FAILED,
        )
    properties = {
        names.WAIT_STORE_OK: "true",
        names.MESSAGE_TYPE: _REPLY,
        names.CORRELATION_ID: correlation_id,
        names.REPLY_TO_CLIENT: reply_to,
    }
    if names.REPLY_TTL in asked:
        properties[names.REPLY_TTL] = asked[names.REPLY_TTL]
    return Message.of_properties(reply_topic(cluster), body, properties)


def _reply(header: PushReplyRequest, body: bytes, properties: dict[str, str]) -> ReceivedMessage:
    return ReceivedMessage(
        header.topic,
        body,
        header.flag,
        header.queue_id,
        0,
        0,
        without_compressed_bit(header.sys_flag),
        header.born_timestamp,
        _host(header.born_host),
        header.store_timestamp,
        _host(header.store_host),
        header.reconsume_times or 0,
        0,
        0,
        0,
        encode_properties(properties),
    )


def _host(text: str) -> bytes:
    # Java writes "/10.0.0.1:4000" for an address without a name.
    ip, port = parse_address(text.rpartition("/")[2])
    return encode_host(ip, port)
