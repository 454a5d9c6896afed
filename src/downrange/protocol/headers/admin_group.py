"""Headers of administering consumer groups: their settings, their offsets, their clients."""

from downrange.protocol.headers.fields import Header
from downrange.protocol.integers import Int32


class GetAllGroupConfigRequest(Header, frozen=True, kw_only=True):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG: all groups at once, or since 5.3.4 a page of them."""

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


class GetAllGroupConfigResponse(Header, frozen=True, kw_only=True):
    """How many groups there are in all pages."""

    total_group_num: Int32 | None = None


class GetGroupConfigRequest(Header, frozen=True, kw_only=True):
    """GET_SUBSCRIPTIONGROUP_CONFIG: how is this group configured?"""

    group: str


class DeleteGroupRequest(Header, frozen=True, kw_only=True):
    """DELETE_SUBSCRIPTIONGROUP; with `clean_offset` its offsets go too."""

    group_name: str
    clean_offset: bool = False


class GroupForbiddenRequest(Header, frozen=True, kw_only=True):
    """UPDATE_AND_GET_GROUP_FORBIDDEN: may the group read the topic? `readable` changes it."""

    group: str
    topic: str
    readable: bool | None = None


class GetConsumerConnectionsRequest(Header, frozen=True, kw_only=True):
    """GET_CONSUMER_CONNECTION_LIST: which clients does this consumer group have?"""

    consumer_group: str


class GetProducerConnectionsRequest(Header, frozen=True, kw_only=True):
    """GET_PRODUCER_CONNECTION_LIST: which clients does this producer group have?"""

    producer_group: str


class GetConsumeStatsRequest(Header, frozen=True, kw_only=True):
    """GET_CONSUME_STATS: how far is the group? In one topic, several (`;` between), or all."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetBrokerConsumeStatsRequest(Header, frozen=True, kw_only=True):
    """GET_BROKER_CONSUME_STATS: how far is every group? `is_order` asks for ordered topics only."""

    is_order: bool


class QueryConsumeTimeSpanRequest(Header, frozen=True, kw_only=True):
    """QUERY_CONSUME_TIME_SPAN: from when are the messages that the group consumes?"""

    topic: str
    group: str


class QueryCorrectionOffsetRequest(Header, frozen=True, kw_only=True):
    """QUERY_CORRECTION_OFFSET: how far is the slowest group, those in `filter_groups` left out?"""

    filter_groups: str | None = None
    compare_group: str
    topic: str


class CloneGroupOffsetRequest(Header, frozen=True, kw_only=True):
    """CLONE_GROUP_OFFSET; without `topic` the offsets in all topics."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False
