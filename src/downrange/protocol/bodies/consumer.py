"""Consumers as brokers and admin clients see them: members of a group, what a client is doing."""

import msgspec

from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.heartbeat import Subscription
from downrange.protocol.bodies.json_body import Body
from downrange.protocol.integers import Int32, Int64


class ConsumerList(Body, frozen=True, kw_only=True):
    """Answer to GET_CONSUMER_LIST_BY_GROUP."""

    consumer_id_list: tuple[str, ...] = ()


class ConsumeDirectlyResult(Body, frozen=True, kw_only=True):
    """Answer to CONSUME_MESSAGE_DIRECTLY; `consume_result` is one of Java's CR_ names."""

    order: bool = False
    auto_commit: bool = True
    consume_result: str | None = None
    remark: str | None = None
    spent_time_mills: Int64 = 0


class PulledQueue(Body, frozen=True, kw_only=True):
    """One queue this client pulls; Java's ProcessQueueInfo."""

    commit_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_count: Int32 = 0
    cached_msg_size_in_mib: Int32 = msgspec.field(default=0, name="cachedMsgSizeInMiB")
    transaction_msg_min_offset: Int64 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_count: Int32 = 0
    locked: bool = False
    try_unlock_times: Int64 = 0
    last_lock_timestamp: Int64 = 0
    dropped: bool = msgspec.field(default=False, name="droped")  # Java's own spelling
    last_pull_timestamp: Int64 = 0
    last_consume_timestamp: Int64 = 0


class PoppedQueue(Body, frozen=True, kw_only=True):
    """One queue this client pops; Java's PopProcessQueueInfo."""

    wait_ack_count: Int32 = 0
    dropped: bool = msgspec.field(default=False, name="droped")
    last_pop_timestamp: Int64 = 0


class ConsumeRates(Body, frozen=True, kw_only=True):
    """How fast one topic is pulled and consumed, times in ms; Java's ConsumeStatus."""

    pull_rt: float = msgspec.field(default=0.0, name="pullRT")
    pull_tps: float = msgspec.field(default=0.0, name="pullTPS")
    consume_rt: float = msgspec.field(default=0.0, name="consumeRT")
    consume_ok_tps: float = msgspec.field(default=0.0, name="consumeOKTPS")
    consume_failed_tps: float = msgspec.field(default=0.0, name="consumeFailedTPS")
    consume_failed_msgs: Int64 = 0


class RunningInfo(Body, frozen=True, kw_only=True):
    """Answer to GET_CONSUMER_RUNNING_INFO."""

    properties: dict[str, str] = msgspec.field(default_factory=dict)
    subscription_set: tuple[Subscription, ...] = ()
    mq_table: dict[MessageQueue, PulledQueue] = msgspec.field(default_factory=dict)
    mq_pop_table: dict[MessageQueue, PoppedQueue] = msgspec.field(default_factory=dict)
    status_table: dict[str, ConsumeRates] = msgspec.field(default_factory=dict)
    user_consumer_info: dict[str, str] = msgspec.field(default_factory=dict)
    jstack: str | None = None
