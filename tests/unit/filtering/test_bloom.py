"""Bits of subscriptions in RocketMQ's Bloom filter."""

import pytest

from downrange.filtering.bloom import BITS, BITS_PER_ENTRY, bit_positions, murmur3_64


# As a 5.5.0 broker wrote them, see tests/golden/data/clean/store/config/consumerFilter.json.
@pytest.mark.parametrize(
    ("group", "bits"),
    [
        ("sql-client-4-9-8-json", (11, 5, 111)),
        ("sql-client-5-5-0-json", (13, 84, 38)),
        ("sql-client-5-5-0-binary", (45, 96, 35)),
        ("sql-client-4-9-8-binary", (70, 109, 36)),
    ],
)
def test_bits_are_those_of_an_apache_broker(group: str, bits: tuple[int, ...]) -> None:
    assert (BITS, BITS_PER_ENTRY) == (112, 3)
    assert bit_positions(group, "orders") == bits


def test_the_hash_has_its_published_values() -> None:
    assert murmur3_64(b"") == 0
    assert murmur3_64(b"hello") == 0xCBD8A7B341BD9B02
    assert murmur3_64(b"The quick brown fox jumps over the lazy dog") == 0xE34BBC7BBC071B6C
