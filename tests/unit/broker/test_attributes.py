"""Changes of attributes; the refused ones were refused by a real 5.5.0, with the same codes."""

import pytest

from downrange.broker.attributes import (
    GROUP_ATTRIBUTES,
    TOPIC_ATTRIBUTES,
    changed_attributes,
    parse_attribute_changes,
)
from downrange.remoting.errors import Refused


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (None, {}),
        ("", {}),
        ("+a=b", {"+a": "b"}),
        ("+a=b,-c,+d=e=f", {"+a": "b", "-c": "", "+d": "e=f"}),
    ],
)
def test_text_of_changes_is_read(text: str | None, changes: dict[str, str]) -> None:
    assert parse_attribute_changes(text) == changes


@pytest.mark.parametrize("text", ["a=b", "-a=b", "+a", "a", "+a=b,+a=c"])
def test_text_that_is_no_change_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refusal:
        parse_attribute_changes(text)
    assert refusal.value.code == 1


def test_attributes_are_added_replaced_and_removed() -> None:
    current = {"message.type": "FIFO", "reserve.time": "5"}
    changes = {"+message.type": "NORMAL", "-reserve.time": "", "+lite.topic.expiration": "60"}
    changed = changed_attributes(TOPIC_ATTRIBUTES, current, changes)
    assert changed == {"message.type": "NORMAL", "lite.topic.expiration": "60"}
    assert current == {"message.type": "FIFO", "reserve.time": "5"}


def test_what_never_changes_can_be_set_at_creation_only() -> None:
    changes = {"+queue.type": "BatchCQ"}
    assert changed_attributes(TOPIC_ATTRIBUTES, None, changes) == {"queue.type": "BatchCQ"}
    with pytest.raises(Refused, match=r"queue\.type can only be set at creation"):
        changed_attributes(TOPIC_ATTRIBUTES, {}, changes)


@pytest.mark.parametrize(
    ("current", "changes"),
    [
        ({}, {"+foo": "1"}),
        ({}, {"-message.type": ""}),
        (None, {"-message.type": ""}),
        ({}, {"+message.type": "ODD"}),
        ({}, {"+reserve.time": "-2"}),
        ({}, {"+reserve.time": "long"}),
        ({}, {"+lite.topic.expiration": str(31 * 24 * 60)}),
        ({"message.type": "FIFO"}, {"+message.type": "FIFO", "-message.type": ""}),
        ({}, {"message.type": "FIFO"}),
        ({}, {"+": "x"}),
    ],
)
def test_change_that_breaks_a_rule_is_refused(
    current: dict[str, str] | None, changes: dict[str, str]
) -> None:
    with pytest.raises(Refused) as refusal:
        changed_attributes(TOPIC_ATTRIBUTES, current, changes)
    assert refusal.value.code == 1
    assert refusal.value.remark.startswith("attributes: ")


def test_switches_of_groups_are_true_or_false_in_any_case() -> None:
    changes = {"+lite.sub.reset.offset.exclusive": "True", "+priority.factor": "100"}
    assert len(changed_attributes(GROUP_ATTRIBUTES, {}, changes)) == 2
    with pytest.raises(Refused):
        changed_attributes(GROUP_ATTRIBUTES, {}, {"+lite.sub.reset.offset.exclusive": "1"})
