"""Acknowledged offsets as a bit set, as Java's BitSet writes it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from downrange.protocol.bodies.batch_ack import OFFSET_SPAN_MAX, BatchAck, offset_bits
from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError

ACK = BatchAck(
    consumer_group="g",
    topic="T",
    start_offset=100,
    queue_id=3,
    revive_queue_id=4,
    pop_time=5,
    invisible_time=6,
    bit_set="AQIAAAAAAABA",
)


def test_bits_mean_what_java_means() -> None:
    assert list(ACK.offsets()) == [100, 109, 170]
    assert offset_bits(100, [170, 100, 109]) == "AQIAAAAAAABA"
    assert offset_bits(100, []) == ""


@given(st.integers(0, 2**62), st.sets(st.integers(0, 300)))
def test_offsets_survive_the_bit_set(start: int, distances: set[int]) -> None:
    offsets = sorted(start + distance for distance in distances)
    bits = offset_bits(start, offsets)
    ack = msgspec.structs.replace(ACK, start_offset=start, bit_set=bits)
    assert list(ack.offsets()) == offsets


@pytest.mark.parametrize("offset", [99, 100 + OFFSET_SPAN_MAX])
def test_an_offset_far_away_is_our_own_fault(offset: int) -> None:
    with pytest.raises(LocalProtocolError, match="not near"):
        offset_bits(100, [offset])


@pytest.mark.parametrize("bits", ["A", "*", "\xe9"])
def test_bits_that_are_not_base64_are_the_peers_fault(bits: str) -> None:
    with pytest.raises(RemoteProtocolError, match="Base64"):
        list(msgspec.structs.replace(ACK, bit_set=bits).offsets())
