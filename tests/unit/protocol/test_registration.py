"""What brokers register, as Apache RocketMQ 5.5.0 writes it, plain and compressed."""

import struct
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from downrange.model.topics import DataVersion, TopicConfig
from downrange.protocol.bodies.json_body import decode_body, encode_body
from downrange.protocol.bodies.registration import (
    PLAIN_BYTES_MAX,
    MappedQueue,
    QueueMappingDetail,
    Registration,
    TopicTable,
    body_crc,
    decode_registration,
    encode_registration,
)
from downrange.protocol.bodies.route import QueueMapping
from downrange.protocol.bodies.topics import decode_topic_line, encode_topic_line
from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError

MAPPING = QueueMapping(
    topic="T", scope="__global__", total_queues=4, bname="b", epoch=1, curr_id_map={0: 1}
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
REGISTRATION = Registration(
    filter_server_list=("f",),
    topic_config_serialize_wrapper=TopicTable(
        topic_config_table={"T": TOPIC},
        data_version=DataVersion(state_version=3, timestamp=1731700000000, counter=7),
        mapping_data_version=DataVersion(timestamp=5),
        topic_queue_mapping_info_map={"T": MAPPING},
        topic_queue_mapping_detail_map={
            "T": QueueMappingDetail(
                topic="T",
                scope="__global__",
                total_queues=4,
                bname="b",
                epoch=1,
                curr_id_map={},
                hosted_queues={
                    0: (
                        MappedQueue(
                            gen=1,
                            queue_id=2,
                            bname="b",
                            logic_offset=3,
                            start_offset=4,
                            end_offset=5,
                            time_of_start=6,
                            time_of_end=7,
                        ),
                    )
                },
            )
        },
    ),
)
REGISTRATION_TEXT = (
    b'{"filterServerList":["f"],"topicConfigSerializeWrapper":{"dataVersion":{"counter":7,'
    b'"stateVersion":3,"timestamp":1731700000000},"mappingDataVersion":{"counter":0,'
    b'"stateVersion":0,"timestamp":5},"topicConfigTable":{"T":' + TOPIC_TEXT + b"},"
    b'"topicQueueMappingDetailMap":{"T":{"bname":"b","currIdMap":{},"dirty":false,"epoch":1,'
    b'"hostedQueues":{0:[{"bname":"b","endOffset":5,"gen":1,"logicOffset":3,"queueId":2,'
    b'"startOffset":4,"timeOfEnd":7,"timeOfStart":6}]},"scope":"__global__","topic":"T",'
    b'"totalQueues":4}},"topicQueueMappingInfoMap":{"T":{"bname":"b","currIdMap":{0:1},'
    b'"dirty":false,"epoch":1,"scope":"__global__","topic":"T","totalQueues":4}}}}'
)
COMPRESSED_REGISTRATION = bytes.fromhex(
    "78da2d8e4f8bc23010c5e361bf477847094b8b7fbae4b687550aea22162f8b84348eb5d03625490f52fadd378a03"
    "0f86c7fcde3cc6d8d70863872e9083cc047cd081cee47c6d3bc88540a85b8a66db43a6d922cd92f74c8cb159d4bc"
    "e04bbee26b7eca0fdbdd8f2abeb77c4464bcaee8333c7a82c426dffce2497cfce186cb1bbd8f283bdd3e0f4a0898"
    "c1b9fcbad7f1d398c87412b8d62e3c206fbaf12440bd35f7d8229634f615ab54d5d852374a453cd8be36d12c5e7b"
    "d0cd71a0813ce472fa0785444187"
)


def sized(text: str) -> bytes:
    return struct.pack(">i", len(text.encode())) + text.encode()


# What a broker before 5.0 sends: it ends behind the filter servers.
OLD_PLAIN = sized("{}") + struct.pack(">i", 1) + sized("T 8 9 6 SINGLE_TAG") + sized("[]")


def test_the_plain_form_is_the_one_java_writes() -> None:
    assert encode_registration(REGISTRATION, compressed=False) == REGISTRATION_TEXT
    assert decode_registration(REGISTRATION_TEXT, compressed=False) == REGISTRATION


def test_the_compressed_form_is_the_one_java_writes() -> None:
    assert encode_registration(REGISTRATION, compressed=True) == COMPRESSED_REGISTRATION
    assert body_crc(COMPRESSED_REGISTRATION) == 1004287506


def test_the_compressed_form_loses_what_its_topic_lines_have_no_room_for() -> None:
    read = decode_registration(COMPRESSED_REGISTRATION, compressed=True)
    table = REGISTRATION.topic_config_serialize_wrapper
    assert read == Registration(
        filter_server_list=("f",),
        topic_config_serialize_wrapper=TopicTable(
            topic_config_table={"T": msgspec.structs.replace(TOPIC, topic_sys_flag=0, order=False)},
            data_version=table.data_version,
            topic_queue_mapping_info_map={"T": MAPPING},
        ),
    )


def test_a_broker_before_5_0_sends_no_mappings() -> None:
    read = decode_registration(zlib.compress(OLD_PLAIN), compressed=True)
    table = read.topic_config_serialize_wrapper
    assert table.topic_queue_mapping_info_map == {}
    assert table.topic_config_table == {
        "T": TopicConfig(topic_name="T", read_queue_nums=8, write_queue_nums=9)
    }


def test_every_cut_of_the_unpacked_form_is_the_peers_fault() -> None:
    for length in range(len(OLD_PLAIN)):
        with pytest.raises(RemoteProtocolError):
            decode_registration(zlib.compress(OLD_PLAIN[:length]), compressed=True)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        COMPRESSED_REGISTRATION[:-5],
        zlib.compress(b"\xff" * 4),
        zlib.compress(sized("{}") + b"\x7f\xff\xff\xff" + bytes(100)),
        zlib.compress(bytes(PLAIN_BYTES_MAX + 1)),
    ],
)
def test_a_compressed_form_that_lies_is_the_peers_fault(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_registration(body, compressed=True)


@pytest.mark.parametrize(
    ("line", "attributes"),
    [
        ('T 4 5 6 SINGLE_TAG {"message.type":"FIFO"}', {"message.type": "FIFO"}),
        ("T 4 5 6 SINGLE_TAG ", {}),
        ("T 4 5 6 SINGLE_TAG", {}),
        ('T 4 5 6 SINGLE_TAG {"a":"x y"}', {"a": "x y"}),
        ("T 4 5 6 SINGLE_TAG {broken", {}),
    ],
)
def test_topic_lines_are_read(line: str, attributes: dict[str, str]) -> None:
    topic = decode_topic_line(line)
    assert topic.attributes == attributes
    assert (topic.topic_name, topic.read_queue_nums, topic.perm) == ("T", 4, 6)


def test_topic_lines_are_written_as_java_writes_them() -> None:
    assert encode_topic_line(TOPIC) == 'T 4 5 6 SINGLE_TAG {"message.type":"FIFO"}'
    assert encode_topic_line(TopicConfig(topic_name="T")) == "T 16 16 6 SINGLE_TAG {}"


@pytest.mark.parametrize(
    "line", ["", "T", "T 4 5 6", "T a 5 6 X", "T 4 5 9999999999 X", " 4 5 6 X"]
)
def test_a_topic_line_that_is_none_is_the_peers_fault(line: str) -> None:
    with pytest.raises(RemoteProtocolError, match="topic line"):
        decode_topic_line(line)


def test_a_topic_with_a_blank_has_no_line() -> None:
    with pytest.raises(LocalProtocolError, match="blank"):
        encode_topic_line(TopicConfig(topic_name="a b"))


@given(
    st.text("aZ%_|-", min_size=1),
    st.integers(-(2**31), 2**31 - 1),
    st.dictionaries(st.text("ab. é", max_size=3), st.text('ab. "\\', max_size=3)),
)
def test_topics_survive_both_forms(name: str, count: int, attributes: dict[str, str]) -> None:
    topic = TopicConfig(topic_name=name, read_queue_nums=count, attributes=attributes)
    assert decode_topic_line(encode_topic_line(topic)) == topic
    assert decode_body(TopicConfig, encode_body(topic)) == topic
