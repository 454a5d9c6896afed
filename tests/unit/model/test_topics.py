"""Values of topics, groups and queues."""

import pytest

from downrange.model.topics import (
    CustomizedRetryPolicy,
    DataVersion,
    MessageQueue,
    Permission,
    TopicConfig,
)
from downrange.protocol.delay_levels import DelayLevels


def test_queues_are_ordered_by_topic_broker_and_number() -> None:
    queues = [
        MessageQueue("b", "x", 1),
        MessageQueue("a", "y", 2),
        MessageQueue("a", "x", 10),
        MessageQueue("a", "x", 2),
    ]
    assert sorted(queues) == [queues[3], queues[2], queues[1], queues[0]]
    assert len(set(queues) | {MessageQueue("a", "x", 2)}) == 4


@pytest.mark.parametrize(
    ("permission", "text"),
    [(0, "---"), (2, "-W-"), (4, "R--"), (6, "RW-"), (7, "RWX"), (15, "RWX")],
)
def test_permission_has_the_text_of_java(permission: int, text: str) -> None:
    assert Permission(permission).text == text


def test_new_topic_may_be_read_and_written() -> None:
    assert TopicConfig(topic_name="T").perm == 6


def test_next_version_is_newer() -> None:
    version = DataVersion(counter=4, state_version=1, timestamp=10)
    assert version.next(20) == DataVersion(counter=5, state_version=0, timestamp=20)
    assert version.next(20, 7).state_version == 7


def test_customized_retry_waits_as_long_as_the_delay_levels_unless_told_otherwise() -> None:
    assert CustomizedRetryPolicy().next == DelayLevels.parse().delays_ms
