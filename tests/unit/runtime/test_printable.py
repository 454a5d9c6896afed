"""Text of others, made safe to show."""

import json

from hypothesis import given
from hypothesis import strategies as st

from downrange.runtime.printable import (
    printable,
    printable_json,
    printable_lines,
    shortened,
    shortened_left,
)


@given(st.text(st.characters(categories=None)))
def test_nothing_printable_ends_a_line_or_drives_a_terminal(text: str) -> None:
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    assert all(ord(char) >= 0x20 and not 0x7F <= ord(char) < 0xA0 for char in shown)
    shown.encode()


def test_ordinary_text_stays_and_the_rest_can_be_read() -> None:
    assert printable("Grüße, 世界 🚀 a\\b") == "Grüße, 世界 🚀 a\\b"
    assert printable("a\r\nb\x1b[2J\x9b\x00\t") == r"a\r\nb\x1b[2J\x9b\x00\t"
    assert printable("a\u202eb\u2028\ud800") == r"a\u202eb\u2028\ud800"
    assert printable_lines("a\x07\nb") == "a\\x07\nb"


@given(st.text())
def test_json_means_the_same_afterwards(text: str) -> None:
    for indent in (None, 2):
        shown = printable_json(json.dumps({"a": [text]}, ensure_ascii=False, indent=indent))
        assert json.loads(shown) == {"a": [text]}
        assert all(len(line.splitlines()) <= 1 for line in shown.split("\n"))


def test_what_is_cut_is_counted() -> None:
    assert shortened("abc", 3) == shortened_left("abc", 3) == "abc"
    assert shortened("abcdef", 2) == "ab... (4 more characters)"
    assert shortened_left("abcdef", 2) == "(4 more characters) ...ef"
