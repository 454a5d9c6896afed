"""A message on its way out: checked, named, compressed once, whatever number of tries it takes."""

from collections.abc import Sequence
from typing import Final

import msgspec

from downrange.client.errors import InvalidMessageError
from downrange.client.message import Message
from downrange.client.namespace import with_namespace
from downrange.client.settings import ProducerSettings
from downrange.model.names import CLOSED_TOPICS, InvalidNameError, check_topic, is_retry_topic
from downrange.protocol import property_names as names
from downrange.protocol.batch import encode_batch
from downrange.protocol.compression import compress
from downrange.protocol.errors import ProtocolError
from downrange.protocol.properties import (
    PROPERTIES_BYTES_MAX,
    encode_properties,
    encode_property_text,
)
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.sys_flag import TRANSACTION_PREPARED, with_compression
from downrange.protocol.unique_id import UniqueIdGenerator

TOPICS_KEPT_MAX: Final = 10_000
BATCH_MESSAGES_MAX: Final = 100_000
REPLY_TYPE: Final = "reply"
_PREPARED: Final = "true"
_json: Final = msgspec.json.Encoder().encode


class Outgoing(msgspec.Struct):
    """What a try needs. `topic` is as brokers know it; `properties` is the text of the header.

    `properties_json` is that text as JSON, quotes and all.
    """

    message: Message
    topic: str
    body: bytes
    properties: str
    properties_json: bytes
    sys_flag: int
    message_id: str
    code: int = RequestCode.SEND_MESSAGE_V2.value
    is_batch: bool = False
    reconsume_times: int = 0
    max_reconsume_times: int | None = None


class OutgoingMaker:
    """Checks messages as brokers would and makes them ready; belongs to one producer."""

    def __init__(
        self, settings: ProducerSettings, namespace: str, unique_ids: UniqueIdGenerator
    ) -> None:
        self._bytes_max = settings.message_bytes_max
        self._compress_over = settings.compress_over_bytes
        self._compress_type = settings.compress_type
        self._compress_level = settings.compress_level
        self._namespace = namespace
        self._next_id = unique_ids.next_id
        self._topics: dict[str, str] = {}

    def topic(self, topic: str) -> str:
        """The topic as brokers know it; `InvalidMessageError` if it cannot be one."""
        known = self._topics.get(topic)
        if known is not None:
            return known
        wrapped = with_namespace(topic, self._namespace)
        try:
            check_topic(wrapped)
        except InvalidNameError as error:
            raise InvalidMessageError(str(error), code=None) from None
        if wrapped in CLOSED_TOPICS:
            raise InvalidMessageError(f"topic {topic!r} belongs to the brokers", code=None)
        if len(self._topics) >= TOPICS_KEPT_MAX:
            self._topics.clear()
        self._topics[topic] = wrapped
        return wrapped

    def make(self, message: Message) -> Outgoing:
        """One message."""
        topic = self._topics.get(message.topic) or self.topic(message.topic)
        body = message.body
        if type(body) is not bytes or not 0 < len(body) <= self._bytes_max:
            self._check_body(body)
        sys_flag = 0
        if len(body) >= self._compress_over:
            body, sys_flag = self._compressed(body)
        properties = message.properties
        if properties.get(names.TRANSACTION_PREPARED) == _PREPARED:
            sys_flag |= TRANSACTION_PREPARED
        message_id = properties.get(names.UNIQUE_KEY)
        if message_id is None:
            message_id = self._next_id()
            text = f"{self._text(properties)}UNIQ_KEY\x01{message_id}\x02"
        else:
            text = self._text(properties)
        if self._namespace:
            text += f"{names.INSTANCE_ID}\x01{self._namespace}\x02"
        outgoing = Outgoing(message, topic, body, text, _as_json(text), sys_flag, message_id)
        if names.MESSAGE_TYPE in properties and properties[names.MESSAGE_TYPE] == REPLY_TYPE:
            outgoing.code = RequestCode.SEND_REPLY_MESSAGE_V2
        if topic[0] == "%" and is_retry_topic(topic):
            self._move_retry_counts(outgoing)
        return outgoing

    def check(self, message: Message) -> None:
        """Refuse a message that would spoil the batch it is to go with."""
        self.topic(message.topic)
        self._check_body(message.body)
        _as_json(self._text(message.properties))

    def make_batch(self, messages: Sequence[Message]) -> Outgoing:
        """Several messages in one request; they share topic and waiting, and have no delay."""
        if not messages:
            raise InvalidMessageError("a batch without a message")
        if len(messages) > BATCH_MESSAGES_MAX:
            raise InvalidMessageError(f"a batch of more than {BATCH_MESSAGES_MAX} messages")
        first = messages[0]
        topic = self.topic(first.topic)
        ids: list[str] = []
        parts: list[tuple[int, bytes, bytes]] = []
        for message in messages:
            _check_in_batch(message, first)
            self._check_body(message.body)
            properties = dict(message.properties)
            ids.append(properties.setdefault(names.UNIQUE_KEY, self._next_id()))
            if self._namespace:
                properties[names.INSTANCE_ID] = self._namespace
            parts.append((message.flag, message.body, _encoded(properties)))
        body = encode_batch(parts)
        if len(body) > self._bytes_max:
            raise InvalidMessageError(
                f"the batch has {len(body)} bytes with its properties, over {self._bytes_max}; "
                f"send it in parts"
            )
        wait = first.properties.get(names.WAIT_STORE_OK, "true")
        return self._batch(first, topic, body, wait, ",".join(ids))

    def make_encoded_batch(self, topic: str, body: bytes) -> Outgoing:
        """Messages that somebody has encoded as a batch body already, names and all."""
        wrapped = self.topic(topic)
        if is_retry_topic(wrapped):
            raise InvalidMessageError("a batch takes no retry topic")
        self._check_body(body)
        return self._batch(Message(topic, b""), wrapped, body, "true", "")

    @staticmethod
    def _batch(first: Message, topic: str, body: bytes, wait: str, ids: str) -> Outgoing:
        text = f"{names.WAIT_STORE_OK}\x01{wait}\x02"
        code = RequestCode.SEND_BATCH_MESSAGE
        return Outgoing(first, topic, body, text, _as_json(text), 0, ids, code, is_batch=True)

    def _check_body(self, body: bytes) -> None:
        if not isinstance(body, bytes):
            raise InvalidMessageError(f"the body is {type(body).__name__}, not bytes; encode it")
        if not body:
            raise InvalidMessageError("the body is empty, and brokers take no empty message")
        if len(body) > self._bytes_max:
            raise InvalidMessageError(
                f"the body has {len(body)} bytes, over {self._bytes_max}; raise message_bytes_max "
                f"here and maxMessageSize at the broker, or send less"
            )

    def _compressed(self, body: bytes) -> tuple[bytes, int]:
        packed = compress(body, self._compress_type, self._compress_level)
        return packed, with_compression(0, self._compress_type)

    @staticmethod
    def _text(properties: dict[str, str]) -> str:
        text = ""
        for name, value in properties.items():
            text += f"{name}\x01{value}\x02"
        # Counting once is cheaper than looking into each name and value.
        count = len(properties)
        if text.count("\x01") == count == text.count("\x02") and "" not in properties:
            return text
        try:
            return encode_property_text(properties)
        except ProtocolError as error:
            raise InvalidMessageError(str(error)) from None

    def _move_retry_counts(self, outgoing: Outgoing) -> None:
        """What a consumer says about a message it sends back stands in the header."""
        properties = dict(outgoing.message.properties)
        properties[names.UNIQUE_KEY] = outgoing.message_id
        if self._namespace:
            properties[names.INSTANCE_ID] = self._namespace
        times = properties.pop(names.RECONSUME_TIME, None)
        times_max = properties.pop(names.MAX_RECONSUME_TIMES, None)
        if times is not None:
            outgoing.reconsume_times = int(times)
        if times_max is not None:
            outgoing.max_reconsume_times = int(times_max)
        outgoing.properties = self._text(properties)
        outgoing.properties_json = _as_json(outgoing.properties)


def _check_in_batch(message: Message, first: Message) -> None:
    if message.topic != first.topic:
        raise InvalidMessageError(
            f"a batch for one topic only, not for {first.topic!r} and {message.topic!r}"
        )
    if message.delay_level or is_retry_topic(message.topic):
        raise InvalidMessageError("a batch takes no delay level and no retry topic")
    wait = names.WAIT_STORE_OK
    if message.properties.get(wait) != first.properties.get(wait):
        raise InvalidMessageError("the messages of a batch wait to be stored, all or none")


def _encoded(properties: dict[str, str]) -> bytes:
    try:
        return encode_properties(properties)
    except ProtocolError as error:
        raise InvalidMessageError(str(error)) from None


def _as_json(text: str) -> bytes:
    """The text of the properties as JSON; an error if no broker could store it."""
    try:
        encoded = _json(text)
    except UnicodeEncodeError as error:
        raise InvalidMessageError(f"a property holds half a character: {error}") from None
    if len(encoded) > PROPERTIES_BYTES_MAX and len(text.encode()) > PROPERTIES_BYTES_MAX:
        raise InvalidMessageError(
            f"the properties take {len(text.encode())} bytes, {PROPERTIES_BYTES_MAX} are possible"
        )
    return encoded
