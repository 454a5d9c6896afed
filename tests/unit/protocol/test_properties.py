"""The property text; what is dropped was asked of Java's MessageDecoder."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from downrange.protocol import property_names
from downrange.protocol.errors import LocalProtocolError
from downrange.protocol.properties import (
    PROPERTIES_BYTES_MAX,
    append_property,
    decode_properties,
    decode_property_text,
    encode_properties,
    encode_property_text,
    find_property,
    join_keys,
    remove_property,
    replace_property,
    split_key_bytes,
    split_keys,
)

# Text of a message with key "key1" and tag "TagA" as MessageDecoder writes it.
JAVA_TEXT = bytes.fromhex("4b455953016b657931025741495401747275650254414753015461674102")
JAVA_READS = {
    b"A\x01b\x02C\x01d": {"A": "b", "C": "d"},
    b"A\x01\x02B\x01x\x02": {"B": "x"},
    b"\x01v\x02K\x01v\x02": {"K": "v"},
    b"A\x01b\x01c\x02": {"A": "b\x01c"},
    b"AB\x02CD\x01e\x02": {"CD": "e"},
    b"ABC\x02D\x01e\x02": {"D": "e"},
    b"A\x01b\x02A\x01c\x02": {"A": "c"},
    b"\x02\x02A\x01b\x02": {"A": "b"},
    b"A\x01": {},
    b"AAA": {},
    b"A\x01b": {"A": "b"},
    b"\x01\x01\x01\x02X\x01y": {"X": "y"},
    b"A\x01\x01\x02": {"A": "\x01"},
}
PLAIN = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)
# Few letters and many separators, so that names repeat, end in each other and stand in values.
TANGLED = st.text("AB\x01\x01\x02\x02", max_size=30).map(str.encode)


def test_what_java_wrote_is_read_and_written_again() -> None:
    properties = decode_properties(JAVA_TEXT)
    assert properties == {"KEYS": "key1", "WAIT": "true", "TAGS": "TagA"}
    assert list(properties) == ["KEYS", "WAIT", "TAGS"]
    assert encode_properties(properties) == JAVA_TEXT


@pytest.mark.parametrize(("text", "expected"), JAVA_READS.items())
def test_damaged_text_is_read_as_java_reads_it(text: bytes, expected: dict[str, str]) -> None:
    assert decode_properties(text) == expected
    assert decode_property_text(text.decode()) == expected
    for name in ("A", "B", "C", "D", "K", "X", "AB", "CD"):
        value = expected.get(name)
        assert find_property(text, name.encode()) == (None if value is None else value.encode())


@given(st.dictionaries(PLAIN, PLAIN, max_size=8))
def test_properties_survive_the_way_through_text(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties
    assert decode_property_text(encode_property_text(properties)) == properties


@given(st.binary())
def test_any_bytes_can_be_read(text: bytes) -> None:
    decode_properties(text)


@given(TANGLED, st.sampled_from(["A", "B", "AB", "BA", "AA"]))
@example(b"XA\x01b\x02A\x01c", "A")
@example(b"A\x01c\x02A\x01\x02", "A")
def test_search_finds_what_decoding_finds(text: bytes, name: str) -> None:
    value = decode_properties(text).get(name)
    assert find_property(text, name.encode()) == (None if value is None else value.encode())


@given(TANGLED, st.sampled_from(["A", "B", "AB"]))
def test_removed_property_is_gone_and_the_others_stay(text: bytes, name: str) -> None:
    expected = decode_properties(text)
    expected.pop(name, None)
    assert decode_properties(remove_property(text, name.encode())) == expected


@given(TANGLED, st.sampled_from(["A", "B", "AB"]))
def test_replaced_property_has_the_new_value_and_the_others_stay(text: bytes, name: str) -> None:
    expected = decode_properties(text) | {name: "new"}
    assert decode_properties(replace_property(text, name.encode(), b"new")) == expected


def test_replaced_property_keeps_its_place() -> None:
    assert replace_property(b"A\x011\x02B\x012\x02", b"A", b"9") == b"A\x019\x02B\x012\x02"
    assert replace_property(b"A\x011\x02B\x012", b"C", b"3") == b"A\x011\x02B\x012\x02C\x013\x02"


def test_property_is_appended_behind_a_missing_separator() -> None:
    assert append_property(b"A\x011", b"B", b"2") == b"A\x011\x02B\x012\x02"
    assert append_property(b"", b"B", b"2") == b"B\x012\x02"


@pytest.mark.parametrize(
    ("name", "value"), [("a\x01", "b"), ("a\x02", "b"), ("a", "\x01"), ("a", "b\x02c"), ("", "b")]
)
def test_separators_in_names_and_values_are_refused(name: str, value: str) -> None:
    with pytest.raises(LocalProtocolError):
        encode_properties({name: value})
    with pytest.raises(LocalProtocolError):
        replace_property(b"", name.encode(), value.encode())
    with pytest.raises(LocalProtocolError):
        append_property(b"", name.encode(), value.encode())


def test_longest_text_is_written_and_one_byte_more_is_refused() -> None:
    longest = "v" * (PROPERTIES_BYTES_MAX - 3)
    assert len(encode_properties({"a": longest})) == PROPERTIES_BYTES_MAX
    with pytest.raises(LocalProtocolError, match="32768"):
        encode_properties({"a": longest + "v"})
    with pytest.raises(LocalProtocolError, match="32768"):
        append_property(b"", b"a", longest.encode() + b"v")


def test_half_a_character_is_refused() -> None:
    with pytest.raises(LocalProtocolError):
        encode_properties({"a": "\ud83d"})


def test_keys_are_separated_by_blanks_alone() -> None:
    assert split_keys(" a  b\tc ") == ["a", "b\tc"]
    assert split_key_bytes(b" a  b\tc ") == [b"a", b"b\tc"]
    assert join_keys(["a", "b"]) == "a b"
    with pytest.raises(LocalProtocolError):
        join_keys(["a b"])


def test_reserved_names_are_known_names_without_the_transient_ones() -> None:
    known = {
        value
        for name, value in vars(property_names).items()
        if name.isupper() and name != "RESERVED"
    }
    assert known > property_names.RESERVED
    assert len(property_names.RESERVED) == 54
