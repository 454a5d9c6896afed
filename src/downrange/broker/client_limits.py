"""How much memory clients can make a broker hold by their heartbeats and pulls.

Without limits one connection could register any number of groups, under names of any length. The
values are far beyond what real clients need; who reaches one is broken or means harm.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from downrange.protocol.bodies.heartbeat import Heartbeat, Subscription
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.errors import Refused

GROUPS_PER_HEARTBEAT_MAX: Final = 10_000
"""Groups of one process, as many as a connection may have."""

SUBSCRIPTIONS_PER_HEARTBEAT_MAX: Final = 10_000


def check_heartbeat(heartbeat: Heartbeat) -> None:
    """Refuse a heartbeat that would hold up everybody else."""
    consumers = heartbeat.consumer_data_set
    for what, count, count_max in (
        ("consumer groups", len(consumers), GROUPS_PER_HEARTBEAT_MAX),
        ("producer groups", len(heartbeat.producer_data_set), GROUPS_PER_HEARTBEAT_MAX),
        (
            "subscriptions",
            sum(len(consumer.subscription_data_set) for consumer in consumers),
            SUBSCRIPTIONS_PER_HEARTBEAT_MAX,
        ),
    ):
        if count > count_max:
            raise _refused(
                f"heartbeat of client {heartbeat.client_id[:100]!r} names {count} {what}, the limit"
                f" is {count_max}; use more clients"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Checks raise `Refused` with the limit in the text; nothing was registered then."""

    # A process shares one connection among its producers and consumers; hundreds are many.
    groups_per_connection_max: int = 10_000
    # Groups times their connections, about 300 bytes each.
    members_max: int = 500_000
    # RocketMQ's own limit for topics and groups; a client id is made of address, process and name.
    group_chars_max: int = 255
    client_id_chars_max: int = 1_024
    # A group that consumes more topics than that is a mistake.
    subscriptions_per_group_max: int = 10_000
    # Expressions and tags of all groups of a connection.
    expression_chars_max: int = 8 * 1024 * 1024
    # Subscriptions that came with pulls, without a heartbeat; the oldest one is forgotten.
    learned_max: int = 50_000

    def check_names(self, client_id: str, group: str) -> None:
        """Check what identifies a member."""
        for what, text, chars_max in (
            ("client id", client_id, self.client_id_chars_max),
            ("group name", group, self.group_chars_max),
        ):
            if len(text) > chars_max:
                raise _refused(
                    f"{what} {text[:40]!r}... has {len(text)} characters, the limit is {chars_max}"
                )

    def check_members(self, client_id: str, groups_of_connection: int, members: int) -> None:
        """Check that one more member fits."""
        if groups_of_connection >= self.groups_per_connection_max:
            raise _refused(
                f"client {client_id!r} has registered {groups_of_connection} groups over this"
                f" connection, the limit is {self.groups_per_connection_max}; unregister some"
            )
        if members >= self.members_max:
            raise _refused(
                f"this broker has {members} clients in groups, the limit is {self.members_max}"
            )

    def check_subscriptions(
        self, group: str, subscriptions: Iterable[Subscription], others_chars: int
    ) -> int:
        """Check what a member subscribes; returns how many characters its expressions have."""
        count = chars = 0
        for one in subscriptions:
            count += 1
            chars += len(one.topic) + len(one.sub_string or "") + 8 * len(one.code_set)
            chars += sum(len(tag) for tag in one.tags_set)
        if count > self.subscriptions_per_group_max:
            raise _refused(
                f"group {group!r} subscribes {count} topics, the limit is"
                f" {self.subscriptions_per_group_max}; use several groups"
            )
        if chars + others_chars > self.expression_chars_max:
            raise _refused(
                f"the subscriptions of this connection have {chars + others_chars} characters, the"
                f" limit is {self.expression_chars_max}; subscribe fewer tags or shorter"
                " expressions"
            )
        return chars


CLIENT_LIMITS: Final = ClientLimits()


def _refused(text: str) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, text)
