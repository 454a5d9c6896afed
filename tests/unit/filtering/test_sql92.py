"""Promises of SQL92 expressions, and Java's verdicts on them.

The verdicts were given by RocketMQ 5.5.0 (FilterFactory, type SQL92): hand-made corner cases, and
expressions of a seeded generator that follows the grammar, with wrong types and missing pieces
among them; a sixth of what it made was kept, so that each verdict is there often.
"""

import json
import time
from pathlib import Path
from typing import TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downrange.filtering.errors import FilterSyntaxError
from downrange.filtering.sql92 import SqlExpression, compile_sql92
from downrange.filtering.sql_parser import EXPRESSION_CHARS_MAX
from downrange.filtering.sql_term import DEPTH_MAX


class Verdicts(TypedDict):
    cases: list[tuple[str, dict[str, str], str]]
    number_expressions: list[str]
    numbers: dict[str, str]


JAVA: Verdicts = json.loads(
    Path(__file__).with_name("sql92_verdicts.json").read_text(encoding="utf-8")
)
REFUSED, FAILED = "R", "E"
LETTERS = {True: "T", False: "F", None: "N"}

PIECES = (
    *(
        "a",
        "b",
        "5",
        "-1.5",
        "'x'",
        "''",
        "TRUE",
        "NULL",
        "(",
        ")",
        ",",
        "+",
        "-",
        "--",
        "\n",
        "/*",
    ),
    *("=", "<>", ">", "<=", "AND", "OR", "NOT", "IS", "IN", "BETWEEN", "CONTAINS", "'", "#", "1e9"),
)


def verdict(expression: str, properties: dict[str, str]) -> str:
    try:
        compiled = compile_sql92(expression)
    except FilterSyntaxError:
        return REFUSED
    try:
        return LETTERS[compiled.condition(properties)]
    except ValueError:
        return FAILED


def test_every_verdict_is_javas() -> None:
    wrong = [
        (expression, properties, java, ours)
        for expression, properties, java in JAVA["cases"]
        if (ours := verdict(expression, properties)) != java
    ]
    assert wrong == []


def test_numbers_in_properties_are_read_as_java_reads_them() -> None:
    expressions = JAVA["number_expressions"]
    ours = {
        text: "".join(verdict(expression, {"a": text, "b": "5"}) for expression in expressions)
        for text in JAVA["numbers"]
    }
    assert ours == JAVA["numbers"]


@pytest.mark.parametrize(
    ("expression", "position", "problem"),
    [
        ("", 0, "found the end; expected a property, a literal or ("),
        ("a = ", 4, "found the end; expected a property, a literal or ("),
        ("a == 5", 3, "found '='; expected a property, a literal or ("),
        ("a != 5", 2, "found '!'; expected a name"),
        ("a IN (5)", 6, "found '5'; expected a string"),
        ("a IN ('5'", 9, "found the end; expected )"),
        ("a BETWEEN 1 OR 2", 12, "found 'OR'; expected AND"),
        ("a BETWEEN 2 AND 1", 2, "2 is above 1"),
        ("a IS 5", 5, "found '5'; expected NULL"),
        ("a NOT 5", 6, "found '5'; expected one of BETWEEN, IN"),
        ("a = NULL", 2, "expected IS NULL"),
        ("a > 'x'", 2, "expected numbers and properties around >"),
        ("NOT a IN ('5')", 6, "expected a property before IN"),
        ("a = 'x", 4, "expected ' at its end"),
        ("a /* x", 2, "expected */"),
        ("a AND 5", 6, "found a value; expected a condition"),
        ("a > 0.0", 4, "expected a fraction above 0"),
        ("a = 9223372036854775808", 4, "expected a number of at most 9223372036854775807"),
    ],
)
def test_an_error_names_the_place_and_what_was_expected(
    expression: str, position: int, problem: str
) -> None:
    with pytest.raises(FilterSyntaxError) as raised:
        compile_sql92(expression)
    assert raised.value.position == position
    assert problem in raised.value.problem


def test_what_follows_the_expression_is_ignored_and_can_be_told() -> None:
    assert compile_sql92("a LIKE 'x'").ignored_from == 2
    assert compile_sql92("a = 5 -- no line end").ignored_from == 6
    assert compile_sql92("a = 5 -- line end\n /* that is all */ ").ignored_from is None


def test_properties_are_named_once_in_order_of_appearance() -> None:
    assert compile_sql92("b > 1 AND a = 'x' OR b IN ('5') c").property_names == ("b", "a")


def test_a_failed_evaluation_is_unknown_and_no_match() -> None:
    expression = compile_sql92("NOT (a > 5) OR TRUE")
    assert expression.evaluate({"a": "text"}) is None
    assert not expression.matches({"a": "text"})
    assert expression.matches({"a": "7"})
    assert not compile_sql92("a > 5").matches({})


def test_numbers_beyond_32_bits_need_a_literal_that_is_too() -> None:
    assert not compile_sql92("a > 5").matches({"a": "3000000000"})
    assert compile_sql92("a > 5.0").matches({"a": "3000000000"})
    assert compile_sql92("a > 2147483648").matches({"a": "3000000000"})


@pytest.mark.parametrize(
    "deep",
    [
        "(" * (DEPTH_MAX + 1) + "a = 1" + ")" * (DEPTH_MAX + 1),
        "(" * 15_000,
        "NOT " * (DEPTH_MAX + 1) + "a",
        "-" * 15_000 + "a IS NULL",
        "a = b" + " = b" * DEPTH_MAX,
        "a" + " IS NULL" * (DEPTH_MAX + 1),
        "a" + " CONTAINS 'x'" * (DEPTH_MAX + 1),
        "+(" * (DEPTH_MAX + 1) + "a",
    ],
)
def test_nesting_has_a_bound_with_a_clear_error(deep: str) -> None:
    with pytest.raises(FilterSyntaxError, match=f"at most {DEPTH_MAX} levels"):
        compile_sql92(deep)


@pytest.mark.parametrize(
    "deep",
    [
        "(" * DEPTH_MAX + "a = 1" + ")" * DEPTH_MAX,
        "NOT (" * 98 + "a = 1" + ")" * 98,
        "(" * 99 + "a = 1" + " OR b = 1)" * 99,
        "(a = 1 AND (b = 2 OR " * 48 + "a = 1" + "))" * 48,
    ],
)
def test_nesting_up_to_the_bound_compiles_and_evaluates(deep: str) -> None:
    assert compile_sql92(deep).evaluate({"a": "1", "b": "1"}) is True


def test_length_has_a_bound_with_a_clear_error() -> None:
    with pytest.raises(FilterSyntaxError, match=f"at most {EXPRESSION_CHARS_MAX} characters"):
        compile_sql92("a = 1" + " " * EXPRESSION_CHARS_MAX)


@pytest.mark.parametrize(
    "piece",
    ["a > --1 OR ", "a = 1 AND b = 2 OR ", "a /**/ = '''' OR "],
)
def test_time_grows_with_the_length_alone(piece: str) -> None:
    def seconds(repeats: int) -> float:
        text = piece * repeats + "a = 1"
        start = time.process_time()
        compile_sql92(text)
        return time.process_time() - start

    many = EXPRESSION_CHARS_MAX // len(piece) - 1
    few = many // 16
    # 16 times the length; quadratic time would be 256 times as much.
    least = [min(seconds(repeats) for _ in range(3)) for repeats in (few, many)]
    assert least[1] < 80 * max(least[0], 0.001)


def test_a_thousand_alternatives_need_no_depth() -> None:
    expression = compile_sql92(" OR ".join(f"a = {number}" for number in range(1_300)))
    assert expression.evaluate({"a": "1299"}) is True
    assert expression.evaluate({"a": "1300"}) is False


def position_of_error(text: str) -> int | None:
    try:
        compile_sql92(text).evaluate({"a": "5"})
    except FilterSyntaxError as error:
        return error.position
    return None


@given(st.lists(st.sampled_from(PIECES), max_size=30).map(" ".join) | st.text(max_size=40))
def test_any_text_is_compiled_or_refused_at_a_place_within_it(text: str) -> None:
    assert 0 <= (position_of_error(text) or 0) <= len(text)


@given(st.text(), st.text(min_size=1))
def test_any_string_can_be_written_with_its_quotes_doubled(value: str, other: str) -> None:
    literal = "'" + value.replace("'", "''") + "'"
    expression = compile_sql92(f"a = {literal}")
    assert expression.evaluate({"a": value}) is True
    assert expression.evaluate({"a": other}) is (other == value)


CONDITIONS = ("a = 1", "b = 1", "c = 1", "TRUE", "FALSE", "NULL")
BITS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(("1", "2")))


@given(st.sampled_from(CONDITIONS), st.sampled_from(CONDITIONS), BITS)
def test_not_turns_and_into_or(left: str, right: str, properties: dict[str, str]) -> None:
    both = compile_sql92(f"NOT (({left}) AND ({right}))")
    either = compile_sql92(f"(NOT ({left})) OR (NOT ({right}))")
    assert both.evaluate(properties) is either.evaluate(properties)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_between_is_two_comparisons(value: int, low: int, high: int) -> None:
    properties = {"a": str(value)}
    outside = compile_sql92(f"a NOT BETWEEN {low} AND {high}")
    assert outside.evaluate(properties) is (value < low or value > high)
    if low <= high:
        inside: SqlExpression = compile_sql92(f"a BETWEEN {low} AND {high}")
        assert inside.evaluate(properties) is (low <= value <= high)
