"""Headers of looking a message up by key or by place."""

import msgspec

from downrange.protocol.headers.fields import Header
from downrange.protocol.integers import Int32, Int64


class QueryMessageRequest(Header, frozen=True, kw_only=True):
    """QUERY_MESSAGE: messages with this key, or with this unique id when `unique_key` is set."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    index_type: str | None = None
    last_key: str | None = None
    # Java adds this beside its header class, so it is a field of its own kind there.
    unique_key: bool | None = msgspec.field(default=None, name="_UNIQUE_KEY_QUERY")


class QueryMessageResponse(Header, frozen=True, kw_only=True):
    """How far the index has come."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class ViewMessageRequest(Header, frozen=True, kw_only=True):
    """VIEW_MESSAGE_BY_ID: the message at this place in the commit log."""

    topic: str | None = None
    offset: Int64
