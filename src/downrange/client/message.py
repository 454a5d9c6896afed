"""Messages as a program meets them: one to send, one received, and the receipt between the two."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Self

import msgspec

from downrange.client.errors import InvalidMessageError
from downrange.model.topics import MessageQueue
from downrange.protocol import property_names as names
from downrange.protocol.errors import ProtocolError
from downrange.protocol.hosts import decode_host
from downrange.protocol.message_id import encode_message_id
from downrange.protocol.properties import decode_properties, join_keys, split_keys


class Message:
    """A message to send. Tag, keys and the rest of what RocketMQ knows are properties.

    `properties` may be read; a name that RocketMQ reserves for itself is refused for users. Sending
    changes nothing here, so the same message may be sent again; each time it gets an id of its own.
    """

    __slots__ = ("body", "flag", "properties", "topic")

    def __init__(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str | None = None,
        keys: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        delay_level: int | None = None,
        delay_s: float | None = None,
        deliver_at_ms: int | None = None,
        sharding_key: str | None = None,
        wait_stored: bool = True,
    ) -> None:
        self.topic = topic
        self.body = body
        self.flag = flag
        found: dict[str, str] = {}
        if properties:
            for name in properties:
                if name in names.RESERVED:
                    raise InvalidMessageError(
                        f"property {name!r} belongs to RocketMQ; use another name, or the "
                        f"argument of Message that stands for it"
                    )
            found.update(properties)
        if tag is not None:
            found[names.TAGS] = tag
        if keys is not None:
            found[names.KEYS] = keys if isinstance(keys, str) else _joined(keys)
        if sharding_key is not None:
            found[names.SHARDING_KEY] = sharding_key
        if delay_level is not None or delay_s is not None or deliver_at_ms is not None:
            _set_delay(found, delay_level, delay_s, deliver_at_ms)
        found[names.WAIT_STORE_OK] = "true" if wait_stored else "false"
        self.properties = found

    @classmethod
    def of_properties(
        cls, topic: str, body: bytes, properties: Mapping[str, str], flag: int = 0
    ) -> Self:
        """A message with exactly these properties, reserved ones too: for what the client sends."""
        message = cls(topic, body, flag=flag)
        message.properties = dict(properties)
        return message

    @property
    def tag(self) -> str | None:
        """What consumers can subscribe to."""
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> list[str]:
        """What the message can be found by."""
        return split_keys(self.properties.get(names.KEYS, ""))

    @property
    def delay_level(self) -> int:
        """Which of the broker's delay levels it waits for; 0 for none."""
        return int(self.properties.get(names.DELAY_LEVEL, "0"))

    def __repr__(self) -> str:
        return f"Message({self.topic!r}, {len(self.body)} bytes, {self.properties!r})"


class ReceivedMessage(msgspec.Struct, gc=False, eq=False):
    """A stored message: what was sent, and where and when it was stored.

    What is rarely looked at (properties, hosts, ids) is decoded when it is asked for. `body` is
    decompressed. A consumer may change the fields that have no meaning for the broker.
    """

    topic: str
    body: bytes
    flag: int
    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host_bytes: bytes
    store_timestamp_ms: int
    store_host_bytes: bytes
    reconsume_times: int
    prepared_offset: int
    store_size: int
    body_crc: int
    properties_text: bytes
    broker_name: str = ""
    added_properties: bytes = b""  # of the pull: MIN_OFFSET and MAX_OFFSET of its queue
    _properties: dict[str, str] | None = None

    @property
    def properties(self) -> dict[str, str]:
        """All properties, those of RocketMQ too; a dictionary of this message's own."""
        found = self._properties
        if found is None:
            found = self._properties = decode_properties(self.properties_text)
            if self.added_properties:
                found.update(decode_properties(self.added_properties))
        return found

    @property
    def message_id(self) -> str:
        """What the producer called it; its place in the broker if nobody gave it a name."""
        return self.properties.get(names.UNIQUE_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """Its place in the broker, as an id that a broker can be asked for."""
        return encode_message_id(self.store_host_bytes, self.physical_offset)

    @property
    def queue(self) -> MessageQueue:
        """Where it was stored."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    @property
    def tag(self) -> str | None:
        """What consumers can subscribe to."""
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> list[str]:
        """What the message can be found by."""
        return split_keys(self.properties.get(names.KEYS, ""))

    @property
    def delay_level(self) -> int:
        """Which delay level it waited for; 0 for none."""
        return int(self.properties.get(names.DELAY_LEVEL, "0"))

    @property
    def transaction_id(self) -> str | None:
        """The id of its transaction."""
        return self.properties.get(names.TRANSACTION_ID) or self.properties.get(names.UNIQUE_KEY)

    @property
    def born_host(self) -> tuple[str, int]:
        """Address and port of who sent it."""
        return decode_host(self.born_host_bytes)

    @property
    def store_host(self) -> tuple[str, int]:
        """Address and port of the broker that stored it."""
        return decode_host(self.store_host_bytes)

    def __repr__(self) -> str:
        return (
            f"ReceivedMessage({self.topic!r}, broker={self.broker_name!r}, "
            f"queue={self.queue_id}, offset={self.queue_offset}, {len(self.body)} bytes)"
        )


class SendStatus(StrEnum):
    """How safely a message was stored."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class SendReceipt(msgspec.Struct, frozen=True, gc=False):
    """Where a message went; Java's SendResult.

    `message_id` is the client's own id of the message (several with commas for a batch).
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    recall_handle: str | None = None
    region: str = "DefaultRegion"
    is_traced: bool = True


def _joined(keys: Sequence[str]) -> str:
    try:
        return join_keys(list(keys))
    except ProtocolError as error:
        raise InvalidMessageError(str(error)) from None


def _set_delay(
    properties: dict[str, str],
    delay_level: int | None,
    delay_s: float | None,
    deliver_at_ms: int | None,
) -> None:
    if sum(given is not None for given in (delay_level, delay_s, deliver_at_ms)) > 1:
        raise InvalidMessageError("give one of delay_level, delay_s and deliver_at_ms")
    if delay_level is not None:
        if delay_level < 0:
            raise InvalidMessageError(f"delay level {delay_level}: levels begin at 1")
        properties[names.DELAY_LEVEL] = str(delay_level)
    elif delay_s is not None:
        if delay_s < 0:
            raise InvalidMessageError(f"delay of {delay_s} s: a message cannot go back in time")
        properties[names.TIMER_DELAY_MS] = str(round(delay_s * 1000))
    else:
        properties[names.TIMER_DELIVER_MS] = str(deliver_at_ms)
