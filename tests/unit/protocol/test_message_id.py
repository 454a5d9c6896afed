"""Offset message ids; expectations come from Java's MessageDecoder."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError
from downrange.protocol.hosts import encode_host
from downrange.protocol.message_id import (
    MessageId,
    decode_message_id,
    encode_message_id,
    join_message_ids,
    split_message_ids,
)

JAVA_IDS = {
    "0A01020300002A9F0000001CBE991A14": MessageId("10.1.2.3", 10911, 123456789012),
    "20010DB800000000000000000000000100002A9F0000000000000007": MessageId("2001:db8::1", 10911, 7),
}


@pytest.mark.parametrize(("text", "message_id"), JAVA_IDS.items())
def test_id_is_that_of_java_both_ways(text: str, message_id: MessageId) -> None:
    ip, port, offset = message_id
    assert encode_message_id(encode_host(ip, port), offset) == text
    assert decode_message_id(text) == message_id
    assert decode_message_id(text.lower()) == message_id


@given(
    st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6, network="2000::/3")),
    st.integers(0, 65535),
    st.integers(0, (1 << 63) - 1),
)
def test_id_says_where_the_message_is(ip: object, port: int, offset: int) -> None:
    text = encode_message_id(encode_host(str(ip), port), offset)
    assert decode_message_id(text) == MessageId(str(ip), port, offset)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0A01020300002A9F0000001CBE991A1",
        "0A01020300002A9F0000001CBE991A1400",
        "0A01020300002A9F0000001CBE991A1G",
        "0A010203 00002A9F 0000001CBE991A14",
        "0A010203FFFFFFFF0000001CBE991A14",
        "0A01020300002A9FFFFFFFFFFFFFFFFF",
        "\N{FULLWIDTH DIGIT ZERO}" * 32,
    ],
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_message_id(text)


def test_wrong_host_and_negative_offset_are_our_own_mistakes() -> None:
    with pytest.raises(LocalProtocolError):
        encode_message_id(b"1234", 0)
    with pytest.raises(LocalProtocolError):
        encode_message_id(bytes(8), -1)


def test_ids_of_a_batch_are_joined_by_commas() -> None:
    assert join_message_ids(JAVA_IDS) == ",".join(JAVA_IDS)
    assert split_message_ids(",".join(JAVA_IDS)) == list(JAVA_IDS)
    assert split_message_ids("A") == ["A"]
