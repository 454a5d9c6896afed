"""Typed headers: the fields of Java, read leniently and written completely."""

import inspect as python_inspect
import types

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.headers import (
    broker_to_client,
    client,
    nameserver,
    offset,
    pop,
    pull,
    query,
    send,
    topic,
    transaction,
)
from downrange.protocol.headers.fields import Header, decode_header, encode_header
from downrange.protocol.headers.pull import PullRequest
from downrange.protocol.headers.send import SendRequest, SendRequestV2, decode_send
from downrange.protocol.headers.table import REQUEST_HEADERS, RESPONSE_HEADERS
from downrange.protocol.request_codes import RequestCode

# Read from the classes of Apache RocketMQ 5.5.0 by reflection: name, s(tring) i(nt) l(ong)
# b(oolean), and ! where RocketMQ marks the field as required. Base fields are left out.
JAVA_FIELDS = """
SendRequest = producerGroup:s! topic:s! defaultTopic:s! defaultTopicQueueNums:i! queueId:i!
  sysFlag:i! bornTimestamp:l! flag:i! properties:s reconsumeTimes:i unitMode:b batch:b
  maxReconsumeTimes:i
SendRequestV2 = a:s! b:s! c:s! d:i! e:i! f:i! g:l! h:i! i:s j:i k:b l:i m:b n:s
SendResponse = msgId:s! queueId:i! queueOffset:l! transactionId:s batchUniqId:s recallHandle:s
SendBackRequest = offset:l! group:s! delayLevel:i! originMsgId:s originTopic:s unitMode:b
  maxReconsumeTimes:i
RecallRequest = producerGroup:s topic:s! recallHandle:s!
RecallResponse = msgId:s!
PullRequest = consumerGroup:s! topic:s! liteTopic:s queueId:i! queueOffset:l! maxMsgNums:i!
  sysFlag:i! commitOffset:l! suspendTimeoutMillis:l! subscription:s subVersion:l! expressionType:s
  maxMsgBytes:i requestSource:i proxyFrowardClientId:s
PullResponse = suggestWhichBrokerId:l! nextBeginOffset:l! minOffset:l! maxOffset:l! offsetDelta:l
  topicSysFlag:i groupSysFlag:i forbiddenType:i
QueryConsumerOffsetRequest = consumerGroup:s! topic:s! queueId:i! setZeroIfNotFound:b
UpdateConsumerOffsetRequest = consumerGroup:s! topic:s! queueId:i! commitOffset:l!
SearchOffsetRequest = topic:s! liteTopic:s queueId:i! timestamp:l! boundaryType:s
GetMaxOffsetRequest = topic:s! queueId:i! committed:b
GetMinOffsetRequest = topic:s! queueId:i!
GetEarliestStoreTimeRequest = topic:s! queueId:i!
OffsetResponse = offset:l!
TimestampResponse = timestamp:l!
QueryMessageRequest = topic:s! key:s! maxNum:i! beginTimestamp:l! endTimestamp:l! indexType:s
  lastKey:s
QueryMessageResponse = indexLastUpdateTimestamp:l! indexLastUpdatePhyoffset:l!
ViewMessageRequest = topic:s offset:l!
UnregisterClientRequest = clientID:s! producerGroup:s consumerGroup:s
GetConsumerListRequest = consumerGroup:s!
EndTransactionRequest = topic:s producerGroup:s! tranStateTableOffset:l! commitLogOffset:l!
  commitOrRollback:i! fromTransactionCheck:b msgId:s! transactionId:s
CheckTransactionStateResponse = producerGroup:s! tranStateTableOffset:l! commitLogOffset:l!
  commitOrRollback:i!
PopRequest = consumerGroup:s! topic:s! queueId:i! maxMsgNums:i! invisibleTime:l! pollTime:l!
  bornTime:l! initMode:i! expType:s exp:s order:b attemptId:s
PopResponse = popTime:l! invisibleTime:l! reviveQid:i! restNum:l! startOffsetInfo:s
  msgOffsetInfo:s orderCountInfo:s
AckRequest = consumerGroup:s! topic:s! queueId:i! extraInfo:s! offset:l! liteTopic:s
ChangeInvisibleTimeRequest = consumerGroup:s! topic:s! queueId:i! extraInfo:s! offset:l!
  invisibleTime:l! liteTopic:s suspend:b
ChangeInvisibleTimeResponse = popTime:l! invisibleTime:l! reviveQid:i!
PeekRequest = topic:s! queueId:i! maxMsgNums:i! consumerGroup:s!
NotificationRequest = consumerGroup:s! topic:s! queueId:i! pollTime:l! bornTime:l! order:b
  attemptId:s expType:s exp:s
NotificationResponse = hasMsg:b! pollingFull:b
PollingInfoRequest = consumerGroup:s! topic:s! queueId:i!
PollingInfoResponse = pollingNum:i!
CreateTopicRequest = topic:s! defaultTopic:s! readQueueNums:i! writeQueueNums:i! perm:i!
  topicFilterType:s! topicSysFlag:i order:b! attributes:s force:b
GetRouteRequest = topic:s! acceptStandardJsonOnly:b
PutKvConfigRequest = namespace:s! key:s! value:s!
GetKvConfigRequest = namespace:s! key:s!
GetKvConfigResponse = value:s
DeleteKvConfigRequest = namespace:s! key:s!
GetKvListRequest = namespace:s!
RegisterBrokerRequest = brokerName:s! brokerAddr:s! clusterName:s! haServerAddr:s! brokerId:l!
  heartbeatTimeoutMillis:l enableActingMaster:b compressed:b bodyCrc32:i
RegisterBrokerResponse = haServerAddr:s masterAddr:s
UnregisterBrokerRequest = brokerName:s! brokerAddr:s! clusterName:s! brokerId:l!
QueryDataVersionRequest = brokerName:s! brokerAddr:s! clusterName:s! brokerId:l!
QueryDataVersionResponse = changed:b!
BrokerHeartbeatRequest = clusterName:s! brokerAddr:s! brokerName:s! brokerId:l epoch:i maxOffset:l
  confirmOffset:l heartbeatTimeoutMills:l electionPriority:i
GetBrokerMemberGroupRequest = clusterName:s! brokerName:s!
BrokerPermissionRequest = brokerName:s!
WipeWritePermissionResponse = wipeTopicCount:i!
AddWritePermissionResponse = addTopicCount:i!
DeleteTopicRequest = topic:s! clusterName:s
RegisterTopicRequest = topic:s!
GetTopicsByClusterRequest = cluster:s!
NotifyMinBrokerIdChangeRequest = minBrokerId:l brokerName:s minBrokerAddr:s offlineBrokerAddr:s
  haBrokerAddr:s
CheckTransactionStateRequest = topic:s tranStateTableOffset:l! commitLogOffset:l! msgId:s
  transactionId:s offsetMsgId:s
NotifyConsumerIdsChangedRequest = consumerGroup:s!
ResetOffsetRequest = group:s! topic:s! queueId:i offset:l timestamp:l! isForce:b!
GetConsumerStatusRequest = topic:s! group:s! clientAddr:s
GetConsumerRunningInfoRequest = consumerGroup:s! clientId:s! jstackEnable:b
ConsumeDirectlyRequest = consumerGroup:s! clientId:s msgId:s brokerName:s topic:s topicSysFlag:i
  groupSysFlag:i
PushReplyRequest = producerGroup:s! topic:s! defaultTopic:s! defaultTopicQueueNums:i! queueId:i!
  sysFlag:i! bornTimestamp:l! flag:i! properties:s reconsumeTimes:i unitMode:b bornHost:s!
  storeHost:s! storeTimestamp:l!
"""
# Fields that Java does not declare in the header class but beside it, or in a base class.
BESIDE_THE_CLASS = {"bname", "MSG_REGION", "TRACE_ON", "_UNIQUE_KEY_QUERY"}
WITHOUT_A_CLASS = {"HeartbeatResponse"}

MODULES = (
    *(broker_to_client, client, nameserver, offset, pop),
    *(pull, query, send, topic, transaction),
)


def headers_of(module: types.ModuleType) -> dict[str, type[Header]]:
    members = python_inspect.getmembers(module, python_inspect.isclass)
    return {
        name: kind
        for name, kind in members
        if issubclass(kind, Header) and kind.__module__ == module.__name__
    }


HEADERS = {name: kind for module in MODULES for name, kind in headers_of(module).items()}


def letter_of(info: msgspec.inspect.Type) -> str:
    if isinstance(info, msgspec.inspect.UnionType):
        (info,) = (kind for kind in info.types if not isinstance(kind, msgspec.inspect.NoneType))
    if isinstance(info, msgspec.inspect.IntType):
        return {2**31 - 1: "i", 2**63 - 1: "l"}[info.le or 0]
    return {msgspec.inspect.StrType: "s", msgspec.inspect.BoolType: "b"}[type(info)]


def java_table() -> dict[str, set[str]]:
    table: dict[str, set[str]] = {}
    name = ""
    for word in JAVA_FIELDS.replace(" =", "=").split():
        if word.endswith("="):
            name = word[:-1]
            table[name] = set()
        else:
            table[name].add(word)
    return table


def test_every_header_has_exactly_the_fields_java_has() -> None:
    ours = {
        name: {
            f"{field.encode_name}:{letter_of(msgspec.inspect.type_info(field.type))}"
            + "!" * field.required
            for field in msgspec.structs.fields(kind)
            if field.encode_name not in BESIDE_THE_CLASS
        }
        for name, kind in HEADERS.items()
        if name not in WITHOUT_A_CLASS
    }
    assert ours == java_table()


def test_every_header_belongs_to_a_code() -> None:
    used = {*REQUEST_HEADERS.values(), *RESPONSE_HEADERS.values()}
    assert set(HEADERS.values()) - used == {transaction.CheckTransactionStateResponse}


@pytest.mark.parametrize("kind", HEADERS.values(), ids=HEADERS)
def test_a_header_without_fields_reads_as_zeros(kind: type[Header]) -> None:
    header = decode_header(kind, None)
    for field in msgspec.structs.fields(kind):
        if field.required:
            assert getattr(header, field.name) in ("", 0, False)
        else:
            assert getattr(header, field.name) == field.default
    assert decode_header(kind, encode_header(header)) == header


@pytest.mark.parametrize("kind", HEADERS.values(), ids=HEADERS)
@settings(max_examples=20)
@given(data=st.data())
def test_every_header_survives_the_wire(kind: type[Header], data: st.DataObject) -> None:
    text = st.text(max_size=5).filter(lambda value: value != "null")
    values = {"s": text, "i": st.integers(-(2**31), 2**31 - 1), "b": st.booleans()}
    values["l"] = st.integers(-(2**63), 2**63 - 1)
    members = {
        field.name: data.draw(values[letter_of(msgspec.inspect.type_info(field.type))])
        for field in msgspec.structs.fields(kind)
    }
    header = kind(**members)
    fields = encode_header(header)
    assert all(isinstance(value, str) for value in fields.values())
    assert decode_header(kind, fields) == header


def test_unknown_and_base_fields_are_ignored() -> None:
    base = {"ns": "n", "nsd": "true", "bname": "b", "oway": "false", "lo": "maybe", "new": "?"}
    request = decode_header(offset.GetMinOffsetRequest, {"topic": "T", "queueId": "3", **base})
    assert request == offset.GetMinOffsetRequest(topic="T", queue_id=3)


@pytest.mark.parametrize(
    ("text", "number"), [("3", 3), ("+3", 3), ("-3", -3), ("007", 7), ("", 0), ("null", 0)]
)
def test_numbers_read_as_java_reads_them(text: str, number: int) -> None:
    request = decode_header(offset.GetMinOffsetRequest, {"topic": "null", "queueId": text})
    assert request == offset.GetMinOffsetRequest(topic="null", queue_id=number)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("true", True), ("TRUE", True), ("false", False), ("yes", False), ("null", True), ("", True)],
)
def test_switches_read_as_java_reads_them(text: str, expected: bool) -> None:
    request = decode_header(offset.GetMaxOffsetRequest, {"committed": text})
    assert request.committed is expected, "null and empty leave the default"


def test_optional_numbers_may_be_null() -> None:
    request = decode_header(PullRequest, {"maxMsgBytes": "null", "requestSource": ""})
    assert request.max_msg_bytes is request.request_source is None


@pytest.mark.parametrize("value", ["x", "1.5", "2147483648", "9" * 5000, " 1", "0x1", "\uff11"])
def test_a_bad_value_names_header_field_and_value(value: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_header(offset.GetMinOffsetRequest, {"topic": "T", "queueId": value})
    assert str(caught.value).startswith(f"GetMinOffsetRequest: field queueId is {value[:80]!r}: ")


def test_spellings_of_java_are_kept() -> None:
    header = decode_header(PullRequest, {"proxyFrowardClientId": "c"})
    assert header.proxy_forward_client_id == "c"
    assert encode_header(client.UnregisterClientRequest(client_id="c")) == {"clientID": "c"}
    answer = client.HeartbeatResponse(supports_heartbeat_v2=True, subscription_changed=False)
    assert encode_header(answer) == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"}


def example(kind: type[SendRequest]) -> SendRequest:
    return kind(
        producer_group="PG",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=2,
        sys_flag=0,
        born_timestamp=1731700000000,
        flag=0,
        properties="KEYS\x01k",
        batch=True,
    )


def test_a_send_reads_alike_under_long_names_and_letters() -> None:
    long_names = encode_header(example(SendRequest))
    letters = encode_header(example(SendRequestV2))
    assert long_names["defaultTopicQueueNums"] == letters["d"] == "4"
    assert long_names["batch"] == letters["m"] == "true"
    assert "reconsumeTimes" not in long_names
    by_name = decode_send(RequestCode.SEND_MESSAGE, long_names)
    by_letter = decode_send(RequestCode.SEND_BATCH_MESSAGE, letters)
    assert msgspec.structs.asdict(by_name) == msgspec.structs.asdict(by_letter)
    assert isinstance(by_letter, SendRequest)
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_REPLY_MESSAGE_V2):
        assert decode_send(code, letters) == by_letter
    assert decode_send(RequestCode.SEND_REPLY_MESSAGE, long_names) == by_name
