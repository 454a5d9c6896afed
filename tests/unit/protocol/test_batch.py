"""The body of a batch send; the golden body comes from Java's MessageDecoder."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downrange.protocol.batch import (
    BatchMessage,
    count_batch,
    decode_batch,
    encode_batch,
    unwrap_inner_batch,
)
from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError

JAVA_BATCH = bytes.fromhex(
    "00000037000000000000000000000007000000036f6e65001e4b455953016b657931025741495401747275650254"
    "414753015461674102000000230000000000000000000000000000000374776f000a57414954017472756502"
)
JAVA_MESSAGES: list[BatchMessage] = [
    (7, b"one", b"KEYS\x01key1\x02WAIT\x01true\x02TAGS\x01TagA\x02"),
    (0, b"two", b"WAIT\x01true\x02"),
]
MESSAGES = st.lists(
    st.tuples(
        st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=50), st.binary(max_size=50)
    )
)


def test_batch_is_that_of_java_both_ways() -> None:
    assert decode_batch(JAVA_BATCH) == JAVA_MESSAGES
    assert encode_batch(JAVA_MESSAGES) == JAVA_BATCH
    assert count_batch(JAVA_BATCH) == 2


@given(MESSAGES)
def test_messages_survive_the_way_through_a_batch(messages: list[BatchMessage]) -> None:
    body = encode_batch(messages)
    assert decode_batch(body) == messages
    assert count_batch(body) == len(messages)


def test_total_size_magic_and_checksum_are_not_looked_at_as_in_java() -> None:
    odd = b"\xff" * 12 + JAVA_BATCH[12:55] + b"\x00\x00\x00\x01" + JAVA_BATCH[59:]
    assert decode_batch(odd) == JAVA_MESSAGES
    with pytest.raises(RemoteProtocolError):
        count_batch(odd)


def test_every_cut_is_noticed() -> None:
    for cut in range(1, len(JAVA_BATCH)):
        if cut == 55:  # between the messages
            continue
        with pytest.raises(RemoteProtocolError):
            decode_batch(JAVA_BATCH[:cut])
        with pytest.raises(RemoteProtocolError):
            count_batch(JAVA_BATCH[:cut])


@given(st.binary(max_size=200))
def test_nonsense_is_the_peers_fault(data: bytes) -> None:
    for read in (decode_batch, count_batch):
        with suppress(RemoteProtocolError):
            read(data)


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 15), (1 << 15) - 1))
def test_lengths_that_do_not_fit_are_the_peers_fault(body: int, properties: int) -> None:
    data = bytes(16) + body.to_bytes(4, "big", signed=True) + b"abc"
    data += properties.to_bytes(2, "big", signed=True)
    if (body, properties) != (3, 0):
        try:
            messages = decode_batch(data)
        except RemoteProtocolError:
            return
        assert encode_batch(messages)[12:] == data[12:]


def test_number_of_messages_is_bounded() -> None:
    body = encode_batch([(0, b"", b"")] * 11)
    assert len(decode_batch(body, messages_max=11)) == 11
    for read in (decode_batch, count_batch):
        with pytest.raises(RemoteProtocolError, match="more than 10 messages"):
            read(body, messages_max=10)


def test_properties_and_flags_that_do_not_fit_are_our_own_mistake() -> None:
    with pytest.raises(LocalProtocolError):
        encode_batch([(0, b"", bytes(32_768))])
    with pytest.raises(LocalProtocolError):
        encode_batch([(1 << 31, b"", b"")])


def test_messages_of_an_inner_batch_are_numbered_from_its_base_offset() -> None:
    assert list(unwrap_inner_batch(JAVA_BATCH, 100)) == [
        (100, JAVA_MESSAGES[0]),
        (101, JAVA_MESSAGES[1]),
    ]
