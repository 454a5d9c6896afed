"""Headers of creating topics and of finding their brokers."""

from downrange.protocol.headers.fields import Header
from downrange.protocol.integers import Int32


class CreateTopicRequest(Header, frozen=True, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC; `attributes` reads `+key=value,-key`."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    order: bool
    attributes: str | None = None
    force: bool = False


class GetRouteRequest(Header, frozen=True, kw_only=True):
    """GET_ROUTEINFO_BY_TOPIC: which brokers hold the topic?"""

    topic: str
    accept_standard_json_only: bool | None = None
