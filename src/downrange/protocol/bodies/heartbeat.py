"""What a client tells a broker about itself every half minute.

Heartbeat v2 leaves the subscriptions out while their fingerprint stays the same: Java's hash over
the fastjson text of the heartbeat with everything blanked that changes by itself.
"""

from typing import Final

import msgspec

from downrange.protocol.bodies.json_body import Body, convert_body, encode_body
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.integers import Int32, Int64
from downrange.protocol.java_hash import java_hash
from downrange.protocol.loose_json import JsonValue, read_json

# Clients in C++ send these as the number of the entry, as fastjson lets them.
_NUMBERED: Final = {
    "consumeType": ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"),
    "messageModel": ("BROADCASTING", "CLUSTERING"),
    "consumeFromWhere": (
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ),
}


class Subscription(Body, frozen=True, kw_only=True):
    """What a consumer wants of one topic; `code_set` holds the Java hash of each tag."""

    class_filter_mode: bool = False
    topic: str
    sub_string: str | None = None
    tags_set: tuple[str, ...] = ()
    code_set: tuple[Int32, ...] = ()
    sub_version: Int64 = 0
    expression_type: str = "TAG"


class ProducerGroup(Body, frozen=True, kw_only=True):
    """A producer group this client sends for."""

    group_name: str


class ConsumerGroup(Body, frozen=True, kw_only=True):
    """A consumer group this client is in."""

    group_name: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscription_data_set: tuple[Subscription, ...] = ()
    unit_mode: bool = False


class Heartbeat(Body, frozen=True, kw_only=True):
    """Body of HEART_BEAT; a fingerprint other than 0 makes it one of v2."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: tuple[ProducerGroup, ...] = ()
    consumer_data_set: tuple[ConsumerGroup, ...] = ()
    heartbeat_fingerprint: Int32 = 0
    without_sub: bool = False


class CheckClientConfig(Body, frozen=True, kw_only=True):
    """Body of CHECK_CLIENT_CONFIG: would this subscription be accepted?"""

    client_id: str | None = None
    group: str | None = None
    subscription_data: Subscription | None = None
    namespace: str | None = None


def decode_heartbeat(data: bytes | None) -> Heartbeat:
    """Read a heartbeat of any client."""
    if not data:
        raise RemoteProtocolError("Heartbeat: the body is missing")
    value = read_json(data)
    if isinstance(value, dict):
        groups = value.get("consumerDataSet")
        for group in groups if isinstance(groups, list) else ():
            _name_numbered(group)
    return convert_body(Heartbeat, value)


def heartbeat_fingerprint(heartbeat: Heartbeat) -> int:
    """Give the number that stays the same as long as groups and subscriptions do."""
    groups = tuple(
        msgspec.structs.replace(
            group,
            subscription_data_set=tuple(
                msgspec.structs.replace(subscription, sub_version=0)
                for subscription in group.subscription_data_set
            ),
        )
        for group in heartbeat.consumer_data_set
    )
    blanked = msgspec.structs.replace(
        heartbeat,
        client_id="",
        consumer_data_set=groups,
        heartbeat_fingerprint=0,
        without_sub=False,
    )
    return java_hash(encode_body(blanked).decode())


def _name_numbered(group: JsonValue) -> None:
    if not isinstance(group, dict):
        return
    for member, names in _NUMBERED.items():
        number = group.get(member)
        if isinstance(number, int) and 0 <= number < len(names):
            group[member] = names[number]
