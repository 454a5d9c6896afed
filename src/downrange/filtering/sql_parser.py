"""Parses an SQL92 expression by the grammar of RocketMQ's SelectorParser.

    expression  = conjunction { OR conjunction }
    conjunction = equality { AND equality }
    equality    = comparison { ( "=" | "<>" ) comparison | IS [NOT] NULL }
    comparison  = unary { ( ">" | ">=" | "<" | "<=" ) unary
                        | [NOT] BETWEEN unary AND unary
                        | [NOT] IN "(" string { "," string } ")"
                        | [NOT] ( CONTAINS | STARTSWITH | ENDSWITH ) string }
    unary       = { "+" | "-" | NOT } ( literal | name | "(" expression ")" )

All operators group to the left. NOT binds closest: NOT a = 1 is (NOT a) = 1. The expression ends
where it cannot go on, and what stands behind that is ignored, as RocketMQ ignores it.
"""

from collections.abc import Callable

from downrange.filtering.errors import FilterSyntaxError
from downrange.filtering.sql_comparison import (
    ORDERINGS,
    between,
    equality,
    not_between,
    ordering,
)
from downrange.filtering.sql_lexer import Lexer, Token, TokenKind
from downrange.filtering.sql_term import (
    DEPTH_MAX,
    FALSE,
    NULL,
    TRUE,
    Condition,
    Joint,
    Term,
    as_condition,
    decimal_literal,
    float_literal,
    inverted,
    is_null,
    joined,
    negated,
    one_of,
    property_value,
    text_literal,
    text_search,
)

EXPRESSION_CHARS_MAX = 16_384  # a thousand values in an IN; compiled within 60 ms

_CONSTANTS = {"TRUE": TRUE, "FALSE": FALSE, "NULL": NULL}
_PREFIXES = ("+", "-", "NOT")
_SEARCHES = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_INVERTIBLE = ("BETWEEN", "IN", *_SEARCHES)


class Parser:
    """Parses one expression, once."""

    def __init__(self, text: str) -> None:
        if len(text) > EXPRESSION_CHARS_MAX:
            raise FilterSyntaxError(
                EXPRESSION_CHARS_MAX, f"expected at most {EXPRESSION_CHARS_MAX} characters"
            )
        self._lexer = Lexer(text)
        self._nesting = 0
        self._names: dict[str, None] = {}
        self._token = self._lexer.next_token()

    @property
    def token(self) -> Token:
        """The first token that is not part of the expression."""
        return self._token

    @property
    def property_names(self) -> tuple[str, ...]:
        """The properties that the expression names, each once."""
        return tuple(self._names)

    def parse(self) -> Condition:
        """The condition that the text begins with."""
        return as_condition(self._expression(), 0)

    def _expression(self) -> Term:
        # OR and AND in one function, so that parentheses take less of Python's stack.
        position = self._token.position
        alternatives: list[Condition] = []
        while True:
            term = self._equality()
            if self._token.is_word("AND"):
                conditions = [as_condition(term, position)]
                while self._take("AND"):
                    position = self._token.position
                    conditions.append(as_condition(self._equality(), position))
                term = joined(Joint.AND, conditions)
            if not alternatives and not self._token.is_word("OR"):
                return self._checked(term, position)
            alternatives.append(as_condition(term, position))
            if not self._take("OR"):
                return self._checked(joined(Joint.OR, alternatives), position)
            position = self._token.position

    def _equality(self) -> Term:
        left = self._comparison()
        while True:
            position = self._token.position
            if self._take("="):
                left = equality(left, self._comparison(), position)
            elif self._take("<>"):
                left = inverted(equality(left, self._comparison(), position))
            elif self._take("IS"):
                is_inverted = self._take("NOT")
                self._expect("NULL")
                left = inverted(is_null(left)) if is_inverted else is_null(left)
            else:
                return left
            self._checked(left, position)

    def _comparison(self) -> Term:
        left = self._unary()
        while True:
            token = self._token
            if token.kind is TokenKind.SIGN and token.text in ORDERINGS:
                self._advance()
                left = ordering(token.text, left, self._unary(), token.position)
            elif token.kind is TokenKind.KEYWORD and token.text in {"NOT", *_INVERTIBLE}:
                is_inverted = self._take("NOT")
                left = self._predicate(left, is_inverted=is_inverted)
            else:
                return left
            self._checked(left, token.position)

    def _predicate(self, left: Term, *, is_inverted: bool) -> Condition:
        position = self._token.position
        if self._take("BETWEEN"):
            low = self._unary()
            self._expect("AND")
            bounded = not_between if is_inverted else between
            return bounded(left, low, self._unary(), position)
        if self._take("IN"):
            self._expect("(")
            values = [self._string()]
            while self._take(","):
                values.append(self._string())
            self._expect(")")
            return one_of(left, values, position, is_inverted=is_inverted)
        search = self._token.text
        if search not in _SEARCHES or not self._take(search):
            raise self._unexpected("one of " + ", ".join(_INVERTIBLE))
        return text_search(search, left, self._string(), is_inverted=is_inverted)

    def _unary(self) -> Term:
        prefixes: list[Token] = []
        while self._token.kind in {TokenKind.SIGN, TokenKind.KEYWORD}:
            if self._token.text not in _PREFIXES:
                break
            prefixes.append(self._token)
            self._advance()
        term = self._primary()
        for prefix in reversed(prefixes):
            if prefix.text == "-":
                term = self._checked(negated(term), prefix.position)
            elif prefix.text == "NOT":
                condition = as_condition(term, prefix.position)
                term = self._checked(inverted(condition), prefix.position)
        return term

    def _primary(self) -> Term:
        token = self._token
        if token.is_word("("):
            return self._parenthesis()
        make = self._literal_maker(token)
        if make is None:
            raise self._unexpected("a property, a literal or (")
        term = make()
        self._advance()
        return term

    def _literal_maker(self, token: Token) -> Callable[[], Term] | None:
        match token.kind:
            case TokenKind.NAME:
                self._names[token.text] = None
                return lambda: property_value(token.text)
            case TokenKind.STRING:
                return lambda: text_literal(token.text)
            case TokenKind.DECIMAL:
                return lambda: decimal_literal(token.text, token.position)
            case TokenKind.FLOAT:
                return lambda: float_literal(token.text, token.position)
            case TokenKind.KEYWORD if token.text in _CONSTANTS:
                return lambda: _CONSTANTS[token.text]
            case _:
                return None

    def _parenthesis(self) -> Term:
        if self._nesting == DEPTH_MAX:
            raise self._too_deep(self._token.position)
        self._nesting += 1
        self._expect("(")
        term = self._expression()
        self._expect(")")
        self._nesting -= 1
        return term

    def _string(self) -> str:
        token = self._token
        if token.kind is not TokenKind.STRING:
            raise self._unexpected("a string")
        self._advance()
        return text_literal(token.text).value

    def _take(self, word: str) -> bool:
        if not self._token.is_word(word):
            return False
        self._advance()
        return True

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._unexpected(word)

    def _advance(self) -> None:
        self._token = self._lexer.next_token()

    def _checked(self, term: Term, position: int) -> Term:
        if term.depth > DEPTH_MAX:
            raise self._too_deep(position)
        return term

    def _too_deep(self, position: int) -> FilterSyntaxError:
        return FilterSyntaxError(position, f"expected at most {DEPTH_MAX} levels of nesting")

    def _unexpected(self, expected: str) -> FilterSyntaxError:
        return FilterSyntaxError(self._token.position, f"found {self._token}; expected {expected}")
