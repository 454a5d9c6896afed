"""Headers of what a broker asks of its clients."""

import msgspec

from downrange.protocol.headers.fields import Header
from downrange.protocol.integers import Int32, Int64


class CheckTransactionStateRequest(Header, frozen=True, kw_only=True):
    """CHECK_TRANSACTION_STATE: what became of this half message? Answered by END_TRANSACTION."""

    topic: str | None = None
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    broker_name: str | None = msgspec.field(default=None, name="bname")


class NotifyConsumerIdsChangedRequest(Header, frozen=True, kw_only=True):
    """NOTIFY_CONSUMER_IDS_CHANGED: the group has other members now, share out the queues anew."""

    consumer_group: str


class ResetOffsetRequest(Header, frozen=True, kw_only=True):
    """RESET_CONSUMER_CLIENT_OFFSET; also INVOKE_BROKER_TO_RESET_OFFSET, from an admin client."""

    group: str
    topic: str
    queue_id: Int32 = -1
    offset: Int64 | None = None
    timestamp: Int64
    is_force: bool


class GetConsumerStatusRequest(Header, frozen=True, kw_only=True):
    """GET_CONSUMER_STATUS_FROM_CLIENT: how far has this client come?"""

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerRunningInfoRequest(Header, frozen=True, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO: what is this client doing?"""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeDirectlyRequest(Header, frozen=True, kw_only=True):
    """CONSUME_MESSAGE_DIRECTLY: hand the message of the body to the listener, now."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


class PushReplyRequest(Header, frozen=True, kw_only=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT: a reply for a request of this client; hosts read `ip:port`."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Int64
