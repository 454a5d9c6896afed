"""SQL92 expressions over the properties of messages, as RocketMQ's broker evaluates them."""

from collections.abc import Callable
from dataclasses import dataclass

from downrange.filtering.sql_lexer import TokenKind
from downrange.filtering.sql_parser import Parser
from downrange.filtering.sql_term import Properties, Verdict


@dataclass(frozen=True, slots=True)
class SqlExpression:
    """A compiled expression; it has no state, so anyone may share and keep it.

    `ignored_from` is the position from which on the text is not part of the expression, or None:
    `a LIKE 'x'` is the property `a` and a rest that RocketMQ does not look at. It is worth a
    warning to whoever wrote it.
    """

    text: str
    property_names: tuple[str, ...]
    ignored_from: int | None
    condition: Callable[[Properties], Verdict]

    def evaluate(self, properties: Properties) -> Verdict:
        """True, False, or None if the answer is unknown or the evaluation failed."""
        try:
            return self.condition(properties)
        except ValueError:  # text that is no number where one is needed
            return None

    def matches(self, properties: Properties) -> bool:
        """Whether a message with these properties is wanted."""
        return self.evaluate(properties) is True


def compile_sql92(text: str) -> SqlExpression:
    """The expression in the text; `FilterSyntaxError` says where and what else was expected."""
    parser = Parser(text)
    condition = parser.parse()
    rest = parser.token
    return SqlExpression(
        text=text,
        property_names=parser.property_names,
        ignored_from=None if rest.kind is TokenKind.END else rest.position,
        condition=condition.evaluate,
    )
