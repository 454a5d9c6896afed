"""Comparisons of SQL92 expressions: which operands may stand there, and what comes out.

    text with text        = and <> by characters; < > <= >= read both as doubles
    text with a number    the text is read as the number's type: Integer, Long or Double
    number with number    as doubles if one of them is one
    text with TRUE/FALSE  = and <>, text on the left: "true" in any case is true, all else false

Text that cannot be read makes the evaluation fail. `=` of a missing left side is unknown, of a
missing right side alone is false, and of two missing sides is true.
"""

import operator
from collections.abc import Callable

from downrange.filtering.errors import FilterSyntaxError
from downrange.filtering.java_numbers import compare_doubles, parse_double, parse_int, parse_long
from downrange.filtering.sql_term import (
    NULL,
    Condition,
    EvaluationError,
    Joint,
    Number,
    NumberKind,
    Properties,
    Property,
    Term,
    Text,
    Value,
    Verdict,
    joined,
)

Comparison = Callable[[int | float, int | float], bool]

ORDERINGS: dict[str, Comparison] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_MIRRORED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}


def _parse_double_with_nan_last(text: str) -> float:
    # For Java NaN is above all numbers. A literal is finite, so infinity stands for it as well.
    value = parse_double(text)
    return value if value == value else float("inf")  # noqa: PLR0124 -- false for NaN alone


_READERS: dict[NumberKind, Callable[[str], int | float]] = {
    NumberKind.INT: parse_int,
    NumberKind.LONG: parse_long,
    NumberKind.DOUBLE: _parse_double_with_nan_last,
}


def equality(left: Term, right: Term, position: int) -> Condition:
    """The condition `left = right`."""
    if left is NULL or right is NULL:
        raise FilterSyntaxError(position, "NULL equals nothing; expected IS NULL or IS NOT NULL")
    if isinstance(left, Condition) and left.is_literal and _is_plain_literal(right):
        raise FilterSyntaxError(position, "TRUE and FALSE cannot be compared with a literal")
    if isinstance(left, Property) and isinstance(right, Text):
        return _property_is_text(left.name, right.value)
    if isinstance(left, Property) and isinstance(right, Number):
        return _property_to_number(left.name, operator.eq, right)
    get_left, get_right = left.evaluate, right.evaluate
    number = next((side for side in (left, right) if isinstance(side, Number)), None)
    read = _READERS[number.kind] if number is not None else None

    def evaluate(properties: Properties) -> Verdict:
        left_value, right_value = get_left(properties), get_right(properties)
        if left_value is None:
            return True if right_value is None else None
        return right_value is not None and _equal(left_value, right_value, read)

    return Condition(evaluate=evaluate, depth=1 + max(left.depth, right.depth))


def ordering(sign: str, left: Term, right: Term, position: int) -> Condition:
    """The condition that `left` is `>`, `>=`, `<` or `<=` than `right`."""
    for side in (left, right):
        if isinstance(side, Text | Condition):
            raise FilterSyntaxError(position, f"expected numbers and properties around {sign}")
    if isinstance(left, Property) and isinstance(right, Number):
        return _property_to_number(left.name, ORDERINGS[sign], right)
    if isinstance(left, Number) and isinstance(right, Property):
        return _property_to_number(right.name, ORDERINGS[_MIRRORED[sign]], left)
    get_left, get_right = left.evaluate, right.evaluate
    in_order = ORDERINGS[sign]

    def evaluate(properties: Properties) -> Verdict:
        left_value = get_left(properties)
        if left_value is None:
            return None
        right_value = get_right(properties)
        return None if right_value is None else in_order(_compare(left_value, right_value), 0)

    return Condition(evaluate=evaluate, depth=1 + max(left.depth, right.depth))


def between(term: Term, low: Term, high: Term, position: int) -> Condition:
    """BETWEEN, both ends included; literals must be in order."""
    if _is_literal_number(low) and _is_literal_number(high):
        low_value, high_value = low.evaluate({}), high.evaluate({})
        if _compare(high_value, low_value) < 0:
            raise FilterSyntaxError(position, f"{low_value} is above {high_value} in BETWEEN")
    return joined(
        Joint.AND, [ordering(">=", term, low, position), ordering("<=", term, high, position)]
    )


def not_between(term: Term, low: Term, high: Term, position: int) -> Condition:
    """NOT BETWEEN, whose ends may be in any order."""
    return joined(
        Joint.OR, [ordering("<", term, low, position), ordering(">", term, high, position)]
    )


def _property_is_text(name: str, text: str) -> Condition:
    def evaluate(properties: Properties) -> Verdict:
        value = properties.get(name)
        return None if value is None else value == text

    return Condition(evaluate=evaluate, depth=2)


def _property_to_number(name: str, holds: Comparison, number: Number) -> Condition:
    read = _READERS[number.kind]
    wanted = number.value

    def evaluate(properties: Properties) -> Verdict:
        value = properties.get(name)
        return None if value is None else holds(read(value), wanted)

    return Condition(evaluate=evaluate, depth=2)


def _equal(left: Value, right: Value, read: Callable[[str], int | float] | None) -> bool:
    """Whether two values that are there are equal; `read` for the number among them, if any."""
    if isinstance(left, bool):
        if isinstance(right, str):
            # RocketMQ casts the wrong side here (ComparisonExpression.__compare) and fails.
            raise EvaluationError("a condition cannot be compared with text on its right")
        return left is right
    if isinstance(right, bool):
        return isinstance(left, str) and (left.lower() == "true") is right
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    if read is not None and isinstance(left, str):
        left = read(left)
    if read is not None and isinstance(right, str):
        right = read(right)
    return _compare(left, right) == 0


def _compare(left: Value, right: Value) -> int:
    """Less than, equal to or greater than 0, as `left` is compared to `right`."""
    if isinstance(left, int) and isinstance(right, int):
        return (left > right) - (left < right)
    return compare_doubles(_as_double(left), _as_double(right))


def _as_double(value: Value) -> float:
    if isinstance(value, str):
        return parse_double(value)
    assert value is not None  # asked before
    return float(value)


def _is_plain_literal(term: Term) -> bool:
    return isinstance(term, Text) or _is_literal_number(term)


def _is_literal_number(term: Term) -> bool:
    return isinstance(term, Number) and term.is_literal
