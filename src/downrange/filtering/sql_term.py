"""The parts of a compiled SQL92 expression, each a function of a message's properties.

A value is text, a number, True, False or None; None is RocketMQ's null. What the value of a part
can be is known when it is made, so it is checked and chosen then, and not for each message:

    Property    text, or None if the message has no such property
    Text        a string literal
    Number      a number literal, or a negated one
    Nothing     the negation of what is no number: always None
    Condition   True, False or None: comparisons, logic, and the literals TRUE, FALSE and NULL

A function raises `ValueError` if it cannot read a number in a text, and that ends the evaluation of
the whole expression: a failure under NOT or beside TRUE is a failure still.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from downrange.filtering.errors import FilterSyntaxError
from downrange.filtering.java_numbers import INT_MAX, LONG_MAX

Value = str | int | float | None
Verdict = bool | None
Properties = Mapping[str, str]

# Evaluation calls one function inside the other; this many leave Python's stack room to spare.
DEPTH_MAX = 100


class EvaluationError(ValueError):
    """Values that RocketMQ fails to compare."""


class NumberKind(Enum):
    """Java's type of a number, which says how text is read to be compared with it."""

    INT = "Integer"
    LONG = "Long"
    DOUBLE = "Double"


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A part of an expression; `depth` is the number of terms from here to the deepest one."""

    evaluate: Callable[[Properties], Value]
    depth: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Property(Term):
    """The value of a message's property."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Term):
    """A string literal."""

    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(Term):
    """A number; a negated one is not a literal, and some checks are for literals alone."""

    value: int | float
    kind: NumberKind
    is_literal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing(Term):
    """What is always None, or fails."""


class Joint(Enum):
    """How the parts of a condition are joined."""

    AND = "AND"
    OR = "OR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition(Term):
    """What is true, false or unknown of a message."""

    evaluate: Callable[[Properties], Verdict]
    is_literal: bool = False
    joint: Joint | None = None
    parts: tuple["Condition", ...] = ()


TRUE = Condition(evaluate=lambda _: True, is_literal=True)
FALSE = Condition(evaluate=lambda _: False, is_literal=True)
NULL = Condition(evaluate=lambda _: None, is_literal=True)


def property_value(name: str) -> Property:
    """The value of the property of this name."""
    return Property(evaluate=lambda properties: properties.get(name), name=name)


def text_literal(image: str) -> Text:
    """The string that stands in quotes, with each quote inside doubled."""
    value = image[1:-1].replace("''", "'")
    return Text(evaluate=lambda _: value, value=value)


def decimal_literal(image: str, position: int) -> Number:
    """An Integer if it fits, with an L or without, else a Long."""
    digits = image.rstrip("lL")
    value = int(digits) if len(digits) <= len(str(LONG_MAX)) else LONG_MAX + 1
    if value > LONG_MAX:
        raise FilterSyntaxError(position, f"expected a number of at most {LONG_MAX}")
    kind = NumberKind.INT if value <= INT_MAX else NumberKind.LONG
    return Number(evaluate=lambda _: value, value=value, kind=kind, is_literal=True)


def float_literal(image: str, position: int) -> Number:
    """A Double; zero is refused, since RocketMQ takes Double.MIN_VALUE for the least double."""
    value = float(image)
    if value in {0.0, float("inf")}:
        raise FilterSyntaxError(position, "expected a fraction above 0 in the range of doubles")
    return Number(evaluate=lambda _: value, value=value, kind=NumberKind.DOUBLE, is_literal=True)


def negated(term: Term) -> Term:
    """Minus a number; of anything else, nothing. A property is text, so it is nothing, too."""
    if isinstance(term, Number):
        value = -term.value
        return Number(evaluate=lambda _: value, value=value, kind=term.kind, is_literal=False)
    evaluate = term.evaluate

    def nothing(properties: Properties) -> None:
        evaluate(properties)  # it may fail

    return Nothing(evaluate=nothing, depth=term.depth + 1)


def as_condition(term: Term, position: int) -> Condition:
    """The term where a condition must stand; a property's text is never true."""
    if isinstance(term, Condition):
        return term
    if not isinstance(term, Property):
        raise FilterSyntaxError(position, "found a value; expected a condition")
    name = term.name
    return Condition(evaluate=lambda properties: False if name in properties else None)


def inverted(condition: Condition) -> Condition:
    """NOT: unknown stays unknown."""
    evaluate = condition.evaluate

    def inverse(properties: Properties) -> Verdict:
        verdict = evaluate(properties)
        return None if verdict is None else not verdict

    return Condition(evaluate=inverse, depth=condition.depth + 1)


def joined(joint: Joint, conditions: list[Condition]) -> Condition:
    """AND: false if one is false, else unknown if one is unknown; OR likewise with true.

    Parts are asked in order up to the one that decides. A condition of the same joint is taken
    apart, which changes nothing but the depth: long chains are common, with parentheses or without.
    """
    parts: list[Condition] = []
    for condition in conditions:
        parts.extend(condition.parts if condition.joint is joint else (condition,))
    evaluators = tuple(part.evaluate for part in parts)
    decisive = joint is Joint.OR

    def evaluate(properties: Properties) -> Verdict:
        verdict: Verdict = not decisive
        for part in evaluators:
            answer = part(properties)
            if answer is decisive:
                return decisive
            if answer is None:
                verdict = None
        return verdict

    depth = 1 + max(part.depth for part in parts)
    return Condition(evaluate=evaluate, depth=depth, joint=joint, parts=tuple(parts))


def is_null(term: Term) -> Condition:
    """IS NULL, of anything."""
    evaluate = term.evaluate
    return Condition(evaluate=lambda properties: evaluate(properties) is None, depth=term.depth + 1)


def one_of(term: Term, values: list[str], position: int, *, is_inverted: bool) -> Condition:
    """IN and NOT IN, of a property and strings."""
    if not isinstance(term, Property):
        raise FilterSyntaxError(position, "expected a property before IN")
    name = term.name
    wanted = frozenset(values)

    def evaluate(properties: Properties) -> Verdict:
        value = properties.get(name)
        return None if value is None else (value in wanted) is not is_inverted

    return Condition(evaluate=evaluate, depth=2)


_SEARCHES: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def text_search(operator: str, term: Term, searched: str, *, is_inverted: bool) -> Condition:
    """CONTAINS, STARTSWITH, ENDSWITH: never unknown, and false for what is no text, NOT or not."""
    if not searched:
        return Condition(evaluate=lambda _: False)  # RocketMQ does not even look at the value
    search = _SEARCHES[operator]
    evaluate_term = term.evaluate

    def evaluate(properties: Properties) -> Verdict:
        value = evaluate_term(properties)
        return isinstance(value, str) and search(value, searched) is not is_inverted

    return Condition(evaluate=evaluate, depth=term.depth + 1)
