"""Signature, namespace, client id, settings and messages: the small decisions of a client."""

import pytest

from downrange.client.acl_signature import Credentials, signature
from downrange.client.client_id import build_client_id, local_ip, process_instance_name
from downrange.client.errors import InvalidMessageError, RocketMQError
from downrange.client.message import Message
from downrange.client.namespace import with_namespace, without_namespace
from downrange.client.routes import publish_queues, static_queues, subscribe_queues
from downrange.client.settings import ClientSettings, ProducerSettings
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.route import BrokerData, QueueData, QueueMapping, TopicRoute


def test_the_signature_covers_sorted_values_and_the_body() -> None:
    signed = Credentials("key", "secret").sign({"b": "2", "a": "1"}, b"body")
    assert signed["AccessKey"] == "key"
    # "AccessKey" sorts before "a" and "b": capitals come first, as in Java's TreeMap.
    assert signed["Signature"] == signature(b"key12body", "secret")
    assert list(signed) == ["b", "a", "AccessKey", "Signature"]
    again = Credentials("key", "secret", "token").sign(signed, None)
    assert again["Signature"] == signature(b"keytoken12", "secret")


def test_a_known_signature() -> None:
    # RFC 2202, test case 2 of HMAC-SHA-1.
    assert signature(b"what do ya want for nothing?", "Jefe") == "7/zfauXrL6LSdBbV8YTfnCWafHk="


def test_secrets_are_not_shown() -> None:
    assert "hidden" not in repr(ClientSettings(credentials=Credentials("key", "hidden", "hidden")))


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("orders", "NS%orders"),
        ("%RETRY%billing", "%RETRY%NS%billing"),
        ("%DLQ%billing", "%DLQ%NS%billing"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("TBW102", "TBW102"),
    ],
)
def test_names_get_their_namespace_and_lose_it_again(name: str, wrapped: str) -> None:
    assert with_namespace(name, "NS") == wrapped
    assert with_namespace(wrapped, "NS") == wrapped
    assert without_namespace(wrapped, "NS") == name
    assert without_namespace(wrapped, "other") == wrapped
    assert with_namespace(name, "") == name


def test_client_ids_are_those_of_java() -> None:
    assert build_client_id("10.0.0.1", "DEFAULT") == "10.0.0.1@DEFAULT"
    assert build_client_id("10.0.0.1", process_instance_name(7, 9), "u") == "10.0.0.1@7#9@u"
    assert local_ip().count(".") == 3


def test_name_servers_may_be_written_in_one_text() -> None:
    settings = ClientSettings(name_servers=" a:1; b:2;")
    assert settings.name_server_list == ("a:1", "b:2")
    assert settings == ClientSettings(name_servers=["a:1", "b:2"])


def test_settings_that_cannot_work_are_refused_at_once() -> None:
    with pytest.raises(RocketMQError, match=r"127\.0\.0\.1:9876"):
        ClientSettings(name_servers="localhost")
    with pytest.raises(RocketMQError, match="api_timeout_s is 0"):
        ClientSettings(api_timeout_s=0)
    with pytest.raises(RocketMQError, match="one try"):
        ProducerSettings(retries=-1)


def test_a_message_keeps_what_is_said_about_it() -> None:
    message = Message("orders", b"x", tag="new", keys=["a", "b"], delay_level=3)
    assert (message.tag, message.keys, message.delay_level) == ("new", ["a", "b"], 3)
    assert message.properties["WAIT"] == "true"
    assert Message("t", b"", delay_s=1.5).properties["TIMER_DELAY_MS"] == "1500"
    assert Message("t", b"", deliver_at_ms=9).properties["TIMER_DELIVER_MS"] == "9"


def test_a_message_refuses_what_nobody_could_read() -> None:
    with pytest.raises(InvalidMessageError, match="belongs to RocketMQ"):
        Message("t", b"", properties={"TAGS": "x"})
    with pytest.raises(InvalidMessageError, match="blank"):
        Message("t", b"", keys=["a b"])
    with pytest.raises(InvalidMessageError, match="one of"):
        Message("t", b"", delay_s=1, delay_level=1)
    with pytest.raises(InvalidMessageError, match="back in time"):
        Message("t", b"", delay_s=-1)


def _route(**changes: object) -> TopicRoute:
    values: dict[str, object] = {
        "queue_datas": (
            QueueData(broker_name="b", read_queue_nums=1, write_queue_nums=2, perm=6),
            QueueData(broker_name="a", read_queue_nums=2, write_queue_nums=1, perm=6),
            QueueData(broker_name="c", read_queue_nums=1, write_queue_nums=1, perm=4),
            QueueData(broker_name="d", read_queue_nums=1, write_queue_nums=1, perm=6),
        ),
        "broker_datas": (
            BrokerData(broker_name="a", broker_addrs={0: "a:1"}),
            BrokerData(broker_name="b", broker_addrs={0: "b:1"}),
            BrokerData(broker_name="c", broker_addrs={0: "c:1"}),
            BrokerData(broker_name="d", broker_addrs={1: "d:1"}),
        ),
        **changes,
    }
    return TopicRoute(**values)  # type: ignore[arg-type]


def _names(queues: tuple[MessageQueue, ...]) -> list[str]:
    return [f"{queue.broker_name}{queue.queue_id}" for queue in queues]


def test_only_masters_with_permission_are_written_to_and_replicas_may_be_read() -> None:
    assert _names(publish_queues("t", _route())) == ["a0", "b0", "b1"]
    assert _names(subscribe_queues("t", _route())) == ["a0", "a1", "b0", "c0", "d0"]


def test_an_ordered_topic_has_the_queues_of_its_order() -> None:
    assert _names(publish_queues("t", _route(order_topic_conf="b:1;a:2"))) == ["b0", "a0", "a1"]


def test_the_logic_queues_of_a_static_topic_are_where_the_newest_mapping_says() -> None:
    mapping = {
        "a": QueueMapping(
            scope="__global__", bname="a", epoch=1, total_queues=3, curr_id_map={0: 0, 1: 1}
        ),
        "b": QueueMapping(
            scope="__global__", bname="b", epoch=2, total_queues=3, curr_id_map={1: 0}
        ),
    }
    route = _route(topic_queue_mapping_by_broker=mapping)
    served = {queue.queue_id: broker for queue, broker in static_queues("t", route).items()}
    assert served == {0: "a", 1: "b", 2: "__syslo__none__"}
    assert {queue.broker_name for queue in publish_queues("t", route)} == {"__syslo__global__"}
    assert len(subscribe_queues("t", route)) == 3
