"""Filters for reads from a queue, made of a consumer's subscription.

They follow the store's `MessageFilter`: first the queue entry is asked, then the record. No filter
at all (None) stands for a subscription to everything.
"""

from collections.abc import Callable
from struct import Struct

from downrange.filtering.sql92 import SqlExpression
from downrange.filtering.tags import EVERYTHING, is_tag_type
from downrange.model.names import is_retry_topic
from downrange.protocol.bodies.heartbeat import Subscription
from downrange.protocol.java_text import decode_utf8
from downrange.protocol.properties import decode_properties, find_property
from downrange.protocol.property_names import RETRY_TOPIC
from downrange.protocol.record import HEAD_V4, HEADS, MAGIC_V1, RECORD_BYTES_MIN

# Decoding the usual eight properties takes as long as finding this many of them one by one.
_NAMES_TO_FIND_MAX = 6

_INT_MIN, _INT_MAX = -(1 << 31), (1 << 31) - 1
_INT_SPAN = 1 << 32
_ANY_HOST_V6 = 0b11 << 4
# Magic, system flag, and the body's length if both hosts are IPv4.
_unpack_head = Struct(">4xi28xi44xi").unpack_from
_unpack_int = Struct(">i").unpack_from
_unpack_short = Struct(">h").unpack_from
_RETRY_TOPIC_NAME = RETRY_TOPIC.encode()

FindExpression = Callable[[str], SqlExpression | None]


class TagFilter:
    """Wants messages by the code of their tag; safe to share, since it never changes."""

    __slots__ = ("_codes",)

    def __init__(self, codes: frozenset[int]) -> None:
        self._codes = codes

    def matches_entry(self, tag_code: int) -> bool:
        """By code; an entry whose code stands in the extension file is left to the consumer."""
        if tag_code in self._codes:
            return True
        if _INT_MIN <= tag_code <= _INT_MAX:
            return False
        # Java takes the lower 32 bits of a code, and knows none below -2^31 (ConsumeQueueExt).
        low_bits = (tag_code - _INT_MIN) % _INT_SPAN + _INT_MIN
        return tag_code < _INT_MIN or low_bits in self._codes

    def matches_record(self, record: memoryview) -> bool:  # noqa: ARG002
        """Always: the consumer compares the tag's text."""
        return True


class SqlFilter:
    """Wants messages by an expression over their properties; safe to share."""

    __slots__ = ("_decode_all", "_expression", "_names")

    def __init__(self, expression: SqlExpression) -> None:
        self._expression = expression
        self._names = tuple((name, name.encode()) for name in expression.property_names)
        self._decode_all = len(self._names) > _NAMES_TO_FIND_MAX

    def matches_entry(self, tag_code: int) -> bool:  # noqa: ARG002
        """Always: the record has to decide."""
        return True

    def matches_record(self, record: memoryview) -> bool:
        """By the record's properties; a damaged record is passed on, for the consumer to report."""
        text = property_text(record)
        return text is None or self.matches_properties(text)

    def matches_properties(self, text: bytes) -> bool:
        """By a property text."""
        if self._decode_all:
            return self._expression.matches(decode_properties(text))
        properties = {}
        for name, encoded_name in self._names:
            value = find_property(text, encoded_name)
            if value is not None:
                properties[name] = decode_utf8(value)
        return self._expression.matches(properties)


class RetrySqlFilter:
    """Wants messages of a retry topic by the expression for the topic that they come from.

    Made for one read: it remembers the expressions that it has asked for.
    """

    __slots__ = ("_filters", "_find_expression")

    def __init__(self, find_expression: FindExpression) -> None:
        self._find_expression = find_expression
        self._filters: dict[bytes, SqlFilter | None] = {}

    def matches_entry(self, tag_code: int) -> bool:  # noqa: ARG002
        """Always: the record has to decide."""
        return True

    def matches_record(self, record: memoryview) -> bool:
        """By the group's expression for the record's RETRY_TOPIC; True if there is none."""
        text = property_text(record)
        topic = find_property(text, _RETRY_TOPIC_NAME) if text is not None else None
        if text is None or topic is None:
            return True
        if topic not in self._filters:
            expression = self._find_expression(decode_utf8(topic))
            self._filters[topic] = SqlFilter(expression) if expression is not None else None
        sql_filter = self._filters[topic]
        return sql_filter is None or sql_filter.matches_properties(text)


def pull_filter(
    subscription: Subscription | None,
    expression: SqlExpression | None = None,
    find_expression: FindExpression | None = None,
) -> TagFilter | SqlFilter | RetrySqlFilter | None:
    """The filter for one read.

    `expression` is the compiled one of an SQL92 subscription. `find_expression` is given if the
    broker filters retry topics (filterSupportRetry), and knows the group's expression for a topic.
    """
    if subscription is None or subscription.class_filter_mode:
        return None
    if is_tag_type(subscription.expression_type):
        if subscription.sub_string in {EVERYTHING, None}:
            return None
        return TagFilter(frozenset(subscription.code_set))
    if find_expression is not None and is_retry_topic(subscription.topic):
        return RetrySqlFilter(find_expression)
    return SqlFilter(expression) if expression is not None else None


def property_text(record: memoryview) -> bytes | None:
    """The property text of a record's bytes, or None if its lengths lead outside of it."""
    size = len(record)
    if size < RECORD_BYTES_MIN:
        return None
    magic, sys_flag, body_length = _unpack_head(record)
    body_start = HEAD_V4.size
    if sys_flag & _ANY_HOST_V6:
        body_start = HEADS[(sys_flag >> 4) & 3].size
        if body_start > size:
            return None
        body_length = _unpack_int(record, body_start - 4)[0]
    topic_length_at = body_start + body_length
    if body_length < 0 or topic_length_at + 2 > size:
        return None
    if magic == MAGIC_V1:
        length_at = topic_length_at + 1 + record[topic_length_at]
    else:
        length_at = topic_length_at + 2 + _unpack_short(record, topic_length_at)[0]
    start = length_at + 2
    if length_at <= topic_length_at or start > size:
        return None
    # Java takes a length above 32,767 for a negative one, and reads no properties.
    end = start + max(_unpack_short(record, length_at)[0], 0)
    return bytes(record[start:end]) if end <= size else None
