"""Heartbeats of all clients, and the fingerprint of their second version."""

import msgspec
import pytest

from downrange.protocol.bodies.heartbeat import (
    ConsumerGroup,
    Heartbeat,
    ProducerGroup,
    Subscription,
    decode_heartbeat,
    heartbeat_fingerprint,
)
from downrange.protocol.errors import RemoteProtocolError

SUBSCRIPTION = Subscription(
    topic="T",
    sub_string="TagA",
    tags_set=("TagA",),
    code_set=(2598919,),
    sub_version=1731700000000,
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


def test_the_fingerprint_is_the_one_java_computes() -> None:
    assert heartbeat_fingerprint(HEARTBEAT) == 1835432888
    assert heartbeat_fingerprint(Heartbeat(client_id="x")) == 615346385


def test_the_fingerprint_ignores_what_changes_by_itself() -> None:
    group = HEARTBEAT.consumer_data_set[0]
    later = msgspec.structs.replace(SUBSCRIPTION, sub_version=1)
    changed = msgspec.structs.replace(
        HEARTBEAT,
        client_id="other",
        consumer_data_set=(msgspec.structs.replace(group, subscription_data_set=(later,)),),
        heartbeat_fingerprint=5,
        without_sub=True,
    )
    assert heartbeat_fingerprint(changed) == heartbeat_fingerprint(HEARTBEAT)


def test_the_fingerprint_sees_another_subscription() -> None:
    group = HEARTBEAT.consumer_data_set[0]
    other = msgspec.structs.replace(SUBSCRIPTION, sub_string="TagB")
    changed = msgspec.structs.replace(
        HEARTBEAT,
        consumer_data_set=(msgspec.structs.replace(group, subscription_data_set=(other,)),),
    )
    assert heartbeat_fingerprint(changed) != heartbeat_fingerprint(HEARTBEAT)


def test_clients_in_cpp_may_number_what_java_names() -> None:
    text = (
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":1,"messageModel":1,'
        b'"consumeFromWhere":4,"subscriptionDataSet":[{"topic":"T","subVersion":"12"}]}]}'
    )
    (group,) = decode_heartbeat(text).consumer_data_set
    assert group.consume_type == "CONSUME_PASSIVELY"
    assert group.message_model == "CLUSTERING"
    assert group.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
    assert group.subscription_data_set == (Subscription(topic="T", sub_version=12),)


def test_sets_that_are_null_are_empty() -> None:
    read = decode_heartbeat(
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":null}],'
        b'"producerDataSet":null}'
    )
    group = ConsumerGroup(group_name="g")
    assert read == Heartbeat(client_id="c", consumer_data_set=(group,))


@pytest.mark.parametrize(
    "text",
    [
        *(None, b"", b"[]", b"{}", b'{"clientID":"c","consumerDataSet":{}}'),
        *(b'{"clientID":"c","consumerDataSet":[1]}', b'{"clientID":1}'),
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":99}]}',
    ],
)
def test_a_heartbeat_that_is_none_is_the_peers_fault(text: bytes | None) -> None:
    with pytest.raises(RemoteProtocolError, match="Heartbeat"):
        decode_heartbeat(text)
