"""JSON bodies of the administration: the real RocketMQ's, read and written again."""

import pytest
from golden.test_bodies import bodies, check
from msgspec import Struct

from downrange.model.topics import SubscriptionGroupConfig, TopicConfig
from downrange.protocol.bodies.connections import ConsumerConnections
from downrange.protocol.bodies.consume_queue import ConsumeQueueView
from downrange.protocol.bodies.groups import GroupList, GroupTable
from downrange.protocol.bodies.json_body import decode_body, encode_body
from downrange.protocol.bodies.queues import ResetOffset
from downrange.protocol.bodies.registration import TopicTable
from downrange.protocol.bodies.statistics import ConsumeStats, ConsumeTimeSpans, TopicStats
from downrange.protocol.bodies.topics import TopicList
from downrange.protocol.request_codes import RequestCode as Code

RESPONSES: dict[Code, type[Struct]] = {
    Code.GET_ALL_TOPIC_CONFIG: TopicTable,
    Code.GET_TOPIC_CONFIG: TopicConfig,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: GroupTable,
    Code.GET_TOPIC_STATS_INFO: TopicStats,
    Code.GET_CONSUME_STATS: ConsumeStats,
    Code.GET_CONSUMER_CONNECTION_LIST: ConsumerConnections,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: GroupList,
    Code.QUERY_TOPICS_BY_CONSUMER: TopicList,
    Code.QUERY_CONSUME_TIME_SPAN: ConsumeTimeSpans,
    Code.QUERY_CONSUME_QUEUE: ConsumeQueueView,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: ResetOffset,
}


@pytest.mark.parametrize("code", RESPONSES, ids=lambda code: code.name)
def test_a_response_body_written_again_has_the_same_bytes(code: Code) -> None:
    kind = RESPONSES[code]

    def rewrite(body: bytes) -> bytes:
        return encode_body(decode_body(kind, body))

    check(bodies(code, of_responses=True), rewrite)


def test_a_group_that_is_to_be_created_written_again_has_the_same_bytes() -> None:
    check(
        bodies(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, of_responses=False),
        lambda body: encode_body(decode_body(SubscriptionGroupConfig, body)),
    )
