"""Topics looked at: what their queues hold, who consumes them."""

from typing import Protocol

from downrange.broker.consumer_table import ConsumerTable
from downrange.broker.offset_table import OffsetTable
from downrange.broker.topic_table import TopicTable
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.groups import GroupList, GroupSubscription
from downrange.protocol.bodies.json_body import encode_body
from downrange.protocol.bodies.statistics import QueueRange, TopicStats
from downrange.protocol.bodies.topics import TopicList
from downrange.protocol.command import Command, response
from downrange.protocol.headers.admin_topic import (
    GetTopicStatsRequest,
    QuerySubscriptionRequest,
    QueryTopicConsumersRequest,
    QueryTopicsByConsumerRequest,
)
from downrange.protocol.headers.fields import decode_header
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused
from downrange.store.lookup import Lookup
from downrange.store.queue_table import QueueTable


class TopicRates(Protocol):
    """What is asked about the speed of a topic."""

    def topic_put_tps(self, topic: str) -> float:
        """Messages by second that were put into a topic in the last minute."""
        ...


class TopicViewsHandler:
    """Answers from the tables and the store; changes nothing."""

    def __init__(
        self,
        topics: TopicTable,
        offsets: OffsetTable,
        consumers: ConsumerTable,
        queues: QueueTable,
        lookup: Lookup,
        rates: TopicRates,
        *,
        broker_name: str,
        broker_address: str,
    ) -> None:
        self._topics = topics
        self._offsets = offsets
        self._consumers = consumers
        self._queues = queues
        self._lookup = lookup
        self._rates = rates
        self._broker_name = broker_name
        self._broker_address = broker_address

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {
            RequestCode.GET_TOPIC_STATS_INFO: self.get_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.list_groups,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.list_topics,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.get_subscription,
        }

    def get_stats(self, request: Command, _: Connection) -> Answer:
        """What each queue holds, also one without messages: clients take none for no topic."""
        topic = decode_header(GetTopicStatsRequest, request.ext_fields).topic
        config = self._topics.get(topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        queue_nums = max(config.write_queue_nums, config.read_queue_nums)
        body = TopicStats(
            offset_table={
                MessageQueue(topic, self._broker_name, queue_id): self._range(topic, queue_id)
                for queue_id in range(queue_nums)
            },
            topic_put_tps=self._rates.topic_put_tps(topic),
        )
        return response(request, ResponseCode.SUCCESS, body=encode_body(body))

    def list_groups(self, request: Command, _: Connection) -> Answer:
        """The groups that subscribe a topic or have offsets in it."""
        topic = decode_header(QueryTopicConsumersRequest, request.ext_fields).topic
        groups = self._consumers.groups_of_topic(topic) | self._offsets.groups_of(topic)
        body = GroupList(group_list=tuple(sorted(groups)))
        return response(request, ResponseCode.SUCCESS, body=encode_body(body))

    def list_topics(self, request: Command, _: Connection) -> Answer:
        """The topics in which a group has offsets."""
        group = decode_header(QueryTopicsByConsumerRequest, request.ext_fields).group
        body = TopicList(
            topic_list=tuple(sorted(self._offsets.topics_of(group))),
            broker_addr=self._broker_address,
        )
        return response(request, ResponseCode.SUCCESS, body=encode_body(body))

    def get_subscription(self, request: Command, _: Connection) -> Answer:
        """What a group wants of a topic."""
        header = decode_header(QuerySubscriptionRequest, request.ext_fields)
        body = GroupSubscription(
            group=header.group,
            topic=header.topic,
            subscription_data=self._consumers.subscription(header.group, header.topic or ""),
        )
        return response(request, ResponseCode.SUCCESS, body=encode_body(body))

    def _range(self, topic: str, queue_id: int) -> QueueRange:
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return QueueRange()
        end = queue.max_offset
        return QueueRange(
            min_offset=queue.min_offset,
            max_offset=end,
            last_update_timestamp=(
                self._lookup.store_timestamp(topic, queue_id, end - 1) if end else 0
            ),
        )
