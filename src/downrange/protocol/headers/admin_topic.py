"""Headers of administering topics on a broker."""

from downrange.protocol.headers.fields import Header
from downrange.protocol.integers import Int32, Int64


class GetAllTopicConfigRequest(Header, frozen=True, kw_only=True):
    """GET_ALL_TOPIC_CONFIG: all topics at once, or since 5.3.4 a page of them.

    Pages are of one `data_version`, JSON text; if the table has changed the first page comes again.
    """

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


class GetAllTopicConfigResponse(Header, frozen=True, kw_only=True):
    """How many topics there are in all pages."""

    total_topic_num: Int32 | None = None


class GetTopicConfigRequest(Header, frozen=True, kw_only=True):
    """GET_TOPIC_CONFIG: how is this topic configured?"""

    topic: str


class GetTopicStatsRequest(Header, frozen=True, kw_only=True):
    """GET_TOPIC_STATS_INFO: which offsets do the queues of this topic hold?"""

    topic: str


class DeleteTopicInBrokerRequest(Header, frozen=True, kw_only=True):
    """DELETE_TOPIC_IN_BROKER."""

    topic: str


class QueryTopicConsumersRequest(Header, frozen=True, kw_only=True):
    """QUERY_TOPIC_CONSUME_BY_WHO: which groups consume this topic?"""

    topic: str


class QueryTopicsByConsumerRequest(Header, frozen=True, kw_only=True):
    """QUERY_TOPICS_BY_CONSUMER: which topics does this group consume?"""

    group: str


class QuerySubscriptionRequest(Header, frozen=True, kw_only=True):
    """QUERY_SUBSCRIPTION_BY_CONSUMER: what does this group want of the topic?"""

    group: str
    topic: str | None = None


class QueryConsumeQueueRequest(Header, frozen=True, kw_only=True):
    """QUERY_CONSUME_QUEUE: entries of a queue from `index` on."""

    topic: str = ""
    queue_id: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None
