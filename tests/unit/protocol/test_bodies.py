"""Bodies: text written by Apache RocketMQ 5.5.0 is read, and written again byte for byte."""

import msgspec
import pytest

from downrange.model.topics import DataVersion, MessageQueue, TopicConfig
from downrange.protocol.bodies.assignment import (
    AssignmentRequest,
    AssignmentResponse,
    QueueAssignment,
    RequestModeChange,
)
from downrange.protocol.bodies.batch_ack import BatchAck, BatchAckRequest
from downrange.protocol.bodies.consumer import (
    ConsumeDirectlyResult,
    ConsumeRates,
    ConsumerList,
    PoppedQueue,
    PulledQueue,
    RunningInfo,
)
from downrange.protocol.bodies.heartbeat import (
    CheckClientConfig,
    ConsumerGroup,
    Heartbeat,
    ProducerGroup,
    Subscription,
)
from downrange.protocol.bodies.json_body import Body, decode_body, encode_body
from downrange.protocol.bodies.queues import (
    ConsumerStatus,
    LockRequest,
    LockResponse,
    QueueOffset,
    ResetOffset,
    ResetOffsetForCpp,
)
from downrange.protocol.bodies.route import (
    BrokerData,
    BrokerMembers,
    BrokerMembersResponse,
    ClusterInfo,
    QueueData,
    QueueMapping,
    TopicRoute,
    encode_route,
)
from downrange.protocol.bodies.topics import KvTable, TopicList
from downrange.protocol.errors import RemoteProtocolError

QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=3)
QUEUE_TEXT = b'{"brokerName":"b","queueId":3,"topic":"T"}'
MAPPING = QueueMapping(
    topic="T", scope="__global__", total_queues=4, bname="b", epoch=1, curr_id_map={0: 1}
)
BROKER = BrokerData(
    cluster="c",
    broker_name="b",
    broker_addrs={0: "1.2.3.4:10911", 2: "x"},
    zone_name="z",
    enable_acting_master=True,
)
ROUTE = TopicRoute(
    order_topic_conf="b:4",
    broker_datas=(BROKER,),
    queue_datas=(
        QueueData(broker_name="b", read_queue_nums=4, write_queue_nums=5, perm=6, topic_sys_flag=1),
    ),
    filter_server_table={"a": ("f",)},
    topic_queue_mapping_by_broker={"b": MAPPING},
)
ROUTE_TEXT = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"1.2.3.4:10911",2:"x"},"brokerName":"b","cluster":"c",'
    b'"enableActingMaster":true,"zoneName":"z"}],"filterServerTable":{"a":["f"]},'
    b'"orderTopicConf":"b:4","queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,'
    b'"topicSysFlag":1,"writeQueueNums":5}],"topicQueueMappingByBroker":{"b":{"bname":"b",'
    b'"currIdMap":{0:1},"dirty":false,"epoch":1,"scope":"__global__","topic":"T","totalQueues":4}}}'
)
STRICT_ROUTE_TEXT = ROUTE_TEXT.replace(b"{0:", b'{"0":').replace(b",2:", b',"2":')
SUBSCRIPTION = Subscription(
    topic="T",
    sub_string="TagA",
    tags_set=("TagA",),
    code_set=(2598919,),
    sub_version=1731700000000,
)
SUBSCRIPTION_TEXT = (
    b'{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG","subString":"TagA",'
    b'"subVersion":1731700000000,"tagsSet":["TagA"],"topic":"T"}'
)
HEARTBEAT = Heartbeat(
    client_id="1.2.3.4@5#6",
    producer_data_set=(ProducerGroup(group_name="PG"),),
    consumer_data_set=(
        ConsumerGroup(
            group_name="CG",
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscription_data_set=(SUBSCRIPTION,),
        ),
    ),
)
TOPIC = TopicConfig(
    topic_name="T",
    read_queue_nums=4,
    write_queue_nums=5,
    perm=6,
    topic_sys_flag=1,
    order=True,
    attributes={"message.type": "FIFO"},
)
TOPIC_TEXT = (
    b'{"attributes":{"message.type":"FIFO"},"order":true,"perm":6,"readQueueNums":4,'
    b'"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":1,"writeQueueNums":5}'
)
ACK = BatchAck(
    consumer_group="g",
    topic="T",
    retry="0",
    start_offset=100,
    queue_id=3,
    revive_queue_id=4,
    pop_time=5,
    invisible_time=6,
    bit_set="AQIAAAAAAABA",
)

JAVA_TEXTS: list[tuple[msgspec.Struct, bytes]] = [
    (ROUTE, ROUTE_TEXT),
    (TopicRoute(), b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}'),
    (
        HEARTBEAT,
        b'{"clientID":"1.2.3.4@5#6","consumerDataSet":[{"consumeFromWhere":'
        b'"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"CG",'
        b'"messageModel":"CLUSTERING","subscriptionDataSet":[' + SUBSCRIPTION_TEXT + b"],"
        b'"unitMode":false}],"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"PG"}],'
        b'"withoutSub":false}',
    ),
    (ConsumerList(consumer_id_list=("a", "b")), b'{"consumerIdList":["a","b"]}'),
    (
        LockRequest(consumer_group="g", client_id="c", mq_set=(QUEUE,)),
        b'{"clientId":"c","consumerGroup":"g","mqSet":[' + QUEUE_TEXT + b"],"
        b'"onlyThisBroker":false}',
    ),
    (LockResponse(locked=(QUEUE,)), b'{"lockOKMQSet":[' + QUEUE_TEXT + b"]}"),
    (
        AssignmentRequest(
            topic="T",
            consumer_group="g",
            client_id="c",
            strategy_name="AVG",
            message_model="CLUSTERING",
        ),
        b'{"clientId":"c","consumerGroup":"g","messageModel":"CLUSTERING","strategyName":"AVG",'
        b'"topic":"T"}',
    ),
    (
        AssignmentResponse(
            message_queue_assignments=(
                QueueAssignment(message_queue=QUEUE, mode="POP", attachments={"k": "v"}),
            )
        ),
        b'{"messageQueueAssignments":[{"attachments":{"k":"v"},"messageQueue":' + QUEUE_TEXT
        + b',"mode":"POP"}]}',
    ),
    (
        RequestModeChange(topic="T", consumer_group="g", mode="POP", pop_share_queue_num=8),
        b'{"consumerGroup":"g","mode":"POP","popShareQueueNum":8,"topic":"T"}',
    ),
    (TOPIC, TOPIC_TEXT),
    (
        DataVersion(state_version=3, timestamp=1731700000000, counter=7),
        b'{"counter":7,"stateVersion":3,"timestamp":1731700000000}',
    ),
    (
        ClusterInfo(broker_addr_table={"b": BROKER}, cluster_addr_table={"c": ("b",)}),
        b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"1.2.3.4:10911",2:"x"},"brokerName":"b",'
        b'"cluster":"c","enableActingMaster":true,"zoneName":"z"}},'
        b'"clusterAddrTable":{"c":["b"]}}',
    ),
    (TopicList(topic_list=("T",), broker_addr="a"), b'{"brokerAddr":"a","topicList":["T"]}'),
    (KvTable(table={"k": "v"}), b'{"table":{"k":"v"}}'),
    (
        BrokerMembersResponse(
            broker_member_group=BrokerMembers(cluster="c", broker_name="b", broker_addrs={0: "a"})
        ),
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"a"},"brokerName":"b","cluster":"c"}}',
    ),
    (ResetOffset(offset_table={QUEUE: 9}), b'{"offsetTable":{' + QUEUE_TEXT + b":9}}"),
    (
        ResetOffsetForCpp(
            offset_table=(QueueOffset(topic="T", broker_name="b", queue_id=3, offset=9),)
        ),
        b'{"offsetTable":[{"brokerName":"b","offset":9,"queueId":3,"topic":"T"}]}',
    ),
    (
        ConsumerStatus(consumer_table={"cid": {QUEUE: 9}}, message_queue_table={QUEUE: 9}),
        b'{"consumerTable":{"cid":{' + QUEUE_TEXT + b':9}},"messageQueueTable":{' + QUEUE_TEXT
        + b":9}}",
    ),
    (
        BatchAckRequest(broker_name="b", acks=(ACK,)),
        b'{"acks":[{"b":"AQIAAAAAAABA","c":"g","it":6,"pt":5,"q":3,"r":"0","rq":4,"so":100,'
        b'"t":"T"}],"brokerName":"b"}',
    ),
    (
        CheckClientConfig(
            client_id="c", group="g", namespace="n", subscription_data=SUBSCRIPTION
        ),
        b'{"clientId":"c","group":"g","namespace":"n","subscriptionData":' + SUBSCRIPTION_TEXT
        + b"}",
    ),
    (
        ConsumeDirectlyResult(consume_result="CR_SUCCESS", spent_time_mills=5, remark="r"),
        b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"remark":"r",'
        b'"spentTimeMills":5}',
    ),
    (
        RunningInfo(
            properties={"k": "v"},
            subscription_set=(SUBSCRIPTION,),
            mq_table={QUEUE: PulledQueue(commit_offset=1)},
            mq_pop_table={QUEUE: PoppedQueue()},
            status_table={"T": ConsumeRates(pull_rt=1.5, consume_failed_msgs=2)},
            user_consumer_info={"u": "v"},
            jstack="j",
        ),
        b'{"jstack":"j","mqPopTable":{' + QUEUE_TEXT + b':{"droped":false,"lastPopTimestamp":0,'
        b'"waitAckCount":0}},"mqTable":{' + QUEUE_TEXT + b':{"cachedMsgCount":0,'
        b'"cachedMsgMaxOffset":0,"cachedMsgMinOffset":0,"cachedMsgSizeInMiB":0,"commitOffset":1,'
        b'"droped":false,"lastConsumeTimestamp":0,"lastLockTimestamp":0,"lastPullTimestamp":0,'
        b'"locked":false,"transactionMsgCount":0,"transactionMsgMaxOffset":0,'
        b'"transactionMsgMinOffset":0,"tryUnlockTimes":0}},"properties":{"k":"v"},'
        b'"statusTable":{"T":{"consumeFailedMsgs":2,"consumeFailedTPS":0.0,"consumeOKTPS":0.0,'
        b'"consumeRT":0.0,"pullRT":1.5,"pullTPS":0.0}},"subscriptionSet":[' + SUBSCRIPTION_TEXT
        + b'],"userConsumerInfo":{"u":"v"}}',
    ),
]  # fmt: skip


@pytest.mark.parametrize(("body", "text"), JAVA_TEXTS, ids=lambda part: type(part).__name__)
def test_java_text_reads_as_the_body_and_the_body_writes_as_java_text(
    body: msgspec.Struct, text: bytes
) -> None:
    assert decode_body(type(body), text) == body
    assert encode_body(body) == text


@pytest.mark.parametrize(
    ("peer_version", "standard_only", "text"),
    [
        (399, None, ROUTE_TEXT),
        (399, False, ROUTE_TEXT),
        (399, True, STRICT_ROUTE_TEXT),
        (401, None, STRICT_ROUTE_TEXT),
        (513, False, STRICT_ROUTE_TEXT),
    ],
)
def test_a_route_is_strict_for_peers_that_can_take_it(
    peer_version: int, standard_only: bool | None, text: bytes
) -> None:
    data = encode_route(ROUTE, peer_version=peer_version, accept_standard_json_only=standard_only)
    assert data == text
    assert decode_body(TopicRoute, data) == ROUTE


def test_members_may_be_missing_null_unknown_or_numbers_as_text() -> None:
    text = b'{"brokerName":"b","perm":"6","readQueueNums":null,"new":{"x":[1]}}'
    assert decode_body(QueueData, text) == QueueData(broker_name="b", perm=6)
    text = b'{"queueDatas":null,"brokerDatas":[null,{"brokerName":"b","brokerAddrs":null}]}'
    assert decode_body(TopicRoute, text) == TopicRoute(broker_datas=(BrokerData(broker_name="b"),))


@pytest.mark.parametrize(
    ("body_type", "text", "words"),
    [
        (QueueData, b"", "QueueData: the body is missing"),
        (QueueData, b"[]", "QueueData: Expected `object`, got `array`"),
        (QueueData, b"{}", "QueueData: Object missing required field `brokerName`"),
        (QueueData, b'{"brokerName":"b","perm":2147483648}', "<= 2147483647 - at `$.perm`"),
        (ResetOffset, b'{"offsetTable":{{"topic":"T"}:1}}', "missing required field"),
        (ResetOffset, b'{"offsetTable":{"T":1}}', "got `str`"),
        (BrokerData, b'{"brokerName":"b","brokerAddrs":{"x":"a"}}', "Expected `int`, got `str`"),
    ],
)
def test_a_body_that_is_none_says_what_is_wrong(
    body_type: type[Body], text: bytes, words: str
) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_body(body_type, text)
    assert words in str(caught.value)


def test_deep_nulls_do_not_break_the_reader() -> None:
    text = b'{"brokerName":null,"x":' + b"[" * 500 + b"]" * 500 + b"}"
    with pytest.raises(RemoteProtocolError):
        decode_body(QueueData, text)
