"""What a consumer wants of a topic, as it is told to brokers."""

from downrange.client.errors import RocketMQError
from downrange.filtering.errors import FilterSyntaxError
from downrange.filtering.tags import EVERYTHING, SQL92_TYPE, TAG_TYPE, is_tag_type, parse_tags
from downrange.model.names import InvalidNameError, check_topic
from downrange.protocol.bodies.heartbeat import Subscription


class SubscriptionError(RocketMQError):
    """An expression that cannot be one; the text says what is expected."""


def subscribe_tags(topic: str, tags: str = EVERYTHING, *, version_ms: int) -> Subscription:
    """A subscription by tags, like `new || paid`, or * for everything."""
    try:
        check_topic(topic)
        parsed = parse_tags(tags)
    except (InvalidNameError, FilterSyntaxError) as error:
        raise SubscriptionError(f"cannot subscribe to {topic!r}: {error}") from None
    names = tuple(sorted(parsed.tags))
    return Subscription(
        topic=topic,
        sub_string=parsed.expression,
        tags_set=names,
        code_set=tuple(sorted(parsed.codes)),
        sub_version=version_ms,
        expression_type=TAG_TYPE,
    )


def subscribe(
    topic: str, expression: str, expression_type: str = TAG_TYPE, *, version_ms: int
) -> Subscription:
    """A subscription by an expression of either type; a broker checks whether SQL92 compiles."""
    if is_tag_type(expression_type):
        return subscribe_tags(topic, expression, version_ms=version_ms)
    if expression_type != SQL92_TYPE:
        raise SubscriptionError(
            f"cannot subscribe to {topic!r}: no expression type {expression_type!r}; "
            f"there are {TAG_TYPE} and {SQL92_TYPE}"
        )
    if not expression:
        raise SubscriptionError(
            f"cannot subscribe to {topic!r}: an empty SQL92 expression; tags * is everything"
        )
    try:
        check_topic(topic)
    except InvalidNameError as error:
        raise SubscriptionError(f"cannot subscribe to {topic!r}: {error}") from None
    return Subscription(
        topic=topic, sub_string=expression, sub_version=version_ms, expression_type=SQL92_TYPE
    )
