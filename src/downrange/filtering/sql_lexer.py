"""Cuts an SQL92 expression into tokens, one at a time.

    blank     space \\t \\n \\r \\f
    comment   -- to the end of the line, which must be there; /* to the first */
    number    0 | [1-9][0-9]*[lL]?                           decimal
              [0-9]+.[0-9]*exp? | .[0-9]+exp? | [0-9]+exp    float; exp = [eE][+-]?[0-9]+
    string    '…' with '' for a quote
    name      [a-zA-Z_$][a-zA-Z0-9_$]*                       key words in any case
    sign      = <> > >= < <= ( ) , + -

The longest token wins, so 01 is 0 and 1. A token is cut when the parser comes to it: what stands
after the end of the expression may be anything.
"""

import re
from enum import Enum
from typing import NamedTuple

from downrange.filtering.errors import FilterSyntaxError

KEYWORDS = frozenset(
    (
        "NOT",
        "AND",
        "OR",
        "BETWEEN",
        "IN",
        "TRUE",
        "FALSE",
        "NULL",
        "IS",
        "CONTAINS",
        "STARTSWITH",
        "ENDSWITH",
    )
)

_FOUND_CHARS_MAX = 20

_BLANKS = re.compile(r"[ \t\n\r\f]*")
_LINE_END = re.compile(r"[\n\r]")
_TOKEN = re.compile(
    r"""
    (?P<name>    [a-zA-Z_$][a-zA-Z0-9_$]*)
  | (?P<float>   (?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+)
  | (?P<decimal> 0|[1-9][0-9]*[lL]?)
  | (?P<string>  '[^']*(?:''[^']*)*')
  | (?P<sign>    <>|>=|<=|[=<>(),+-])
    """,
    re.VERBOSE,
)


class TokenKind(Enum):
    """What a token is; the value names it in error texts."""

    KEYWORD = "a key word"
    NAME = "a property name"
    DECIMAL = "a number"
    FLOAT = "a number with a fraction"
    STRING = "a string"
    SIGN = "a sign"
    END = "the end"


class Token(NamedTuple):
    """A piece of the expression; `text` is in upper case for key words, else as it stands."""

    kind: TokenKind
    text: str
    position: int

    def is_word(self, word: str) -> bool:
        """Whether this is that sign or key word."""
        return self.text == word and self.kind in _WORD_KINDS

    def __str__(self) -> str:
        if self.kind is TokenKind.END:
            return str(self.kind.value)
        return repr(shortened(self.text)) if self.kind is not TokenKind.STRING else "a string"


_WORD_KINDS = frozenset((TokenKind.KEYWORD, TokenKind.SIGN))
_KINDS = {
    "float": TokenKind.FLOAT,
    "decimal": TokenKind.DECIMAL,
    "string": TokenKind.STRING,
    "sign": TokenKind.SIGN,
}


class Lexer:
    """Gives the tokens of one expression in order; time is linear in its length."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        # Without a line end behind it "--" is two minus signs; looked up once, not for each.
        self._last_line_end = max(text.rfind("\n"), text.rfind("\r"))

    def next_token(self) -> Token:
        """The next token, `END` from the end on; `FilterSyntaxError` if there is none."""
        start = self._skip_blanks_and_comments()
        if start == len(self._text):
            return Token(TokenKind.END, "", start)
        match = _TOKEN.match(self._text, start)
        if match is None:
            raise FilterSyntaxError(start, self._problem(start))
        self._position = match.end()
        image = match[0]
        group = str(match.lastgroup)
        if group != "name":
            return Token(_KINDS[group], image, start)
        word = image.upper()
        if word in KEYWORDS:
            return Token(TokenKind.KEYWORD, word, start)
        return Token(TokenKind.NAME, image, start)

    def _skip_blanks_and_comments(self) -> int:
        text = self._text
        position = self._position
        while True:
            blanks = _BLANKS.match(text, position)
            position = blanks.end() if blanks is not None else position
            if text.startswith("--", position) and position < self._last_line_end:
                line_end = _LINE_END.search(text, position)
                position = line_end.end() if line_end is not None else position
            elif text.startswith("/*", position):
                close = text.find("*/", position + 2)
                if close < 0:
                    raise FilterSyntaxError(position, "a comment begins; expected */ after it")
                position = close + 2
            else:
                return position

    def _problem(self, start: int) -> str:
        found = self._text[start]
        if found == "'":
            return "a string begins; expected ' at its end"
        return f"found {found!r}; expected a name, a number, a string or one of = <> > >= < <= ( )"


def shortened(text: str) -> str:
    """The text, cut so that it fits into an error text."""
    return text if len(text) <= _FOUND_CHARS_MAX else text[:_FOUND_CHARS_MAX] + "…"
