"""JSON as it stands in RocketMQ's configuration files; the golden text comes from fastjson 2."""

import pytest
from msgspec import Struct

from downrange.protocol.errors import LocalProtocolError
from downrange.protocol.pretty_json import write_pretty_json


class Bean(Struct, rename="camel"):
    zone_name: str = "z"
    brokers: dict[int, str | None] | None = None


def test_members_stand_one_a_line_with_tabs() -> None:
    text = write_pretty_json({"s": "x", "n": None, "m": {}, "t": True, "a": (1, 2), "q": {10: -1}})
    assert (
        text == b'{\n\t"s":"x",\n\t"m":{},\n\t"t":true,\n\t"a":[1,2],\n\t"q":{\n\t\t10:-1\n\t}\n}'
    )


def test_list_stands_one_element_a_line_and_an_empty_one_has_an_empty_line() -> None:
    assert write_pretty_json(["x", []]) == b'[\n\t"x",\n\t[\n\t\t\n\t]\n]'


def test_fields_of_a_bean_are_sorted_by_their_wire_names_and_nulls_left_out() -> None:
    assert write_pretty_json(Bean()) == b'{\n\t"zoneName":"z"\n}'
    full = Bean(brokers={1: "a", 0: None})
    assert write_pretty_json(full) == b'{\n\t"brokers":{\n\t\t1:"a"\n\t},\n\t"zoneName":"z"\n}'


def test_text_is_escaped_as_fastjson_does() -> None:
    controls = "".join(map(chr, range(0x20)))
    expected = "".join(
        {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}.get(code, f"\\u{code:04x}")
        for code in range(0x20)
    )
    assert write_pretty_json(controls) == f'"{expected}"'.encode()
    plain = "/<>&'\x7f\x80\xa0订单\u2028\ufeff\uffff\N{ROCKET}"
    assert write_pretty_json(plain) == f'"{plain}"'.encode()
    assert write_pretty_json('"\\') == b'"\\"\\\\"'


@pytest.mark.parametrize("value", [1.5, {1.5: 1}, {"a": object()}, "\ud83d"])
def test_value_without_a_form_is_our_own_mistake(value: object) -> None:
    with pytest.raises(LocalProtocolError):
        write_pretty_json(value)
