"""Headers of pulling messages from a queue."""

from typing import Final

import msgspec

from downrange.protocol.headers.fields import Header
from downrange.protocol.integers import Int32, Int64

BULK_FIELD: Final = "downrangeBulk"
"""Beside the fields of a pull, and ours: "true" asks for an answer as large as the broker gives at
all. Apache's broker does not know it and answers within its usual limits."""


class PullRequest(Header, frozen=True, kw_only=True):
    """PULL_MESSAGE and LITE_PULL_MESSAGE."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    subscription: str | None = None
    sub_version: Int64
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    # Java's own spelling, which is what travels.
    proxy_forward_client_id: str | None = msgspec.field(default=None, name="proxyFrowardClientId")
    lite_topic: str | None = None
    broker_name: str | None = msgspec.field(default=None, name="bname")


class PullResponse(Header, frozen=True, kw_only=True):
    """Where to go on, and the bounds of the queue."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None
