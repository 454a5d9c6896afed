"""Attributes of topics and groups, and the text `+key=value,-key` that changes them.

What is known, what may change later and which values are allowed follows RocketMQ 5.5's
TopicAttributes and SubscriptionGroupAttributes. A change that breaks a rule is refused with the
code that RocketMQ gives.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from downrange.protocol.integers import INT64_MAX
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.errors import Refused

NO_CHANGES: Mapping[str, str] = MappingProxyType({})
MESSAGE_TYPE = "message.type"
MIXED_MESSAGES = "MIXED"
MESSAGE_TYPES = frozenset(
    ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE", MIXED_MESSAGES)
)
LITE_EXPIRATION_MINUTES_MAX = 30 * 24 * 60

_ADD = "+"
_REMOVE = "-"
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Attribute:
    """What one attribute may be: one of `choices`, a number in `bounds`, or any text."""

    is_changeable: bool = True
    choices: frozenset[str] = frozenset()
    bounds: tuple[int, int] | None = None


_SWITCH = Attribute(choices=frozenset(("true", "false")))

TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    "queue.type": Attribute(is_changeable=False, choices=frozenset(("BatchCQ", "SimpleCQ"))),
    "cleanup.policy": Attribute(is_changeable=False, choices=frozenset(("DELETE", "COMPACTION"))),
    MESSAGE_TYPE: Attribute(choices=MESSAGE_TYPES),
    "reserve.time": Attribute(bounds=(-1, INT64_MAX)),
    "lite.topic.expiration": Attribute(bounds=(-1, LITE_EXPIRATION_MINUTES_MAX)),
}
GROUP_ATTRIBUTES: Mapping[str, Attribute] = {
    "priority.factor": Attribute(bounds=(0, 100)),
    "lite.bind.topic": Attribute(),
    "lite.sub.model": Attribute(choices=frozenset(("Shared", "Exclusive"))),
    "lite.sub.reset.offset.exclusive": _SWITCH,
    "lite.sub.reset.offset.unsubscribe": _SWITCH,
    "lite.sub.client.quota": Attribute(bounds=(-1, INT64_MAX)),
    "lite.sub.client.max.event.cnt": Attribute(bounds=(10, INT64_MAX)),
    "lite.sub.wildcard": Attribute(),
}


def parse_attribute_changes(text: str | None) -> dict[str, str]:
    """The changes that a request asks for, by key with its sign; a removal has an empty value."""
    changes: dict[str, str] = {}
    for part in (text or "").split(","):
        if not part:
            continue
        key, equals, value = part.partition("=")
        if key[:1] != (_ADD if equals else _REMOVE):
            raise _refused(f"{part!r} is neither +key=value nor -key")
        if key in changes:
            raise _refused(f"{key!r} is given twice")
        changes[key] = value
    return changes


def changed_attributes(
    known: Mapping[str, Attribute],
    current: Mapping[str, str] | None,
    changes: Mapping[str, str],
) -> dict[str, str]:
    """The attributes after the changes; `current` is None for what is just being created."""
    attributes = dict(current or {})
    seen: set[str] = set()
    for signed_key, value in changes.items():
        sign, key = signed_key[:1], signed_key[1:]
        if sign not in (_ADD, _REMOVE) or not key:
            raise _refused(f"{signed_key!r} does not begin with + or -")
        if key in seen:
            raise _refused(f"{key} is both set and removed")
        seen.add(key)
        if sign == _REMOVE and current is None:
            raise _refused(f"{key} cannot be removed from what does not exist yet")
        if sign == _REMOVE and key not in attributes:
            raise _refused(f"{key} cannot be removed, it is not set")
        rule = known.get(key)
        if rule is None:
            raise _refused(f"there is no attribute {key}, only {', '.join(sorted(known))}")
        if current is not None and not rule.is_changeable:
            raise _refused(f"{key} can only be set at creation")
        if sign == _REMOVE:
            del attributes[key]
        else:
            _check_value(key, rule, value)
            attributes[key] = value
    return attributes


def _check_value(key: str, rule: Attribute, value: str) -> None:
    if rule.choices:
        # Java compares switches without regard to case, names exactly.
        known = value.lower() if rule is _SWITCH else value
        if known not in rule.choices:
            raise _refused(f"{key} is {value!r}, not one of {', '.join(sorted(rule.choices))}")
    if rule.bounds is not None:
        low, high = rule.bounds
        if not _NUMBER.fullmatch(value) or not low <= int(value) <= high:
            raise _refused(f"{key} is {value!r}, not a number from {low} to {high}")


def _refused(reason: str) -> Refused:
    # RocketMQ gives SYSTEM_ERROR for all of these.
    return Refused(ResponseCode.SYSTEM_ERROR, f"attributes: {reason}")
