"""The topics that a broker has from its first start, as RocketMQ 5.5 has them."""

from dataclasses import dataclass

from downrange.model.names import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_HALF_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYNC_BROKER_MEMBER_PREFIX,
    TIMER_TOPIC,
    TRACE_TOPIC,
    reply_topic,
    revive_topic,
)
from downrange.model.topics import DEFAULT_QUEUE_NUMS, Permission, TopicConfig

BENCHMARK_QUEUE_NUMS = 1024
SCHEDULE_QUEUE_NUMS = 18  # one queue a delay level

_INHERITED = Permission.INHERIT.value
_ALL = (Permission.INHERIT | Permission.READ_WRITE).value


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicSettings:
    """What the topics of a broker depend on; the comment is the name in broker.conf."""

    cluster_name: str  # brokerClusterName
    broker_name: str  # brokerName
    auto_create_enabled: bool = True  # autoCreateTopicEnable
    default_queue_nums: int = 8  # defaultTopicQueueNums
    cluster_topic_enabled: bool = True  # clusterTopicEnable
    broker_topic_enabled: bool = True  # brokerTopicEnable
    trace_topic_enabled: bool = False  # traceTopicEnable
    trace_topic: str = TRACE_TOPIC  # msgTraceTopicName
    revive_queue_nums: int = 8  # reviveQueueNum
    timer_wheel_enabled: bool = True  # timerWheelEnable
    mixed_message_type_enabled: bool = False  # enableMixedMessageType


def system_topics(settings: TopicSettings) -> dict[str, TopicConfig]:
    """The topics that do not belong to users, by name."""
    cluster, broker = settings.cluster_name, settings.broker_name
    topics = [
        _topic(SELF_TEST_TOPIC, 1),
        _topic(BENCHMARK_TOPIC, BENCHMARK_QUEUE_NUMS),
        # Admin clients find the brokers of a cluster by the route of the topic of its name.
        _topic(cluster, DEFAULT_QUEUE_NUMS, _ALL if settings.cluster_topic_enabled else _INHERITED),
        _topic(broker, 1, _ALL if settings.broker_topic_enabled else _INHERITED),
        _topic(OFFSET_MOVED_TOPIC, 1),
        _topic(SCHEDULE_TOPIC, SCHEDULE_QUEUE_NUMS),
        _topic(reply_topic(cluster), 1),
        _topic(revive_topic(cluster), settings.revive_queue_nums),
        _topic(SYNC_BROKER_MEMBER_PREFIX + broker, 1, _INHERITED),
        *(
            _topic(name, 1)
            for name in (HALF_TOPIC, OP_HALF_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_HALF_TOPIC)
        ),
    ]
    if settings.auto_create_enabled:
        topics.append(_topic(AUTO_CREATE_TOPIC, settings.default_queue_nums, _ALL))
    if settings.trace_topic_enabled:
        topics.append(_topic(settings.trace_topic, 1))
    if settings.timer_wheel_enabled:
        topics.append(_topic(TIMER_TOPIC, 1))
    return {topic.topic_name: topic for topic in topics}


def _topic(name: str, queue_nums: int, perm: int = Permission.READ_WRITE.value) -> TopicConfig:
    return TopicConfig(
        topic_name=name, read_queue_nums=queue_nums, write_queue_nums=queue_nums, perm=perm
    )
