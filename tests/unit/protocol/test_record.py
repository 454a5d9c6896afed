"""The message record; the golden records come from RocketMQ 5.5.0's MessageDecoder.encode."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError
from downrange.protocol.hosts import encode_host
from downrange.protocol.record import (
    BLANK,
    HEADS,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    Record,
    decode_record,
    decode_records,
    encode_record,
    record_size,
    topic_field,
)
from downrange.protocol.sys_flag import BORN_HOST_V6, STORE_HOST_V6, TRANSACTION_COMMIT

BORN_V4, STORE_V4 = encode_host("10.1.2.3", 50001), encode_host("10.1.2.3", 10911)
BORN_V6, STORE_V6 = encode_host("2001:db8::7", 50001), encode_host("2001:db8::7", 10911)
_UP_TO_SYS_FLAG = "daa320a73610a6860000000300000007000000000000002a00000000000003e8"
_REST = "0000000200000000000003840000000568656c6c6f09546f70696354657374000b4b455953016b31206b3202"
JAVA_RECORDS = {
    0: (
        "00000074" + _UP_TO_SYS_FLAG + "000000080000018bcfe568010a0102030000c351"
        "0000018bcfe568020a01020300002a9f" + _REST
    ),
    BORN_HOST_V6: (
        "00000080"
        + _UP_TO_SYS_FLAG
        + "000000180000018bcfe5680120010db80000000000000000000000070000"
        "c3510000018bcfe568020a01020300002a9f" + _REST
    ),
    STORE_HOST_V6: (
        "00000080" + _UP_TO_SYS_FLAG + "000000280000018bcfe568010a0102030000c351"
        "0000018bcfe5680220010db800000000000000000000000700002a9f" + _REST
    ),
    BORN_HOST_V6 | STORE_HOST_V6: (
        "0000008c"
        + _UP_TO_SYS_FLAG
        + "000000380000018bcfe5680120010db80000000000000000000000070000"
        "c3510000018bcfe5680220010db800000000000000000000000700002a9f" + _REST
    ),
}
LAYOUTS = sorted(JAVA_RECORDS)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def java_record(layout: int) -> Record:
    return Record(
        queue_id=3,
        flag=7,
        queue_offset=42,
        physical_offset=1000,
        sys_flag=TRANSACTION_COMMIT | layout,
        born_timestamp=1_700_000_000_001,
        born_host=BORN_V6 if layout & BORN_HOST_V6 else BORN_V4,
        store_timestamp=1_700_000_000_002,
        store_host=STORE_V6 if layout & STORE_HOST_V6 else STORE_V4,
        reconsume_times=2,
        prepared_offset=900,
        body=b"hello",
        topic=b"TopicTest",
        properties=b"KEYS\x01k1 k2\x02",
    )


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Any record that can be written, of both versions and all layouts."""
    layout = draw(st.sampled_from(LAYOUTS))
    topic = draw(st.binary(max_size=300))
    magics = [MAGIC_V2] if len(topic) > 127 else [MAGIC_V1, MAGIC_V2]
    born_bytes = 20 if layout & BORN_HOST_V6 else 8
    store_bytes = 20 if layout & STORE_HOST_V6 else 8
    return Record(
        queue_id=draw(INT32),
        flag=draw(INT32),
        queue_offset=draw(INT64),
        physical_offset=draw(INT64),
        sys_flag=draw(INT32) & ~(BORN_HOST_V6 | STORE_HOST_V6) | layout,
        born_timestamp=draw(INT64),
        born_host=draw(st.binary(min_size=born_bytes, max_size=born_bytes)),
        store_timestamp=draw(INT64),
        store_host=draw(st.binary(min_size=store_bytes, max_size=store_bytes)),
        reconsume_times=draw(INT32),
        prepared_offset=draw(INT64),
        body=draw(st.binary(max_size=200)),
        topic=topic,
        properties=draw(st.binary(max_size=200)),
        magic=draw(st.sampled_from(magics)),
    )


PLAIN = java_record(0)
PLAIN_BYTES = bytes.fromhex(JAVA_RECORDS[0])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_record_is_that_of_java_both_ways(layout: int) -> None:
    data = bytes.fromhex(JAVA_RECORDS[layout])
    assert decode_record(data) == java_record(layout)
    assert encode_record(java_record(layout)) == data


@given(records())
def test_record_survives_encoding(record: Record) -> None:
    data = encode_record(record)
    assert decode_record(data) == record
    assert decode_record(memoryview(data)) == record
    assert record_size(data) == len(data)


@given(st.lists(records(), max_size=4), st.integers(0, 50))
def test_records_stand_end_to_end(several: list[Record], padding: int) -> None:
    data = b"".join(encode_record(record) for record in several)
    assert list(decode_records(data)) == several
    if several:
        assert decode_record(bytes(padding) + data, padding) == several[0]


def test_smallest_record_has_no_body_topic_and_properties() -> None:
    empty = PLAIN._replace(body=b"", topic=b"", properties=b"")
    data = encode_record(empty)
    assert len(data) == RECORD_BYTES_MIN == 91
    assert decode_record(data) == empty
    assert empty.body_crc == 0


def test_heads_have_the_sizes_of_their_hosts() -> None:
    assert [head.size for head in HEADS] == [88, 100, 100, 112]


@pytest.mark.parametrize(
    ("length", "magic", "prefix"),
    [(0, MAGIC_V1, "00"), (127, MAGIC_V1, "7f"), (128, MAGIC_V2, "0080"), (300, MAGIC_V2, "012c")],
)
def test_version_follows_from_the_length_of_the_topic(length: int, magic: int, prefix: str) -> None:
    assert topic_field(b"t" * length) == (magic, bytes.fromhex(prefix) + b"t" * length)


def test_topic_and_properties_may_be_as_long_as_their_lengths_can_say() -> None:
    record = PLAIN._replace(topic=b"t" * 32_767, properties=b"p" * 32_767, magic=MAGIC_V2)
    assert decode_record(encode_record(record)) == record


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"topic": b"t" * 128}, "a topic of 128 bytes needs magic 0xdaa320ab, not 0xdaa320a7"),
        ({"topic": b"t" * 32_768, "magic": MAGIC_V2}, "a topic of 32768 bytes does not fit"),
        ({"properties": b"p" * 32_768}, "a property text of 32768 bytes is over 32767"),
        ({"magic": MAGIC_BLANK}, "not 0xcbd43194"),
        ({"born_host": bytes(20)}, "a host has 20 bytes where system flag 0x8 asks for 8"),
        ({"store_host": b""}, "a host has 0 bytes"),
        ({"sys_flag": STORE_HOST_V6}, "a host has 8 bytes where system flag 0x20 asks for 20"),
        ({"queue_id": 1 << 31}, "does not fit into its field"),
        ({"store_timestamp": 1 << 63}, "does not fit into its field"),
    ],
)
def test_what_cannot_be_written_is_refused(changes: dict[str, int | bytes], reason: str) -> None:
    with pytest.raises(LocalProtocolError, match=reason):
        encode_record(Record(**{**PLAIN._asdict(), **changes}))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_truncation_is_noticed(layout: int) -> None:
    data = bytes.fromhex(JAVA_RECORDS[layout])
    for cut in range(len(data)):
        with pytest.raises(RemoteProtocolError):
            decode_record(data[:cut])
    for cut in range(1, len(data)):
        with pytest.raises(RemoteProtocolError):
            list(decode_records(data + data[:cut]))


# Where the lengths of the golden record stand: total, magic, body, topic, properties.
LENGTHS = (range(8), range(84, 88), range(93, 94), range(103, 105))


@pytest.mark.parametrize("position", [at for positions in LENGTHS for at in positions])
def test_every_change_of_a_length_is_noticed(position: int) -> None:
    for value in range(256):
        damaged = bytearray(PLAIN_BYTES)
        if damaged[position] == value:
            continue
        damaged[position] = value
        with pytest.raises(RemoteProtocolError):
            decode_record(bytes(damaged))
        with pytest.raises(RemoteProtocolError):
            decode_record(bytes(damaged) + PLAIN_BYTES)  # more bytes behind it do not help


def test_change_of_the_layout_bits_is_noticed() -> None:
    for layout in LAYOUTS[1:]:
        damaged = bytearray(PLAIN_BYTES)
        damaged[39] |= layout
        with pytest.raises(RemoteProtocolError):
            decode_record(bytes(damaged) + PLAIN_BYTES)


def test_every_change_of_the_body_or_its_checksum_is_noticed() -> None:
    for position in (*range(8, 12), *range(88, 93)):
        for bit in range(8):
            damaged = bytearray(PLAIN_BYTES)
            damaged[position] ^= 1 << bit
            with pytest.raises(RemoteProtocolError, match="checksum"):
                decode_record(bytes(damaged))
            assert decode_record(bytes(damaged), check_crc=False).topic == b"TopicTest"


def test_checksum_of_an_empty_body_is_not_looked_at_as_in_java() -> None:
    data = bytearray(encode_record(PLAIN._replace(body=b"")))
    data[8:12] = b"\x12\x34\x56\x78"
    assert decode_record(bytes(data)).body == b""


@pytest.mark.parametrize("magic", [0, MAGIC_BLANK, -1, 0x7FFFFFFF])
def test_other_magic_is_no_record(magic: int) -> None:
    data = BLANK.pack(len(PLAIN_BYTES), magic) + PLAIN_BYTES[8:]
    with pytest.raises(RemoteProtocolError, match=f"magic {magic & 0xFFFFFFFF:#010x}"):
        decode_record(data)


def test_lengths_that_java_would_read_as_negative_are_refused() -> None:
    # The length of a V1 topic is a signed byte, that of properties a signed 16-bit number.
    head = PLAIN_BYTES[4:88] + b"hello"
    for rest in (
        b"\x80" + b"t" * 128 + b"\0\0",
        b"\x01t" + b"\x80\x00" + b"p" * 32_768,
    ):
        data = (4 + len(head) + len(rest)).to_bytes(4, "big") + head + rest
        with pytest.raises(RemoteProtocolError):
            decode_record(data)


@given(st.binary(max_size=300))
def test_nothing_else_can_be_raised(data: bytes) -> None:
    with suppress(RemoteProtocolError):
        list(decode_records(data))
    with suppress(RemoteProtocolError):
        decode_record(PLAIN_BYTES[:8] + data)
