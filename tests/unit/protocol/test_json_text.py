"""The writer: bytes as fastjson of Apache RocketMQ 5.5.0 writes them, in both forms."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from downrange.protocol import json_text
from downrange.protocol.errors import LocalProtocolError
from downrange.protocol.json_text import write_json, write_json_steps
from downrange.runtime.slices import at_once


class Key(msgspec.Struct, frozen=True):
    topic: str
    broker: str


class Bean(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    zebra_id: int = 1
    alpha: str | None = None
    clientID: str = "c"  # noqa: N815 - upper case sorts before lower case
    client_addr: bool = True
    table: dict[int, str] = msgspec.field(default_factory=dict)


def test_members_come_in_alphabetical_order_and_null_ones_are_left_out() -> None:
    assert write_json(Bean()) == b'{"clientAddr":true,"clientID":"c","table":{},"zebraId":1}'


def test_numbers_as_keys_are_bare_or_quoted_and_sorted_as_numbers() -> None:
    table = {10: "a", 9: "b", 0: "c"}
    assert write_json(table) == b'{10:"a",9:"b",0:"c"}'
    assert write_json(table, strict=True) == b'{"0":"c","9":"b","10":"a"}'


def test_texts_as_keys_are_sorted_in_the_strict_form_only() -> None:
    assert write_json({"b": 1, "a": 2}) == b'{"b":1,"a":2}'
    assert write_json({"b": 1, "a": 2}, strict=True) == b'{"a":2,"b":1}'


def test_an_object_may_be_a_key_in_the_loose_form_only() -> None:
    table = {Key("T", "b"): 9}
    assert write_json(table) == b'{{"broker":"b","topic":"T"}:9}'
    with pytest.raises(LocalProtocolError, match="no JSON key"):
        write_json(table, strict=True)


def test_escapes_are_those_of_fastjson_2() -> None:
    text = '\x0b\x1f\x7f\u2028é😀/\\"\b\f\n\r\t\x00'
    assert write_json(text) == (
        b'"\\u000b\\u001f\x7f\xe2\x80\xa8\xc3\xa9\xf0\x9f\x98\x80/\\\\\\"\\b\\f\\n\\r\\t\\u0000"'
    )


def test_lists_numbers_and_literals() -> None:
    value: list[object] = [
        1,
        1.5,
        0.0,
        True,
        None,
        (),
        [],
        {},
        {"n": None},
        float("nan"),
        float("inf"),
    ]
    assert write_json(value) == b"[1,1.5,0.0,true,null,[],[],{},{},null,null]"


def test_a_list_that_ends_with_a_comma_text_is_closed_rightly() -> None:
    assert write_json([","]) == b'[","]'


@pytest.mark.parametrize("value", ["\ud800", b"bytes", {1.5: 1}, {"a": {None: 1}}])
def test_what_has_no_json_form_is_our_own_fault(value: object) -> None:
    with pytest.raises(LocalProtocolError):
        write_json(value)


_leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
_values = st.recursive(
    _leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=4)
        | st.dictionaries(st.builds(Key, st.text(), st.text()), inner, max_size=2)
        | st.builds(Bean, alpha=st.text(), table=st.dictionaries(st.integers(), st.text()))
    ),
    max_leaves=20,
)


@given(_values)
def test_in_steps_the_same_is_written(value: object) -> None:
    assert at_once(write_json_steps(value)) == write_json(value)


def test_a_long_text_is_joined_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "_PARTS_MAX", 3)
    for value in ([[], {}, [1, ","], {"a": []}, 2], {1: {2: [3, {}]}, 4: Bean(alpha="x")}, []):
        assert at_once(write_json_steps(value)) == write_json(value)


def test_what_has_no_json_form_is_our_own_fault_in_steps_too() -> None:
    for value in ({b"a": 1}, [object()], ["\ud800"]):
        with pytest.raises(LocalProtocolError):
            at_once(write_json_steps(value))
