"""Names of topics and groups; limits and lists were asked of Java's TopicValidator."""

import pytest

from downrange.model import names
from downrange.model.names import InvalidNameError, check_group, check_topic


@pytest.mark.parametrize(
    "topic",
    ["T", "t" * 127, "%RETRY%" + "t" * 248, "%DLQ%" + "t" * 250, "a|b-c_d%", "SCHEDULE_TOPIC_XXXX"],
)
def test_topic_that_java_takes_is_taken(topic: str) -> None:
    assert check_topic(topic) == topic


@pytest.mark.parametrize(
    ("topic", "rule"),
    [
        ("", "blank"),
        (" \t", "blank"),
        ("a b", "characters"),
        ("a+b", "characters"),
        ("a/b", "characters"),
        ("a\n", "characters"),
        ("订单", "characters"),
        ("t" * 128, "over 127"),
        ("%RETRY%" + "t" * 249, "over 255"),
    ],
)
def test_topic_that_java_refuses_is_refused_with_the_rule(topic: str, rule: str) -> None:
    with pytest.raises(InvalidNameError, match=rule):
        check_topic(topic)


def test_group_has_at_most_120_characters() -> None:
    assert check_group("g" * 120)
    with pytest.raises(InvalidNameError, match=r"group .* over 120"):
        check_group("g" * 121)
    with pytest.raises(InvalidNameError, match="group is blank"):
        check_group("")


def test_names_made_of_names_are_those_of_java() -> None:
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.dlq_topic("g") == "%DLQ%g"
    assert names.pop_retry_topic("T", "g") == "%RETRY%g_T"
    assert names.pop_retry_topic("T", "g", v2=True) == "%RETRY%g+T"
    assert names.reply_topic("C") == "C_REPLY_TOPIC"
    assert names.revive_topic("C") == "rmq_sys_REVIVE_LOG_C"


def test_group_is_found_in_its_retry_and_dead_letter_topics() -> None:
    assert names.group_of_retry_topic("%RETRY%g") == "g"
    assert names.group_of_retry_topic("%DLQ%g") == "g"
    with pytest.raises(InvalidNameError):
        names.group_of_retry_topic("g")


def test_kinds_of_topics_are_told_apart() -> None:
    assert names.is_retry_topic("%RETRY%g")
    assert names.is_dlq_topic("%DLQ%g")
    assert names.is_lmq("%LMQ%x")
    assert names.is_system_topic("TBW102")
    assert names.is_system_topic(names.TIMER_TOPIC)
    assert not names.is_system_topic("T")
    assert names.is_system_group("CID_RMQ_SYS_x")
    assert names.is_system_group("TOOLS_CONSUMER")
    assert not names.is_system_group("g")


def test_system_topics_are_those_of_java() -> None:
    assert " ".join(sorted(names.SYSTEM_TOPICS)) == (
        "BenchmarkTest CHECKPOINT_TOPIC OFFSET_MOVED_EVENT RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC "
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC RMQ_SYS_TRACE_TOPIC RMQ_SYS_TRANS_HALF_TOPIC "
        "RMQ_SYS_TRANS_OP_HALF_TOPIC SCHEDULE_TOPIC_XXXX SELF_TEST_TOPIC TBW102 "
        "TRANS_CHECK_MAX_TIME_TOPIC"
    )
    assert " ".join(sorted(names.CLOSED_TOPICS)) == (
        "OFFSET_MOVED_EVENT RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC "
        "RMQ_SYS_TRANS_HALF_TOPIC RMQ_SYS_TRANS_OP_HALF_TOPIC SCHEDULE_TOPIC_XXXX SELF_TEST_TOPIC "
        "TRANS_CHECK_MAX_TIME_TOPIC"
    )
