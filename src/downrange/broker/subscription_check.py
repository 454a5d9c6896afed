"""Do the clients of a group subscribe the same? If not, some messages reach nobody who wants them.

Queues are shared out among the clients of a group without regard to what each one wants, so a
topic that only one client subscribes, or a tag that only one asks for, is skipped in the queues of
the others.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from downrange.protocol.bodies.heartbeat import Subscription

NOT_SUBSCRIBED = "nothing"
NAMED_MAX = 5  # clients that a text names; a group may have thousands


@dataclass(frozen=True, slots=True)
class SubscriptionDifference:
    """A topic of which the clients of a group want different things."""

    topic: str
    clients_by_expression: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def wishes(self) -> tuple[str, ...]:
        """What is wanted of the topic, whoever wants it."""
        return (self.topic, *(expression for expression, _ in self.clients_by_expression))

    def __str__(self) -> str:
        wishes = "; ".join(
            f"{_names(clients)}: {expression}" for expression, clients in self.clients_by_expression
        )
        return f"topic {self.topic} ({wishes})"


def find_differences(
    clients: Iterable[tuple[str, Mapping[str, Subscription]]],
) -> tuple[SubscriptionDifference, ...]:
    """The topics that not all clients subscribe with the same expression."""
    members = list(clients)
    differences = []
    for topic in sorted({topic for _, subscriptions in members for topic in subscriptions}):
        by_expression: dict[str, set[str]] = {}
        for client_id, subscriptions in members:
            by_expression.setdefault(_wish(subscriptions.get(topic)), set()).add(client_id)
        if len(by_expression) > 1:
            differences.append(
                SubscriptionDifference(
                    topic,
                    tuple(
                        (wish, tuple(sorted(ids))) for wish, ids in sorted(by_expression.items())
                    ),
                )
            )
    return tuple(differences)


def _names(clients: tuple[str, ...]) -> str:
    named = ", ".join(clients[:NAMED_MAX])
    unnamed = len(clients) - NAMED_MAX
    return f"{named} and {unnamed} more" if unnamed > 0 else named


def _wish(subscription: Subscription | None) -> str:
    """What a client wants, the same text for the same thing."""
    if subscription is None:
        return NOT_SUBSCRIBED
    if subscription.expression_type not in ("TAG", ""):
        return f"{subscription.expression_type} {subscription.sub_string or ''}"
    if subscription.tags_set:
        return " || ".join(sorted(subscription.tags_set))
    return subscription.sub_string or "*"
