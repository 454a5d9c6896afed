"""Topics, consumer groups and queues as a broker keeps them.

Tables on disk and bodies of requests hold these same values, so the field names are those of
RocketMQ's JSON in Python spelling (`read_queue_nums` is `readQueueNums`), and so are the defaults:
a field missing in a file or a request has the value given here.
"""

from enum import IntFlag, StrEnum
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct, field

DEFAULT_QUEUE_NUMS = 16
QUEUE_NUMS_MAX = 10_000  # tools ask about all queues of a topic at once; more would hold up all
DEFAULT_RETRY_MAX_TIMES = 16
MASTER_ID = 0
# As wide as Java's fields, so that what was read can be written again; protocol stands above.
_Int32: TypeAlias = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
_Int64: TypeAlias = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
# The waiting times of the delay levels, which RocketMQ repeats here.
_RETRY_SECONDS = (1, 5, 10, 30, *range(60, 660, 60), 1200, 1800, 3600, 7200)


class Permission(IntFlag):
    """What may be done with a topic, a queue or a broker."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8
    READ_WRITE = READ | WRITE

    @property
    def text(self) -> str:
        """The form "RW-" of RocketMQ's tools and messages."""
        return (
            ("R" if self & Permission.READ else "-")
            + ("W" if self & Permission.WRITE else "-")
            + ("X" if self & Permission.INHERIT else "-")
        )


class TopicFilterType(StrEnum):
    """Whether a message of a topic has one tag or several."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class RetryPolicyType(StrEnum):
    """How the waiting time before the next delivery grows."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class DataVersion(Struct, frozen=True, kw_only=True, rename="camel"):
    """How new a table is; two brokers compare it to see who has to copy from whom."""

    counter: _Int64 = 0
    state_version: _Int64 = 0
    timestamp: _Int64 = 0

    def next(self, now_ms: int, state_version: int = 0) -> "DataVersion":
        """The version after one more change."""
        return DataVersion(counter=self.counter + 1, state_version=state_version, timestamp=now_ms)


class TopicConfig(Struct, frozen=True, kw_only=True, rename="camel"):
    """How a broker keeps a topic."""

    topic_name: str = ""
    read_queue_nums: _Int32 = DEFAULT_QUEUE_NUMS
    write_queue_nums: _Int32 = DEFAULT_QUEUE_NUMS
    perm: _Int32 = Permission.READ_WRITE.value
    topic_filter_type: str = TopicFilterType.SINGLE_TAG.value
    topic_sys_flag: _Int32 = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)


class ExponentialRetryPolicy(Struct, frozen=True, kw_only=True, rename="camel"):
    """Waiting times that are multiplied from one delivery to the next."""

    initial: int = 5_000
    max: int = 7_200_000
    multiplier: int = 2


class CustomizedRetryPolicy(Struct, frozen=True, kw_only=True, rename="camel"):
    """Waiting times one by one, in milliseconds."""

    next: tuple[int, ...] = tuple(1000 * seconds for seconds in _RETRY_SECONDS)


class GroupRetryPolicy(Struct, frozen=True, kw_only=True, rename="camel"):
    """When a pop consumer sees a message again; without a policy, by RocketMQ's own table."""

    type: RetryPolicyType = RetryPolicyType.CUSTOMIZED
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SimpleSubscription(Struct, frozen=True, kw_only=True, rename="camel"):
    """A topic that a group is known to subscribe."""

    topic: str = ""
    expression: str = ""
    expression_type: str = "TAG"
    version: int = 0


class SubscriptionGroupConfig(Struct, frozen=True, kw_only=True, rename="camel"):
    """How a broker serves a consumer group."""

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    consume_timeout_minute: int = 15
    retry_queue_nums: int = 1
    retry_max_times: int = DEFAULT_RETRY_MAX_TIMES
    group_retry_policy: GroupRetryPolicy = field(default_factory=GroupRetryPolicy)
    broker_id: int = MASTER_ID
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    subscription_data_set: list[SimpleSubscription] | None = None
    attributes: dict[str, str] = field(default_factory=dict)


class MessageQueue(Struct, frozen=True, order=True, rename="camel"):
    """One queue of a topic; ordered by topic, broker and number, as rebalancing needs it.

    Some JSON bodies have it as the key of a map.
    """

    topic: str
    broker_name: str
    queue_id: _Int32
