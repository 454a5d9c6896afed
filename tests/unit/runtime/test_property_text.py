"""Java property text, as java.util.Properties reads it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downrange.runtime.property_text import (
    Property,
    PropertyTextError,
    read_properties,
    write_properties,
)


def as_dict(data: bytes) -> dict[str, str]:
    return {entry.key: entry.value for entry in read_properties(data)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("  a = 1  ", {"a": "1  "}),
        ("a:1\nb 2\nc\t=\t3", {"a": "1", "b": "2", "c": "3"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b:c", {"a": "=b:c"}),
        ("# no\n ! no\n\n\t\na=1#2", {"a": "1#2"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=one \\\n   two\\\n\n", {"a": "one two"}),
        ("a=ends with \\\\\nb=2", {"a": "ends with \\", "b": "2"}),
        ("a=x\\", {"a": "x"}),
        ("a\\ b\\=c=1", {"a b=c": "1"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=caf\\u00e9 \\u4E2d", {"a": "café 中"}),
        ("a=1\na=2", {"a": "2"}),
        ("=x", {"": "x"}),
    ],
)
def test_text_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert as_dict(text.encode()) == expected


def test_utf_8_and_latin_1_are_both_read() -> None:
    assert as_dict("a=é".encode()) == {"a": "é"}
    assert as_dict("a=é".encode("latin-1")) == {"a": "é"}
    assert as_dict(b"\xef\xbb\xbfa=1") == {"a": "1"}


def test_a_property_knows_its_place() -> None:
    properties = read_properties(b"# c\na=1 \\\n 2\nb=3", "broker.conf")
    assert properties == [
        Property("a", "1 2", "broker.conf", 2),
        Property("b", "3", "broker.conf", 4),
    ]
    assert properties[1].place == "broker.conf, line 4"
    assert Property("a", "1", "--port").place == "--port"


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "\\u=1"])
def test_a_broken_escape_names_its_line(text: str) -> None:
    with pytest.raises(PropertyTextError, match=r"conf, line 2: \\u"):
        read_properties(b"x=1\n" + text.encode(), "conf")


def test_text_is_written_sorted_and_plain_where_it_can_be() -> None:
    written = write_properties({"b": "x:y;z=1", "a": " C:\\dir\n"})
    assert written == b"a=\\ C:\\\\dir\\n\nb=x:y;z=1\n"


@given(st.dictionaries(st.text("aB= :#!\\é\t\n", min_size=1), st.text("aB= :#!\\é\t\n\r\f")))
def test_what_is_written_is_read_again(properties: dict[str, str]) -> None:
    assert as_dict(write_properties(properties)) == properties
