"""Promises of reading numbers as Java does; test_sql92 compares with Java's own verdicts."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downrange.filtering.java_numbers import compare_doubles, parse_double, parse_int, parse_long


@given(st.integers(-(2**31), 2**31 - 1))
def test_each_int_is_read_back(value: int) -> None:
    assert parse_int(str(value)) == parse_long(str(value)) == value
    assert parse_int(f"{'-' if value < 0 else '+'}{abs(value):06000d}") == value


@given(st.floats())
def test_each_double_is_read_back_from_decimal_and_hexadecimal_text(value: float) -> None:
    name = repr(value).replace("inf", "Infinity").replace("nan", "NaN")
    assert compare_doubles(parse_double(f" {name}\t"), value) == 0
    if "N" not in name and "I" not in name:
        assert compare_doubles(parse_double(value.hex() + "d"), value) == 0


@pytest.mark.parametrize(
    "text", ["", "+", "-", " 5", "5 ", "5L", "1_0", "0x5", "5.0", "\U0001d7ce"]
)
@pytest.mark.parametrize("parse", [parse_int, parse_long])
def test_no_integer_is_read_in_other_text(parse: Callable[[str], int], text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        parse(text)


@pytest.mark.parametrize(
    "text", ["", "x", "1_0", "inf", "nan", "\u0665", "0x1", "0x1.8", "5dd", "NaNd"]
)
def test_no_double_is_read_in_other_text(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        parse_double(text)


def test_numbers_out_of_range_are_refused() -> None:
    for parse, bound in ((parse_int, 2**31), (parse_long, 2**63)):
        assert parse(str(-bound)) == -bound
        for text in (str(bound), str(-bound - 1), "9" * 5000):
            with pytest.raises(ValueError, match="-bit number"):
                parse(text)


@given(st.floats(), st.floats())
def test_doubles_are_ordered_by_their_bits_where_numbers_do_not_decide(a: float, b: float) -> None:
    def rank(value: float) -> int:
        if value != value:  # noqa: PLR0124 -- true for NaN alone
            return 1 << 63
        bits = int(struct.unpack(">q", struct.pack(">d", value))[0])
        return bits if bits >= 0 else -(bits & ((1 << 63) - 1)) - 1

    assert compare_doubles(a, b) == (rank(a) > rank(b)) - (rank(a) < rank(b))
