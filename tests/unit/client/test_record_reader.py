"""Messages out of the bytes of a pull's answer."""

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downrange.client.record_reader import read_records, read_response
from downrange.protocol.batch import encode_batch
from downrange.protocol.compression import compress
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.hosts import encode_host
from downrange.protocol.properties import encode_properties
from downrange.protocol.record import MAGIC_V2, Record, encode_record
from downrange.protocol.sys_flag import (
    BORN_HOST_V6,
    COMPRESSED,
    INNER_BATCH,
    NEED_UNWRAP,
    STORE_HOST_V6,
    CompressionType,
    with_compression,
)


def record(**changes: object) -> Record:
    plain = Record(
        queue_id=3,
        flag=9,
        queue_offset=70,
        physical_offset=4711,
        sys_flag=0,
        born_timestamp=1_700_000_000_001,
        born_host=encode_host("10.0.0.9", 4000),
        store_timestamp=1_700_000_000_002,
        store_host=encode_host("10.0.0.1", 10911),
        reconsume_times=2,
        prepared_offset=5,
        body=b"hello",
        topic=b"orders",
        properties=encode_properties({"TAGS": "new", "KEYS": "a b", "UNIQ_KEY": "ID1"}),
    )
    return plain._replace(**changes)  # type: ignore[arg-type]


def test_every_field_of_a_record_arrives() -> None:
    data = encode_record(record())
    (message,) = read_records(data, broker_name="b1")
    assert (message.topic, message.body, message.flag) == ("orders", b"hello", 9)
    assert (message.broker_name, message.queue_id, message.queue_offset) == ("b1", 3, 70)
    assert (message.physical_offset, message.store_size) == (4711, len(data))
    assert (message.born_timestamp_ms, message.store_timestamp_ms) == (
        1_700_000_000_001,
        1_700_000_000_002,
    )
    assert (message.born_host, message.store_host) == (("10.0.0.9", 4000), ("10.0.0.1", 10911))
    assert (message.reconsume_times, message.prepared_offset) == (2, 5)
    assert (message.tag, message.keys, message.message_id) == ("new", ["a", "b"], "ID1")
    assert message.offset_message_id == "0A00000100002A9F0000000000001267"
    assert message.body_crc == zlib.crc32(b"hello") & 0x7FFFFFFF


def test_a_message_without_a_name_of_its_own_has_that_of_its_place() -> None:
    (message,) = read_records(encode_record(record(properties=b"")))
    assert message.message_id == message.offset_message_id
    assert message.tag is None


@pytest.mark.parametrize("compression", CompressionType)
def test_compressed_bodies_are_unpacked(compression: CompressionType) -> None:
    body = b"many times the same " * 500
    packed = record(body=compress(body, compression), sys_flag=with_compression(0, compression))
    (message,) = read_records(encode_record(packed))
    assert message.body == body
    assert not message.sys_flag & COMPRESSED


def test_long_topics_and_hosts_of_ipv6() -> None:
    far = encode_host("2001:db8::1", 5)
    data = encode_record(
        record(
            topic=b"t" * 200,
            magic=MAGIC_V2,
            sys_flag=BORN_HOST_V6 | STORE_HOST_V6,
            born_host=far,
            store_host=far,
        )
    )
    (message,) = read_records(data)
    assert message.topic == "t" * 200
    assert message.born_host == message.store_host == ("2001:db8::1", 5)


def test_an_inner_batch_becomes_its_messages() -> None:
    body = encode_batch([(1, b"one", b""), (2, b"two", encode_properties({"TAGS": "x"}))])
    wrapped = record(body=body, sys_flag=INNER_BATCH | NEED_UNWRAP)
    first, second = read_response(encode_record(wrapped), offset_delta=1000).messages
    assert (first.body, first.flag, first.queue_offset) == (b"one", 1, 1070)
    assert (second.body, second.tag, second.queue_offset) == (b"two", "x", 1071)


def test_a_damaged_body_is_named() -> None:
    data = bytearray(encode_record(record()))
    data[90] ^= 1
    with pytest.raises(RemoteProtocolError, match="physical offset 4711"):
        read_records(bytes(data))


@given(st.integers(min_value=0, max_value=2**32), st.integers(min_value=1, max_value=3))
def test_flipped_and_cut_bytes_end_in_a_protocol_error_or_in_messages(
    seed: int, flips: int
) -> None:
    chance = random.Random(seed)
    data = bytearray(encode_record(record()) + encode_record(record(queue_offset=71)))
    for _ in range(flips):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    cut = bytes(data[: chance.randrange(len(data) + 1)])
    try:
        messages = read_records(cut)
    except RemoteProtocolError:
        return
    assert len(messages) <= 2


def test_a_body_that_cannot_be_decoded_leaves_the_records_around_it_alone() -> None:
    flag = with_compression(0, CompressionType.ZLIB)
    data = [
        encode_record(record(queue_offset=70)),
        encode_record(record(queue_offset=71, body=b"not zlib", sys_flag=flag)),
        encode_record(record(queue_offset=72)),
    ]
    read = read_response(b"".join(data), broker_name="b1")
    assert [message.queue_offset for message in read.messages] == [70, 72]
    (invalid,) = read.invalid
    assert (invalid.queue_offset, invalid.body, invalid.sys_flag) == (71, b"not zlib", flag)
    assert invalid.properties["KEYS"] == "a b"
    assert (read.rest_start, read.damage) == (sum(map(len, data)), None)


def test_reading_stops_where_the_next_record_cannot_be_found() -> None:
    first, second = encode_record(record()), bytearray(encode_record(record(queue_offset=71)))
    second[84:88] = b"\x00\x00\xff\xff"  # the length of the body
    read = read_response(first + bytes(second) + first)
    assert [message.queue_offset for message in read.messages] == [70]
    assert read.rest_start == len(first)
    assert read.damage is not None


def test_the_decompressed_bodies_of_one_response_are_bounded() -> None:
    flag = with_compression(0, CompressionType.ZSTD)
    packed = compress(bytes(1000), CompressionType.ZSTD)
    data = [encode_record(record(queue_offset=at, body=packed, sys_flag=flag)) for at in range(9)]
    read = read_response(b"".join(data), body_bytes_max=2500)
    assert [message.queue_offset for message in read.messages] == [0, 1]
    assert (read.rest_start, read.damage) == (2 * len(data[0]), None)
    read = read_response(b"".join(data), body_bytes_max=999)
    assert len(read.invalid) == 9, "none of them is read, and none holds up the others"


@given(st.integers(min_value=0, max_value=2**32), st.integers(min_value=1, max_value=3))
def test_no_damage_makes_the_lenient_reader_fail(seed: int, flips: int) -> None:
    chance = random.Random(seed)
    packed = compress(b"x" * 100, CompressionType(1 + seed % 3))
    flag = with_compression(0, CompressionType(1 + seed % 3))
    data = bytearray(encode_record(record()) + encode_record(record(body=packed, sys_flag=flag)))
    for _ in range(flips):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    read = read_response(bytes(data), body_bytes_max=10_000)
    assert len(read.messages) + len(read.invalid) <= 2
    assert (read.rest_start == len(data)) or read.damage is not None


def test_no_batch_is_unwrapped_once_a_response_has_enough_messages() -> None:
    body = encode_batch([(0, b"x", b"")] * 40_000)
    wrapped = [
        encode_record(record(queue_offset=at, body=body, sys_flag=INNER_BATCH | NEED_UNWRAP))
        for at in (0, 40_000, 80_000)
    ]
    read = read_response(b"".join(wrapped))
    assert len(read.messages) == 80_000
    assert read.rest_start == 2 * len(wrapped[0])
