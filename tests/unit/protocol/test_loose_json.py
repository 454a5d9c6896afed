"""The lenient reader: reads what fastjson writes, refuses what nobody writes, in linear time."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.json_text import write_json
from downrange.protocol.loose_json import (
    DEPTH_MAX,
    DIGITS_MAX,
    JsonValue,
    ObjectKey,
    _LooseReader,
    read_json,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"a",1:"b"}', {"0": "a", "1": "b"}),
        ("{-1:1.50,1.5:-2e3}", {"-1": 1.5, "1.5": -2000.0}),
        ('{{"brokerName":"b","queueId":3,"topic":"T"}:9}',
         {ObjectKey({"brokerName": "b", "queueId": 3, "topic": "T"}): 9}),
        ("{name:'it\\'s',$x_1:null,}", {"name": "it's", "$x_1": None}),
        ("[1,true,false,null,]", [1, True, False, None]),
        ('"\\u0041\\x41\\/\\b\\f\\n\\r\\t\\v\\0\\7\\\'"x', None),
        ("'\\u0041\\x41\\/\\b\\f\\n\\r\\t\\v\\0\\7\\\"'", 'AA/\b\f\n\r\t\v\x00\x07"'),
        ("'\\ud83d\\ude00|\\ud83d'", "😀|\ufffd"),
        (" {\t'a' :\r\n 1 , 'b':[ ] } ", {"a": 1, "b": []}),
        ("{'a':1,'a':2}", {"a": 2}),
        ("{null:1,true:2}", {"null": 1, "true": 2}),
        ("'raw \x01 control'", "raw \x01 control"),
    ],
)  # fmt: skip
def test_loose_text_is_read(text: str, value: JsonValue) -> None:
    if value is None:
        with pytest.raises(RemoteProtocolError, match="after the end"):
            read_json(text.encode())
    else:
        assert read_json(text.encode()) == value


def test_broken_utf8_is_replaced_as_in_java() -> None:
    assert read_json(b'{"a":"\xff"}') == {"a": "\ufffd"}


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "{", "[", "{'a'", "{'a':", "{'a':1", "[1", "[1 2]", "{'a' 1}", "{'a':1 'b':2}"),
        *("'open", "'\\", "'\\u12'", "'\\q'", "nul", "tru", "+1", "-", "1.", "--1", "{:1}", "{,}"),
        *("[,1]", "{[1]:2}", "{{'a':[1]}:2}", "{{{'a':1}:1}:2}", "1 2", "{'a':\u0661}", "NaN"),
    ],
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="JSON is malformed"):
        read_json(text.encode())


@pytest.mark.parametrize("opening", ["[", "{'a':", "{{'a':", "[{'a':["])
def test_nesting_is_bounded(opening: str) -> None:
    with pytest.raises(RemoteProtocolError, match="nested too deeply"):
        read_json(opening.encode() * 200_000)


def test_strict_nesting_is_bounded_too() -> None:
    with pytest.raises(RemoteProtocolError, match="nested too deeply"):
        read_json(b"[" * 100_000 + b"]" * 100_000)


def test_nesting_up_to_the_bound_is_read() -> None:
    assert read_json(b"[" * DEPTH_MAX + b"'x'" + b"]" * DEPTH_MAX)


def test_numbers_are_bounded() -> None:
    assert read_json(b"['x'," + b"1" * DIGITS_MAX + b"]")
    for digits in (b"1" * (DIGITS_MAX + 1), b"1" * 1_000_000):
        with pytest.raises(RemoteProtocolError, match="too long"):
            read_json(b"['x'," + digits + b"]")


def test_object_keys_that_look_alike_to_a_hash_do_not_slow_the_reader() -> None:
    # Python gives all these numbers the same hash, so a table keyed by them would be quadratic.
    modulus = 2**61 - 1
    text = ",".join(f"{{'n':{count * modulus}}}:1" for count in range(20_000))
    assert len(read_json(f"{{{text}}}".encode()) or ()) == 20_000  # type: ignore[arg-type]


def test_object_keys_compare_by_members_in_any_order() -> None:
    key = ObjectKey({"a": 1, "b": "x"})
    assert key == ObjectKey({"b": "x", "a": 1})
    assert hash(key) == hash(ObjectKey({"b": "x", "a": 1}))
    assert key != ObjectKey({"a": 1})
    assert (key["a"], len(key), list(key)) == (1, 2, ["a", "b"])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)  # fmt: skip


@given(VALUES)
def test_both_readers_agree_on_strict_json(value: JsonValue) -> None:
    data = msgspec.json.encode(value)
    assert read_json(data) == _LooseReader(data.decode()).document()


@given(st.binary(max_size=60) | st.text("{}[]:,'\"\\0123abcu-. \n", max_size=60).map(str.encode))
def test_any_bytes_give_a_value_or_a_protocol_error(data: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        read_json(data)


@given(
    st.dictionaries(
        st.integers(-9, 9) | st.text("ab\x01é\u2028😀\\\"'", max_size=5),
        st.integers(-9, 9) | st.text("ab\x01é\u2028😀\\\"'", max_size=5) | st.booleans(),
    )
)
def test_what_is_written_in_either_form_is_read_back(value: dict[int | str, object]) -> None:
    keyed = {str(key): member for key, member in value.items()}
    if len(keyed) == len(value):
        assert read_json(write_json(value)) == keyed
        assert read_json(write_json(value, strict=True)) == keyed
