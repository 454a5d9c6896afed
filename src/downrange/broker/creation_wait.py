"""Holds back messages whose topic or group is not on disk yet: a crash would make them unreadable.

Messages that wait are put in the order in which they came, and before those that come later.
"""

from collections import Counter
from typing import Protocol

from downrange.broker.table_saver import Durable
from downrange.model.names import group_of_retry_topic, is_retry_topic
from downrange.model.topics import TopicConfig
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.errors import Refused


class Topics(Protocol):
    """What is asked of the topic table."""

    def get(self, topic: str) -> TopicConfig | None:
        """The topic's configuration."""
        ...

    def is_durable(self, topic: str) -> bool:
        """Whether the topic is on disk as it is here."""
        ...

    def takes(self, topic: str, queue_id: int) -> bool:
        """Whether a message of this queue would find its topic after a crash."""
        ...


class Groups(Protocol):
    """What is asked of the group table."""

    def is_durable(self, group: str) -> bool:
        """Whether the creation of the group is on disk."""
        ...


class CreationWait:
    """Owned by the event loop of the broker; `durable` covers topics and groups."""

    def __init__(self, topics: Topics, groups: Groups, durable: Durable) -> None:
        self._topics = topics
        self._groups = groups
        self._durable = durable
        self._waiting: Counter[str] = Counter()  # messages per topic

    def is_over(self, topic: str) -> bool:
        """Whether no message of this topic has to wait or is waiting."""
        return self._topics.is_durable(topic) and topic not in self._waiting

    def can_put(self, topic: str, queue_id: int, *, has_waited: bool = False) -> bool:
        """Whether a message may be put now; if not, `wait` first.

        One that has waited goes before those that still wait, and is `Refused` if it cannot go.
        """
        is_taken = self._is_taken(topic, queue_id)
        if not has_waited:
            return is_taken and topic not in self._waiting
        if not is_taken:
            raise _overtaken(topic)
        return True

    async def wait(self, topic: str) -> None:
        """Return when all topics and groups are on disk; `Refused` says why they are not.

        Also refused if the topic was deleted meanwhile: the message must not create it again.
        """
        self._waiting[topic] += 1
        try:
            await self._durable()
        finally:
            self._waiting[topic] -= 1
            if not self._waiting[topic]:
                del self._waiting[topic]
        if self._topics.get(topic) is None:
            raise _overtaken(topic)

    def _is_taken(self, topic: str, queue_id: int) -> bool:
        if not self._topics.takes(topic, queue_id):
            return False
        return not is_retry_topic(topic) or self._groups.is_durable(group_of_retry_topic(topic))


def _overtaken(topic: str) -> Refused:
    return Refused(
        ResponseCode.SYSTEM_ERROR,
        f"topic {topic} was deleted or changed while this message waited for its creation; "
        "send again",
    )
