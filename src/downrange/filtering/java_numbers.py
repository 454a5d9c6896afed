"""Text as the number that Java reads in it: `Integer.valueOf`, `Long.valueOf`, `Double.valueOf`.

    integer   sign? digit+                     digits of any script in the BMP, no blanks, in range
    double    blanks* sign? number blanks*     blanks are all characters up to U+0020
    number    NaN | Infinity | decimal [fFdD]? | hexadecimal with "p" exponent [fFdD]?

Doubles have Java's total order: -0.0 is less than 0.0, and NaN is equal to itself and the greatest.
"""

import re
from math import copysign, inf, isnan

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1

_INTEGER = re.compile(r"([+-]?)([^\D\U00010000-\U0010ffff]+)")
# Plain digits up to these lengths are always in range: the usual case, decided fast.
_INT_DIGITS_SAFE = 9
_LONG_DIGITS_SAFE = 18
_LONG_DIGITS_MAX = 19
_BLANKS = "".join(map(chr, range(0x21)))
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL = re.compile(
    r"([+-]?)0[xX]([0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP]([+-]?)0*([0-9]+)[fFdD]?"
)
_HEX_EXPONENT_DIGITS_MAX = 9  # more are far beyond what any mantissa of a property can make up for
_NAMED = {
    sign + name: value * factor
    for sign, factor in (("", 1), ("+", 1), ("-", -1))
    for name, value in (("NaN", float("nan")), ("Infinity", inf))
}


def parse_int(text: str) -> int:
    """The value of `Integer.valueOf(text)`; `ValueError` where Java throws."""
    if len(text) <= _INT_DIGITS_SAFE and text.isdecimal() and text.isascii():
        return int(text)
    value = _parse_integer(text)
    if not INT_MIN <= value <= INT_MAX:
        raise ValueError(f"{text!r} is not a 32-bit number")
    return value


def parse_long(text: str) -> int:
    """The value of `Long.valueOf(text)`; `ValueError` where Java throws."""
    if len(text) <= _LONG_DIGITS_SAFE and text.isdecimal() and text.isascii():
        return int(text)
    value = _parse_integer(text)
    if not LONG_MIN <= value <= LONG_MAX:
        raise ValueError(f"{text!r} is not a 64-bit number")
    return value


def parse_double(text: str) -> float:
    """The value of `Double.valueOf(text)`; `ValueError` where Java throws."""
    match = _DECIMAL.fullmatch(text)
    if match is None:
        text = text.strip(_BLANKS)
        if text in _NAMED:
            return _NAMED[text]
        match = _DECIMAL.fullmatch(text)
    return float(match[1]) if match is not None else _parse_hexadecimal(text)


def compare_doubles(left: float, right: float) -> int:
    """The sign of `Double.compare(left, right)`."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right:
        return int(copysign(1, left) - copysign(1, right)) // 2 if left == 0 else 0
    return int(isnan(left)) - int(isnan(right))


def _parse_integer(text: str) -> int:
    match = _INTEGER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a number")
    # Leading zeros cost nothing in Java; Python would refuse thousands of them.
    digits = "".join(str(int(digit)) for digit in match[2]).lstrip("0")
    if len(digits) > _LONG_DIGITS_MAX:
        raise ValueError(f"{text!r} is not a 64-bit number")
    return int(match[1] + (digits or "0"))


def _parse_hexadecimal(text: str) -> float:
    match = _HEXADECIMAL.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a number")
    sign, mantissa, exponent_sign, exponent = match.groups()
    if not mantissa.strip("0."):
        return float(sign + "0")
    if len(exponent) > _HEX_EXPONENT_DIGITS_MAX:
        return float(sign + ("0" if exponent_sign == "-" else "inf"))
    try:
        return float.fromhex(f"{sign}0x{mantissa}p{exponent_sign}{exponent}")
    except OverflowError:
        return float(sign + "inf")
