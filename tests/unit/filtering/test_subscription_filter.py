"""Promises of the filters that reads from a queue use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downrange.filtering.sql92 import SqlExpression, compile_sql92
from downrange.filtering.subscription_filter import (
    RetrySqlFilter,
    SqlFilter,
    TagFilter,
    property_text,
    pull_filter,
)
from downrange.protocol.bodies.heartbeat import Subscription
from downrange.protocol.properties import encode_properties
from downrange.protocol.record import MAGIC_V1, MAGIC_V2, Record, encode_record


def record_bytes(
    properties: bytes, *, sys_flag: int = 0, body: bytes = b"body", topic: bytes = b"orders"
) -> memoryview:
    return memoryview(
        encode_record(
            Record(
                queue_id=0,
                flag=0,
                queue_offset=0,
                physical_offset=0,
                sys_flag=sys_flag,
                born_timestamp=0,
                born_host=bytes(20 if sys_flag & 16 else 8),
                store_timestamp=0,
                store_host=bytes(20 if sys_flag & 32 else 8),
                reconsume_times=0,
                prepared_offset=0,
                body=body,
                topic=topic,
                properties=properties,
                magic=MAGIC_V1 if len(topic) < 128 else MAGIC_V2,
            )
        )
    )


def record_with(**properties: str) -> memoryview:
    return record_bytes(encode_properties(properties))


def by_tags(*codes: int, expression: str = "A || B") -> Subscription:
    return Subscription(topic="orders", sub_string=expression, code_set=codes)


def by_sql(text: str, topic: str = "orders") -> Subscription:
    return Subscription(topic=topic, sub_string=text, expression_type="SQL92")


@pytest.mark.parametrize(
    "subscription",
    [
        None,
        by_tags(expression="*"),
        Subscription(topic="orders", sub_string="A", code_set=(65,), class_filter_mode=True),
        Subscription(topic="orders", sub_string="a", expression_type="SQL92"),
    ],
)
def test_a_subscription_to_everything_needs_no_filter(subscription: Subscription | None) -> None:
    assert pull_filter(subscription) is None


def test_tags_are_matched_by_the_codes_that_the_consumer_sent() -> None:
    message_filter = pull_filter(by_tags(65, 2112, -5))
    assert isinstance(message_filter, TagFilter)
    assert [message_filter.matches_entry(code) for code in (65, 2112, -5, 0, 66, -65)] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]
    assert message_filter.matches_record(record_with(TAGS="other"))


def test_codes_count_by_their_lower_32_bits() -> None:
    message_filter = TagFilter(frozenset((65, -5)))
    assert message_filter.matches_entry((7 << 32) + 65)
    assert message_filter.matches_entry((8 << 32) - 5)
    assert not message_filter.matches_entry((7 << 32) + 66)


def test_a_code_that_is_an_address_in_the_extension_file_matches() -> None:
    message_filter = TagFilter(frozenset((65,)))
    assert message_filter.matches_entry(-(1 << 31) - 1)
    assert message_filter.matches_entry(-(1 << 63))
    assert not message_filter.matches_entry(-(1 << 31))


def test_tags_without_any_code_match_nothing() -> None:
    message_filter = pull_filter(by_tags(expression=" || "))
    assert message_filter is not None
    assert not message_filter.matches_entry(0)


def test_an_expression_decides_by_the_record_alone() -> None:
    message_filter = pull_filter(by_sql("a > 5"), compile_sql92("a > 5"))
    assert isinstance(message_filter, SqlFilter)
    assert message_filter.matches_entry(0)
    assert message_filter.matches_record(record_with(a="6", b="x"))
    assert not message_filter.matches_record(record_with(a="5"))
    assert not message_filter.matches_record(record_with(a="text"))
    assert not message_filter.matches_record(record_with(b="6"))
    assert not message_filter.matches_record(record_bytes(b""))


@pytest.mark.parametrize("sys_flag", [0, 16, 32, 48])
@pytest.mark.parametrize("topic", [b"t", b"t" * 127, b"t" * 300])
@pytest.mark.parametrize("body", [b"", b"a\x016\x02" * 300])
def test_properties_are_found_in_each_layout_of_a_record(
    sys_flag: int, topic: bytes, body: bytes
) -> None:
    text = encode_properties({"a": "7", "ü": "ä"})
    record = record_bytes(text, sys_flag=sys_flag, topic=topic, body=body)
    assert property_text(record) == text
    assert SqlFilter(compile_sql92("a = 7")).matches_record(record)


def test_a_record_whose_lengths_lie_is_passed_on() -> None:
    record = record_with(a="1")
    message_filter = SqlFilter(compile_sql92("a = 2"))
    assert not message_filter.matches_record(record)
    for size in range(len(record)):
        assert message_filter.matches_record(record[:size]), size
    for body_length in (-1, 1 << 30, len(record)):
        lying = bytearray(record)
        lying[84:88] = body_length.to_bytes(4, "big", signed=True)
        assert message_filter.matches_record(memoryview(lying)), body_length


NAMES = ("a", "b", "aa", "c")
VALUES = st.sampled_from(("", "1", "2", "ä", "a\x011"))


@given(st.lists(st.tuples(st.sampled_from((*NAMES, "")), VALUES), max_size=6))
def test_few_names_give_the_same_answer_as_many(entries: list[tuple[str, str]]) -> None:
    text = "\x02".join(f"{name}\x01{value}" for name, value in entries).encode()
    condition = "a = '1' OR b = '1' AND aa = 'ä' OR c IS NULL"
    few = SqlFilter(compile_sql92(condition))
    many = SqlFilter(compile_sql92(condition + "".join(f" OR x{n} = '1'" for n in range(9))))
    assert few.matches_properties(text) is many.matches_properties(text)


def expressions(topic: str) -> SqlExpression | None:
    return {"orders": compile_sql92("a > 5")}.get(topic)


def test_retries_are_filtered_by_the_expression_for_their_topic_if_the_broker_does_so() -> None:
    subscription = by_sql("*", topic="%RETRY%group")
    message_filter = pull_filter(subscription, None, expressions)
    assert isinstance(message_filter, RetrySqlFilter)
    assert message_filter.matches_entry(0)
    assert message_filter.matches_record(record_with(RETRY_TOPIC="orders", a="6"))
    assert not message_filter.matches_record(record_with(RETRY_TOPIC="orders", a="5"))
    assert message_filter.matches_record(record_with(RETRY_TOPIC="bills", a="5"))
    assert message_filter.matches_record(record_with(a="5"))
    assert message_filter.matches_record(record_with(RETRY_TOPIC="orders", a="5")[:80])


def test_retries_are_filtered_by_the_subscription_to_the_retry_topic_otherwise() -> None:
    subscription = by_sql("a = 1", topic="%RETRY%group")
    message_filter = pull_filter(subscription, compile_sql92("a = 1"))
    assert isinstance(message_filter, SqlFilter)
    assert not message_filter.matches_record(record_with(RETRY_TOPIC="orders", a="6"))


def test_retries_of_a_subscription_by_tags_are_not_filtered_by_property() -> None:
    subscription = Subscription(topic="%RETRY%group", sub_string="*")
    assert pull_filter(subscription, None, expressions) is None


def test_other_topics_are_filtered_by_their_own_expression_also_if_retries_are_filtered() -> None:
    message_filter = pull_filter(by_sql("a = 1"), compile_sql92("a = 1"), expressions)
    assert isinstance(message_filter, SqlFilter)
