"""Tag expressions: "*", or tags separated by "||".

A queue entry holds the Java hash of a message's tag, not the tag. So the broker matches by code,
and a consumer looks at the text again, since different tags may have one code.
"""

from dataclasses import dataclass

from downrange.filtering.errors import FilterSyntaxError
from downrange.protocol.java_hash import java_hash

EVERYTHING = "*"
TAG_TYPE = "TAG"
SQL92_TYPE = "SQL92"

TAGS_MAX = 10_000  # of one subscription; read within 30 ms, with the event loop waiting

_SEPARATOR = "||"
_BLANKS = "".join(map(chr, range(0x21)))  # what Java's String.trim takes away


@dataclass(frozen=True, slots=True)
class TagSubscription:
    """Which tags a consumer wants; `expression` is "*" for all of them."""

    expression: str
    tags: frozenset[str]
    codes: frozenset[int]

    @property
    def is_everything(self) -> bool:
        """Whether messages match whatever tag they have, even none."""
        return self.expression == EVERYTHING

    def matches_code(self, tag_code: int) -> bool:
        """Whether a message with a tag of this code may match."""
        return self.is_everything or tag_code in self.codes

    def matches_tag(self, tag: str | None) -> bool:
        """What a consumer asks of each message: True if there is nothing to choose by.

        An expression without any tag in it, such as " ", matches no code, yet every tag, because
        Java's PullAPIWrapper looks at tags only if there are some to look for.
        """
        return not self.tags or tag in self.tags


def parse_tags(expression: str | None) -> TagSubscription:
    """The tags that an expression names; `FilterSyntaxError` if it is nothing but separators."""
    if not expression or expression == EVERYTHING:
        return TagSubscription(EVERYTHING, frozenset(), frozenset())
    if expression.count(_SEPARATOR) >= TAGS_MAX:
        raise FilterSyntaxError(
            len(expression),
            f"more than {TAGS_MAX} tags; subscribe to more topics, or filter in the consumer",
        )
    parts = expression.split(_SEPARATOR)
    if not any(parts):
        raise FilterSyntaxError(0, f"{expression!r} has no tag; expected a tag, or * for all")
    tags = frozenset(tag for part in parts if (tag := part.strip(_BLANKS)))
    return TagSubscription(expression, tags, frozenset(map(java_hash, tags)))


def is_tag_type(expression_type: str | None) -> bool:
    """Whether a subscription of this type is one by tags; one without a type is."""
    return not expression_type or expression_type == TAG_TYPE
