"""A consumer that sends a message back itself: to its retry topic, or to its dead letters."""

from typing import Protocol

from downrange.model.names import dlq_topic, group_of_retry_topic
from downrange.model.topics import SubscriptionGroupConfig, TopicConfig
from downrange.protocol.headers.send import SendRequest
from downrange.protocol.properties import replace_property
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.versions import RECONSUME_LIMIT_SINCE
from downrange.remoting.errors import Refused

_HELP = "see https://rocketmq.apache.org/docs/bestPractice/06FAQ for more"
_DLQ_QUEUE_NUMS = 1


class Topics(Protocol):
    """What is asked of the topic table."""

    def create_for_send_back(
        self, topic: str, queue_nums: int, sys_flag: int
    ) -> TopicConfig | None:
        """Create a retry or dead-letter topic."""
        ...


class Groups(Protocol):
    """What is asked of the group table."""

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's configuration."""
        ...


class Locks(Protocol):
    """What is asked of the queue locks."""

    def is_orderly(self, group: str) -> bool:
        """Whether a client of the group holds a queue."""
        ...


class RetrySends:
    """Decides where such a message goes."""

    def __init__(self, topics: Topics, groups: Groups, locks: Locks) -> None:
        self._topics = topics
        self._groups = groups
        self._locks = locks

    def target(
        self, version: int, header: SendRequest, queue_id: int, text: bytes
    ) -> tuple[str, int, bytes]:
        """Topic, queue and property text for a message to a retry topic.

        The dead-letter topic is created if the message was redelivered too often. `version` is the
        client's.
        """
        topic = header.topic
        group = group_of_retry_topic(topic)
        config = self._groups.find(group)
        if config is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group}; {_HELP}",
            )
        times_max = config.retry_max_times
        if version >= RECONSUME_LIMIT_SINCE and header.max_reconsume_times is not None:
            times_max = header.max_reconsume_times
        if (header.reconsume_times or 0) <= times_max and not self._locks.is_orderly(group):
            return topic, queue_id, text
        topic = dlq_topic(group)
        if self._topics.create_for_send_back(topic, _DLQ_QUEUE_NUMS, 0) is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] not exist")
        return topic, 0, replace_property(text, b"DELAY", b"0")
