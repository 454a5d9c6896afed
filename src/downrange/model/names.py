"""Names of topics and groups: what is allowed, and what RocketMQ makes of them."""

import re

TOPIC_LENGTH_MAX = 127
RETRY_TOPIC_LENGTH_MAX = 255
GROUP_LENGTH_MAX = 120  # so that %RETRY%group_topic of a pop consumer is still a topic

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"
REPLY_SUFFIX = "REPLY_TOPIC"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
TRANSACTION_CHECK_MAX_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
REVIVE_LOG_PREFIX = "rmq_sys_REVIVE_LOG_"
SYNC_BROKER_MEMBER_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"

SYSTEM_TOPICS = frozenset(
    (
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_HALF_TOPIC,
        TRANSACTION_CHECK_MAX_TOPIC,
        TRACE_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        CHECKPOINT_TOPIC,
    )
)
# System topics that a client may not send to; the broker alone fills them.
CLOSED_TOPICS = SYSTEM_TOPICS - {AUTO_CREATE_TOPIC, BENCHMARK_TOPIC, TRACE_TOPIC, CHECKPOINT_TOPIC}

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
# Groups that a broker knows without being told.
SYSTEM_GROUPS = frozenset(
    (
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        TRANSACTION_GROUP,
    )
)

_ALLOWED = re.compile(r"[%|a-zA-Z0-9_-]+")
_ALLOWED_TEXT = "letters, digits, %, |, _ and -"


class InvalidNameError(ValueError):
    """A name breaks a rule; the text says which one."""


def check_topic(topic: str) -> str:
    """The topic itself if it may be one, else `InvalidNameError`."""
    _check_characters("topic", topic)
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        _check_length("retry or dead-letter topic", topic, RETRY_TOPIC_LENGTH_MAX)
    else:
        _check_length("topic", topic, TOPIC_LENGTH_MAX)
    return topic


def check_group(group: str) -> str:
    """The group itself if it may be one, else `InvalidNameError`."""
    _check_characters("group", group)
    _check_length("group", group, GROUP_LENGTH_MAX)
    return group


def is_system_topic(topic: str) -> bool:
    """Whether a topic belongs to RocketMQ in every cluster.

    A broker also has topics named after its cluster and itself, which only the broker knows.
    """
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether a consumer group belongs to RocketMQ."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def is_retry_topic(topic: str) -> bool:
    """Whether messages wait here to be consumed again."""
    return topic.startswith(RETRY_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    """Whether messages end here that were consumed too often in vain."""
    return topic.startswith(DLQ_PREFIX)


def is_lmq(queue: str) -> bool:
    """Whether a name is that of a light message queue."""
    return queue.startswith(LMQ_PREFIX)


def retry_topic(group: str) -> str:
    """Where a group's messages wait to be consumed again."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Where a group's messages end that were consumed too often in vain."""
    return DLQ_PREFIX + group


def pop_retry_topic(topic: str, group: str, *, v2: bool = False) -> str:
    """The retry topic of a pop consumer: one for each topic; "+" cannot occur in names, "_" can."""
    return f"{RETRY_PREFIX}{group}{'+' if v2 else '_'}{topic}"


def reply_topic(cluster: str) -> str:
    """Where the replies of request-reply calls are stored in a cluster."""
    return f"{cluster}_{REPLY_SUFFIX}"


def revive_topic(cluster: str) -> str:
    """Where a cluster's pop check points and acknowledgements are stored."""
    return REVIVE_LOG_PREFIX + cluster


def group_of_retry_topic(topic: str) -> str:
    """The group that a %RETRY% or %DLQ% topic belongs to, or that and more for pop topics."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    raise InvalidNameError(f"topic {topic!r} is neither a retry nor a dead-letter topic")


def _check_characters(kind: str, name: str) -> None:
    if not name.strip():
        raise InvalidNameError(f"the {kind} is blank")
    if _ALLOWED.fullmatch(name) is None:
        raise InvalidNameError(f"{kind} {name!r} has other characters than {_ALLOWED_TEXT}")


def _check_length(kind: str, name: str, length_max: int) -> None:
    if len(name) > length_max:
        raise InvalidNameError(f"{kind} {name!r} has {len(name)} characters, over {length_max}")
