"""Entries of a consume queue, as QUERY_CONSUME_QUEUE shows them."""

from downrange.protocol.bodies.heartbeat import Subscription
from downrange.protocol.bodies.json_body import Body
from downrange.protocol.integers import Int32, Int64


class QueueEntry(Body, frozen=True, kw_only=True):
    """One entry; `msg` says what is wrong with it, the other texts are about its extension."""

    physic_offset: Int64 = 0
    physic_size: Int32 = 0
    tags_code: Int64 = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class ConsumeQueueView(Body, frozen=True, kw_only=True):
    """Answer to QUERY_CONSUME_QUEUE; `filter_data` is JSON text or the reason why there is none."""

    subscription_data: Subscription | None = None
    filter_data: str | None = None
    queue_data: tuple[QueueEntry, ...] = ()
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0
