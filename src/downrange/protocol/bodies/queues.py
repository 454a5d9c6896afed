"""Locks on message queues, and offsets by queue."""

import msgspec

from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.json_body import Body
from downrange.protocol.integers import Int32, Int64


class LockRequest(Body, frozen=True, kw_only=True):
    """Body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    consumer_group: str
    client_id: str
    only_this_broker: bool = False
    mq_set: tuple[MessageQueue, ...] = ()


class LockResponse(Body, frozen=True, kw_only=True):
    """Which of the queues the client now holds."""

    locked: tuple[MessageQueue, ...] = msgspec.field(default=(), name="lockOKMQSet")


class ResetOffset(Body, frozen=True, kw_only=True):
    """Body of RESET_CONSUMER_CLIENT_OFFSET, and of the broker's answer to an admin client."""

    offset_table: dict[MessageQueue, Int64] = msgspec.field(default_factory=dict)


class QueueOffset(Body, frozen=True, kw_only=True):
    """A queue with its offset, where a map keyed by queues cannot be read."""

    topic: str
    broker_name: str
    queue_id: Int32
    offset: Int64


class ResetOffsetForCpp(Body, frozen=True, kw_only=True):
    """The same as `ResetOffset` for clients in C++."""

    offset_table: tuple[QueueOffset, ...] = ()


class ConsumerStatus(Body, frozen=True, kw_only=True):
    """How far a client has come, by queue; from the broker also by client id."""

    message_queue_table: dict[MessageQueue, Int64] = msgspec.field(default_factory=dict)
    consumer_table: dict[str, dict[MessageQueue, Int64]] = msgspec.field(default_factory=dict)
