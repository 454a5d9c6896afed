"""Headers about offsets: those a group has reached and those a queue holds."""

from downrange.protocol.headers.fields import Header
from downrange.protocol.integers import Int32, Int64


class QueryConsumerOffsetRequest(Header, frozen=True, kw_only=True):
    """QUERY_CONSUMER_OFFSET: how far has the group come?"""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


class UpdateConsumerOffsetRequest(Header, frozen=True, kw_only=True):
    """UPDATE_CONSUMER_OFFSET: the group has come this far."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


class SearchOffsetRequest(Header, frozen=True, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP; `boundary_type` is lower (also when missing) or upper."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None
    lite_topic: str | None = None


class GetMaxOffsetRequest(Header, frozen=True, kw_only=True):
    """GET_MAX_OFFSET: the offset the next message will get."""

    topic: str
    queue_id: Int32
    committed: bool = True


class GetMinOffsetRequest(Header, frozen=True, kw_only=True):
    """GET_MIN_OFFSET: the first offset that is still kept."""

    topic: str
    queue_id: Int32


class GetEarliestStoreTimeRequest(Header, frozen=True, kw_only=True):
    """GET_EARLIEST_MSG_STORETIME: when was the first message that is still kept stored?"""

    topic: str
    queue_id: Int32


class OffsetResponse(Header, frozen=True, kw_only=True):
    """One offset; answers the requests for offsets above."""

    offset: Int64


class TimestampResponse(Header, frozen=True, kw_only=True):
    """One time in milliseconds since 1970."""

    timestamp: Int64
