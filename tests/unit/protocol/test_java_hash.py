"""Java's String.hashCode; expectations come from the real class."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downrange.protocol.java_hash import (
    BASE,
    ID_DIGITS,
    INT_MASK,
    extend_hash,
    id_hash_base,
    index_key_hash,
    java_hash,
    java_hash_bytes,
    signed_hash,
)

JAVA_HASHES = {
    "": 0,
    "a": 97,
    "TagA": 2598919,
    "TopicTest#7F0000010B3C1B9D4AAC0A1B2C3D0001": -1887420860,
    "polygenelubricants": -2147483648,
    "订单#é": 1085411417,
    "\N{ROCKET}": 1773027,
    "AbC\0": 2032670,
    "".join(chr(32 + i % 95) for i in range(5000)): 1971168094,
}
# Bytes that are not UTF-8, and the hash of the string that Java makes of them.
JAVA_HASHES_OF_BROKEN_BYTES = {
    b"\xffa": 2031620,
    b"\xe4\xb8x": 2031643,
    b"\xf0\x9f\x9a": 65533,
    b"\xc0\x80": 2097056,
    b"\xed\xa0\x80": 65533,
    b"\xe0\x80\x80": 65074269,
    b"\xf4\x90\x80\x80": 2017367872,
}
UNIQUE_IDS = st.text("0123456789ABCDEF", min_size=32, max_size=32)


def by_definition(text: str) -> int:
    unsigned = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        unsigned = (unsigned * 31 + int.from_bytes(data[at : at + 2], "big")) % (1 << 32)
    return unsigned - (1 << 32) if unsigned >= 1 << 31 else unsigned


@pytest.mark.parametrize(("text", "expected"), JAVA_HASHES.items())
def test_hash_is_that_of_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected
    assert java_hash_bytes(text.encode()) == expected


@pytest.mark.parametrize(("data", "expected"), JAVA_HASHES_OF_BROKEN_BYTES.items())
def test_broken_utf8_hashes_as_the_string_that_java_makes_of_it(data: bytes, expected: int) -> None:
    assert java_hash_bytes(data) == expected


@given(st.text(st.characters(exclude_categories=()), max_size=80))
def test_hash_follows_the_definition_for_any_text(text: str) -> None:
    assert java_hash(text) == by_definition(text)


@given(st.one_of(UNIQUE_IDS, st.text(st.characters(max_codepoint=127), max_size=1200)))
def test_hash_follows_the_definition_for_ids_and_long_ascii(text: str) -> None:
    assert java_hash_bytes(text.encode()) == by_definition(text)


@pytest.mark.parametrize(
    "text", ["N" * 32, "O" * 32, "A-" * 16, "Z" * 56, "0" * 32, "A" * 31 + " "]
)
def test_hash_follows_the_definition_for_upper_case_text_of_an_ids_length(text: str) -> None:
    assert java_hash_bytes(text.encode()) == by_definition(text)


@given(st.text(max_size=20), st.one_of(UNIQUE_IDS, st.just("N" * 32)))
def test_hash_of_prefix_and_id_is_one_sum(prefix: str, unique_id: str) -> None:
    base = id_hash_base(extend_hash(0, prefix.encode()))
    unsigned = (base + int(unique_id.encode().translate(ID_DIGITS), BASE)) & INT_MASK
    assert signed_hash(unsigned) == by_definition(prefix + unique_id)


@pytest.mark.parametrize("text", ["O" * 32, "A-" * 16, "A" * 31 + " ", "_" * 32, "+" + "A" * 31])
def test_what_is_no_id_is_not_read_as_one(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        int(text.encode().translate(ID_DIGITS), BASE)


@given(st.text(max_size=20), st.one_of(UNIQUE_IDS, st.text(max_size=40)))
def test_prefix_hash_extended_by_a_text_is_the_hash_of_both(prefix: str, text: str) -> None:
    prefix_hash = extend_hash(0, prefix.encode())
    assert signed_hash(extend_hash(prefix_hash, text.encode())) == by_definition(prefix + text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("TopicTest#7F0000010B3C1B9D4AAC0A1B2C3D0001", 1887420860), ("TagA", 2598919)],
)
def test_index_key_hash_is_the_absolute_value(text: str, expected: int) -> None:
    assert index_key_hash(extend_hash(0, text.encode())) == expected


def test_index_key_hash_of_the_smallest_integer_is_zero() -> None:
    assert index_key_hash(extend_hash(0, b"polygenelubricants")) == 0
