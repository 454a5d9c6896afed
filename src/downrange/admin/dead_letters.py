"""Messages that a group has given up: where they are, and how they come back."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from downrange.admin.errors import NothingThereError
from downrange.admin.topics import Topics
from downrange.client.message import Message, ReceivedMessage
from downrange.model.names import dlq_topic, group_of_retry_topic, is_dlq_topic, retry_topic
from downrange.protocol import property_names as names

# What told of the first life of a message, and must not be said of its second.
_OF_THE_PAST: Final = frozenset(
    {
        names.CLUSTER,
        names.CONSUME_START_TIME,
        names.DELAY_LEVEL,
        names.DLQ_ORIGIN_MESSAGE_ID,
        names.DLQ_ORIGIN_TOPIC,
        names.MAX_OFFSET,
        names.MAX_RECONSUME_TIMES,
        names.MIN_OFFSET,
        names.REAL_QUEUE_ID,
        names.REAL_TOPIC,
        names.RECONSUME_TIME,
        names.RETRY_TOPIC,
        names.TRANSACTION_PREPARED,
        names.UNIQUE_KEY,
    }
)
Send = Callable[[Message], Awaitable[object]]


class ResendTo(StrEnum):
    """Who gets a dead letter again."""

    GROUP = "group"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The dead letters of one group."""

    group: str
    topic: str
    count: int
    newest_ms: int


class DeadLetterBox:
    """Lists dead-letter topics and makes letters into messages again."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    async def groups(self) -> list[DeadLetters]:
        """All groups that have dead letters."""
        found = [
            await self.of(group_of_retry_topic(topic))
            for topic in await self._topics.names()
            if is_dlq_topic(topic)
        ]
        return [letters for letters in found if letters.count]

    async def of(self, group: str) -> DeadLetters:
        """The dead letters of a group; `NothingThereError` if it has never had any."""
        topic = dlq_topic(group)
        try:
            ranges = (await self._topics.stats(topic)).values()
        except NothingThereError as error:
            raise NothingThereError(
                f"group {group!r} has no dead letters: there is no topic {topic}"
            ) from error
        return DeadLetters(
            group,
            topic,
            sum(one.max_offset - one.min_offset for one in ranges),
            max((one.last_update_timestamp for one in ranges), default=0),
        )


def origin_topic(letter: ReceivedMessage) -> str | None:
    """The topic that a dead letter was sent to first."""
    properties = letter.properties
    return properties.get(names.RETRY_TOPIC) or properties.get(names.DLQ_ORIGIN_TOPIC)


def resent(letter: ReceivedMessage, group: str, to: ResendTo) -> Message:
    """A dead letter as a new message: for its group alone, or for all groups of its topic.

    The first goes to the group's retry topic, counted as never tried, and says where it came from,
    as every message there does. `NothingThereError` if the letter does not tell.
    """
    topic = origin_topic(letter)
    if topic is None:
        raise NothingThereError(
            f"message {letter.message_id} does not say which topic it came from, so it cannot go "
            f"back"
        )
    properties = {
        name: value for name, value in letter.properties.items() if name not in _OF_THE_PAST
    }
    properties.setdefault(names.ORIGIN_MESSAGE_ID, letter.message_id)
    if to is ResendTo.TOPIC:
        return Message.of_properties(topic, letter.body, properties, letter.flag)
    properties[names.RETRY_TOPIC] = topic
    return Message.of_properties(retry_topic(group), letter.body, properties, letter.flag)
