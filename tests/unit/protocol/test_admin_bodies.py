"""Bodies of the administration that no capture holds: literal answers of a 5.5.0 broker."""

import pytest
from msgspec import Struct

from downrange.protocol.bodies.connections import AllProducers, ProducerConnections
from downrange.protocol.bodies.consume_queue import ConsumeQueueView
from downrange.protocol.bodies.groups import GroupForbidden, GroupSubscription
from downrange.protocol.bodies.json_body import decode_body, encode_body
from downrange.protocol.bodies.statistics import (
    BrokerConsumeStats,
    BrokerStatsData,
    CorrectionOffsets,
)
from downrange.protocol.errors import RemoteProtocolError
from downrange.store.offset_tables import ConsumerOffsets, DelayOffsets

_SUBSCRIPTION = (
    b'{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":5,'
    b'"tagsSet":[],"topic":"T1"}'
)
_QUEUE = b'{"brokerName":"broker-a","queueId":1,"topic":"T1"}'


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (
            BrokerConsumeStats,
            b'{"brokerAddr":"127.0.0.1:22911","consumeStatsList":[{"SELF_TEST_C_GROUP":[]},{"G1":['
            b'{"consumeTps":0.0,"offsetTable":{' + _QUEUE + b':{"brokerOffset":3,'
            b'"consumerOffset":2,"lastTimestamp":1794779046162,"pullOffset":0}}}]}],'
            b'"totalDiff":7,"totalInflightDiff":-5}',
        ),
        (CorrectionOffsets, b'{"correctionOffsets":{0:1,1:2}}'),
        (
            BrokerStatsData,
            b'{"statsDay":{"avgpt":0.0,"sum":0,"tps":0.0},"statsHour":{"avgpt":0.0,"sum":0,'
            b'"tps":0.0},"statsMinute":{"avgpt":12.666666666666666,"sum":38,"tps":3.8}}',
        ),
        (
            ProducerConnections,
            b'{"connectionSet":[{"clientAddr":"127.0.0.1:53984","clientId":"127.0.0.1@me",'
            b'"language":"PYTHON","version":513}]}',
        ),
        (
            AllProducers,
            b'{"data":{"pg":[{"clientId":"127.0.0.1@me","language":"PYTHON",'
            b'"lastUpdateTimestamp":1794779047385,"remoteIP":"/127.0.0.1:53984","version":513}]}}',
        ),
        (GroupForbidden, b'{"group":"G1","readable":false,"topic":"T1"}'),
        (
            GroupSubscription,
            b'{"group":"G3","subscriptionData":' + _SUBSCRIPTION + b',"topic":"T1"}',
        ),
        (GroupSubscription, b'{"group":"G1","topic":"T1"}'),
        (
            ConsumeQueueView,
            b'{"filterData":"null","maxQueueIndex":3,"minQueueIndex":0,"queueData":[{"eval":false,'
            b'"physicOffset":462,"physicSize":231,"tagsCode":0}],"subscriptionData":'
            + _SUBSCRIPTION
            + b"}",
        ),
        (
            ConsumerOffsets,
            b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":1794778955752},'
            b'"groupTopicMap":{"G1":["T1"],"G2":["T1"]},"offsetTable":{"T1@G2":{0:1},'
            b'"T1@G1":{0:2,1:2}},"pullOffsetTable":{}}',
        ),
        (
            DelayOffsets,
            b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":1794778956152},'
            b'"offsetTable":{}}',
        ),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_body_written_again_has_the_same_bytes(kind: type[Struct], body: bytes) -> None:
    assert encode_body(decode_body(kind, body)) == body


@pytest.mark.parametrize("body", [b"", b"[]", b'{"group":1', b'{"group":"G"}'])
def test_a_body_that_is_none_is_the_peers_fault(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_body(GroupForbidden, body)
