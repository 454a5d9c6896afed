"""Headers of popping: take messages for a while, then acknowledge or hold them longer."""

from downrange.protocol.headers.fields import Header
from downrange.protocol.integers import Int32, Int64


class PopRequest(Header, frozen=True, kw_only=True):
    """POP_MESSAGE; a `queue_id` of -1 means all queues, `init_mode` is 0 for min and 1 for max."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class PopResponse(Header, frozen=True, kw_only=True):
    """What is needed to build the receipt handles; answers pop and peek."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckRequest(Header, frozen=True, kw_only=True):
    """ACK_MESSAGE; `extra_info` is the receipt handle."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    lite_topic: str | None = None


class ChangeInvisibleTimeRequest(Header, frozen=True, kw_only=True):
    """CHANGE_MESSAGE_INVISIBLETIME: show the message to others later or sooner."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64
    lite_topic: str | None = None
    suspend: bool = False


class ChangeInvisibleTimeResponse(Header, frozen=True, kw_only=True):
    """What is needed to build the new receipt handle."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


class PeekRequest(Header, frozen=True, kw_only=True):
    """PEEK_MESSAGE: look without taking."""

    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


class NotificationRequest(Header, frozen=True, kw_only=True):
    """NOTIFICATION: answer as soon as there is something to pop."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64
    order: bool = False
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class NotificationResponse(Header, frozen=True, kw_only=True):
    """Whether there is something to pop."""

    has_msg: bool
    polling_full: bool = False


class PollingInfoRequest(Header, frozen=True, kw_only=True):
    """POLLING_INFO: how many requests wait for messages here?"""

    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoResponse(Header, frozen=True, kw_only=True):
    """How many requests wait."""

    polling_num: Int32
