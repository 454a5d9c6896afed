"""Filters of pulls, compiled once for each subscription text."""

from typing import TypeVar

from downrange.broker.long_polling import PullFilter
from downrange.filtering.errors import FilterSyntaxError
from downrange.filtering.sql92 import SqlExpression, compile_sql92
from downrange.filtering.subscription_filter import pull_filter
from downrange.filtering.tags import is_tag_type, parse_tags
from downrange.protocol.bodies.heartbeat import Subscription
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.errors import Refused

CACHED_MAX = 10_000
CACHED_CHARS_MAX = 8 * 1024 * 1024
V = TypeVar("V")
Key = tuple[str, str, str]  # topic, text, type


class _Cache(dict[Key, V]):
    """Forgets everything when it is full, by count or by the length of its texts."""

    def __init__(self) -> None:
        super().__init__()
        self._chars = 0

    def remember(self, key: Key, value: V) -> None:
        """Keep a value."""
        self._chars += len(key[1])
        if len(self) >= CACHED_MAX or self._chars > CACHED_CHARS_MAX:
            self.clear()
            self._chars = len(key[1])
        self[key] = value


class SubscriptionFilters:
    """Turns what a consumer asks for into a filter; remembers the last ones."""

    def __init__(self, *, sql92_enabled: bool) -> None:
        self._sql92_enabled = sql92_enabled
        self._inline: _Cache[Subscription] = _Cache()
        self._filters: _Cache[PullFilter] = _Cache()

    def change(self, *, sql92_enabled: bool) -> None:
        """Filter by SQL92 or no more."""
        self._sql92_enabled = sql92_enabled
        self._filters.clear()

    def inline(self, topic: str, text: str | None, expression_type: str | None) -> Subscription:
        """The subscription that a pull carries itself."""
        kind = expression_type or "TAG"
        key = (topic, text or "", kind)
        found = self._inline.get(key)
        if found is None:
            found = self._parse(topic, text, kind)
            self._inline.remember(key, found)
        return found

    def filter_of(self, subscription: Subscription) -> PullFilter:
        """The filter; `Refused` if this broker cannot filter that way."""
        key = (subscription.topic, subscription.sub_string or "", subscription.expression_type)
        if key in self._filters:
            return self._filters[key]
        expression: SqlExpression | None = None
        if not is_tag_type(subscription.expression_type):
            if not self._sql92_enabled:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    "The broker does not support consumer to filter message by "
                    f"{subscription.expression_type}: enablePropertyFilter is false",
                )
            expression = self.compile(subscription.sub_string or "")
        built = pull_filter(subscription, expression)
        self._filters.remember(key, built)
        return built

    @staticmethod
    def compile(text: str) -> SqlExpression:
        """Compile an SQL92 expression; `Refused` says where it is wrong."""
        try:
            return compile_sql92(text)
        except FilterSyntaxError as error:
            raise _unparsable(error) from error

    def _parse(self, topic: str, text: str | None, kind: str) -> Subscription:
        if not is_tag_type(kind):
            return Subscription(topic=topic, sub_string=text, expression_type=kind)
        try:
            tags = parse_tags(text)
        except FilterSyntaxError as error:
            raise _unparsable(error) from error
        return Subscription(
            topic=topic,
            sub_string=text or "*",
            tags_set=tuple(sorted(tags.tags)),
            code_set=tuple(sorted(tags.codes)),
            expression_type="TAG",
        )


def _unparsable(error: FilterSyntaxError) -> Refused:
    return Refused(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        f"parse the consumer's subscription failed: {error}",
    )
