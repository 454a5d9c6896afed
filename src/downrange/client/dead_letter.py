"""Makes a dead letter of a message that cannot be decoded, and publishes it.

It goes to the group's retry topic as a message that was tried too often. Every broker moves such a
message to the dead-letter topic, which it creates if need be; sending to that topic directly works
only where topics are created automatically.
"""

from typing import Final

from downrange.client.invalid_message import InvalidMessage
from downrange.client.message import Message
from downrange.client.retry_sender import RetrySending
from downrange.client.session import Session
from downrange.client.settings import ProducerSettings
from downrange.model.names import is_retry_topic, retry_topic
from downrange.protocol import property_names as names
from downrange.protocol.properties import PROPERTIES_BYTES_MAX

REASON: Final = "INVALID_MESSAGE_REASON"
ORIGIN_BROKER: Final = "INVALID_MESSAGE_BROKER"
ORIGIN_TOPIC: Final = "INVALID_MESSAGE_TOPIC"
ORIGIN_QUEUE_ID: Final = "INVALID_MESSAGE_QUEUE_ID"
ORIGIN_QUEUE_OFFSET: Final = "INVALID_MESSAGE_QUEUE_OFFSET"
REASON_LENGTH_MAX: Final = 500
# A broker and the sender add some of their own.
_PROPERTIES_BYTES_MAX: Final = PROPERTIES_BYTES_MAX - 2_048
_BODY_BYTES_MAX: Final = (1 << 31) - 1
# They would delay the letter, make it part of a transaction, or describe bytes that it is not.
_DROPPED: Final = frozenset(
    {
        names.CLUSTER,
        names.CONSUME_START_TIME,
        names.CRC32,
        names.DELAY_LEVEL,
        names.FIRST_POP_TIME,
        names.INNER_BASE_OFFSET,
        names.INNER_COUNT,
        names.INNER_MULTI_DISPATCH,
        names.INNER_MULTI_QUEUE_OFFSET,
        names.MAX_OFFSET,
        names.MAX_RECONSUME_TIMES,
        names.MESSAGE_TYPE,
        names.MIN_OFFSET,
        names.POP_CHECK_POINT,
        names.POP_CHECK_POINT_OFFSET,
        names.RECONSUME_TIME,
        names.TIMER_DELAY_LEVEL,
        names.TIMER_DELAY_MS,
        names.TIMER_DELAY_SECONDS,
        names.TIMER_DELIVER_MS,
        names.TRANSACTION_PREPARED,
    }
)


class DeadLetterSending(RetrySending):
    """The producer inside a consumer that publishes bodies as they are, whatever their size."""

    def __init__(self, session: Session) -> None:
        super().__init__(
            session,
            ProducerSettings(
                message_bytes_max=_BODY_BYTES_MAX, compress_over_bytes=_BODY_BYTES_MAX
            ),
        )


def dead_letter(invalid: InvalidMessage, group: str) -> Message:
    """The letter: the raw body, the properties that can be kept, the reason and the origin."""
    read = invalid.properties
    topic = invalid.queue.topic
    if is_retry_topic(topic):
        topic = read.get(names.RETRY_TOPIC, topic)
    own = {
        names.RETRY_TOPIC: topic,
        names.DLQ_ORIGIN_TOPIC: topic,
        REASON: _plain(invalid.reason)[:REASON_LENGTH_MAX],
        ORIGIN_TOPIC: invalid.queue.topic,
        ORIGIN_BROKER: invalid.queue.broker_name,
        ORIGIN_QUEUE_ID: str(invalid.queue.queue_id),
        ORIGIN_QUEUE_OFFSET: str(invalid.queue_offset),
        # The broker moves what was tried more often than allowed to the dead letters.
        names.RECONSUME_TIME: "1",
        names.MAX_RECONSUME_TIMES: "0",
    }
    message_id = read.get(names.UNIQUE_KEY)
    if message_id is not None:
        own[names.DLQ_ORIGIN_MESSAGE_ID] = message_id
    left = _PROPERTIES_BYTES_MAX - sum(_size(name, value) for name, value in own.items())
    kept: dict[str, str] = {}
    for name, value in read.items():
        if name in _DROPPED or name in own or _plain(value) != value:
            continue
        left -= _size(name, value)
        if left < 0:
            break
        kept[name] = value
    return Message.of_properties(retry_topic(group), invalid.body, {**kept, **own}, invalid.flag)


def _plain(text: str) -> str:
    return text.replace("\x01", " ").replace("\x02", " ")


def _size(name: str, value: str) -> int:
    return len(name.encode()) + len(value.encode()) + 2
