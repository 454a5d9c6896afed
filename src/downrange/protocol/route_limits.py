"""Limits of a route: a few bytes from a name server could make a client list billions of queues."""

from dataclasses import dataclass
from typing import Final

from downrange.protocol.bodies.route import TopicRoute
from downrange.protocol.errors import RemoteProtocolError

QUEUES_MAX: Final = 100_000  # ten brokers with as many queues as a broker of ours takes
BROKERS_MAX: Final = 4_096
REPLICAS_MAX: Final = 64  # that share one broker name
NAME_LENGTH_MAX: Final = 255
_DIGITS_MAX: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteLimits:
    """How large a route may be."""

    queues_max: int = QUEUES_MAX
    brokers_max: int = BROKERS_MAX


def check_route(route: TopicRoute, limits: RouteLimits) -> None:
    """`RemoteProtocolError` names the limit that a route exceeds."""
    for what, count, highest in (
        ("broker names", len(route.broker_datas), limits.brokers_max),
        ("entries for brokers", len(route.queue_datas), limits.brokers_max),
        ("read queues", sum(max(one.read_queue_nums, 0) for one in route.queue_datas), None),
        ("write queues", sum(max(one.write_queue_nums, 0) for one in route.queue_datas), None),
        ("queues in its order", _ordered_count(route.order_topic_conf or ""), None),
        ("static queues", _static_count(route), None),
    ):
        limit = limits.queues_max if highest is None else highest
        if count > limit:
            raise RemoteProtocolError(f"it has {count} {what}, the limit is {limit}")
    for data in route.broker_datas:
        if len(data.broker_addrs) > REPLICAS_MAX:
            raise RemoteProtocolError(
                f"broker {data.broker_name[:NAME_LENGTH_MAX]!r} has {len(data.broker_addrs)} "
                f"addresses, the limit is {REPLICAS_MAX}"
            )
        for text in (data.broker_name, *data.broker_addrs.values()):
            _check_length(text)
    for entry in route.queue_datas:
        _check_length(entry.broker_name)


def _check_length(text: str) -> None:
    if len(text) > NAME_LENGTH_MAX:
        raise RemoteProtocolError(
            f"a broker name or address has {len(text)} characters, the limit is {NAME_LENGTH_MAX}"
        )


def _ordered_count(conf: str) -> int:
    """The queues of "a:4;b:2", the global order of a topic."""
    count = 0
    for part in conf.split(";"):
        digits = part.partition(":")[2].strip()
        if digits.isdecimal():
            count += int(digits[:_DIGITS_MAX])  # more digits are over every limit anyway
    return count


def _static_count(route: TopicRoute) -> int:
    mappings = (route.topic_queue_mapping_by_broker or {}).values()
    totals: dict[str, int] = {}
    for mapping in mappings:
        if mapping.scope is not None:
            totals[mapping.scope] = max(totals.get(mapping.scope, 0), mapping.total_queues)
    return sum(totals.values())
