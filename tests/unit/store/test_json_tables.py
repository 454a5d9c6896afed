"""JSON tables in the form of RocketMQ 5.5.0; the files in json_tables/ are from its own classes."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from downrange.model.topics import (
    CustomizedRetryPolicy,
    DataVersion,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    RetryPolicyType,
    SimpleSubscription,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicFilterType,
)
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.json_text import write_json
from downrange.protocol.pretty_json import write_pretty_json
from downrange.runtime.disk import Disk
from downrange.runtime.durable_file import DurableFileError
from downrange.store.feature_tables import (
    OrderedPops,
    RequestModes,
    TimerMetrics,
    TransactionMetrics,
    ordered_pops_file,
    request_modes_file,
    timer_metrics_file,
    transaction_metrics_file,
)
from downrange.store.filter_tables import ConsumerFilters
from downrange.store.json_tables import (
    GroupTable,
    TableFile,
    TopicTable,
    decode_table,
    groups_file,
    topics_file,
)
from downrange.store.offset_tables import (
    ConsumerOffsets,
    DelayOffsets,
    LmqOffsets,
    consumer_offsets_file,
    delay_offsets_file,
    group_topics,
    lmq_offsets_file,
)

FOLDER = Path(__file__).with_name("json_tables")
TOPICS = (FOLDER / "topics.json").read_bytes()
GROUPS = (FOLDER / "subscriptionGroup.json").read_bytes()
OFFSETS = (FOLDER / "consumerOffset.json").read_bytes()
LMQ_OFFSETS = (FOLDER / "lmqConsumerOffset.json").read_bytes()
DELAY_OFFSETS = (FOLDER / "delayOffset.json").read_bytes()
ORDERED_POPS = (FOLDER / "consumerOrderInfo.json").read_bytes()
TIMER_METRICS = (FOLDER / "timermetrics").read_bytes()
BY_FILE: dict[str, tuple[type[Struct], Callable[[object], bytes]]] = {
    "topics.json": (TopicTable, write_pretty_json),
    "subscriptionGroup.json": (GroupTable, write_pretty_json),
    "consumerOffset.json": (ConsumerOffsets, write_pretty_json),
    "lmqConsumerOffset.json": (LmqOffsets, write_pretty_json),
    "delayOffset.json": (DelayOffsets, write_pretty_json),
    "messageRequestMode.json": (RequestModes, write_pretty_json),
    "consumerOrderInfo.json": (OrderedPops, write_pretty_json),
    "timermetrics": (TimerMetrics, write_json),
    "transactionMetrics": (TransactionMetrics, write_json),
    "consumerFilter.json": (ConsumerFilters, write_pretty_json),
}
GOLDEN = Path(__file__).parents[2] / "golden"
CAPTURED = sorted(
    path
    for path in GOLDEN.glob("data/*/store/config/*")
    if path.name.removesuffix(".bak") in BY_FILE
)
VERSION = DataVersion(counter=42, state_version=3, timestamp=1700000000123)


@pytest.mark.parametrize("name", BY_FILE)
def test_table_of_java_comes_out_byte_for_byte(name: str) -> None:
    table, write = BY_FILE[name]
    text = (FOLDER / name).read_bytes()
    assert write(decode_table(text, table)) == text


@pytest.mark.parametrize("path", CAPTURED, ids=lambda path: str(path.relative_to(GOLDEN)))
def test_table_captured_from_a_broker_comes_out_byte_for_byte(path: Path) -> None:
    table, write = BY_FILE[path.name.removesuffix(".bak")]
    decoded = decode_table(path.read_bytes(), table)
    assert write(decoded) == path.read_bytes()
    if isinstance(decoded, ConsumerOffsets):
        assert write(decoded.with_group_topics()) == path.read_bytes()


def test_topics_have_their_values() -> None:
    table = decode_table(TOPICS, TopicTable)
    assert table.data_version == VERSION
    first, second = table.topics.values()
    assert first == TopicConfig(
        topic_name="TopicTest",
        read_queue_nums=8,
        write_queue_nums=8,
        attributes={"message.type": "NORMAL", "queue.type": "BatchCQ"},
    )
    assert second.order
    assert second.topic_filter_type == TopicFilterType.MULTI_TAG
    assert (second.read_queue_nums, second.write_queue_nums, second.perm) == (1, 2, 4)
    assert second.topic_name.startswith('订单 "q"\\/\x01')


def test_groups_have_their_values() -> None:
    table = decode_table(GROUPS, GroupTable)
    assert table.forbidden == {"plain": {"T": 5}}
    assert table.groups["plain"] == SubscriptionGroupConfig(group_name="plain")
    rich = table.groups["rich"]
    assert rich.group_retry_policy == GroupRetryPolicy(
        type=RetryPolicyType.EXPONENTIAL,
        exponential_retry_policy=ExponentialRetryPolicy(initial=1000, max=2000, multiplier=3),
    )
    assert rich.subscription_data_set == [
        SimpleSubscription(topic="T", expression="*", expression_type="TAG", version=5)
    ]
    custom = table.groups["custom"].group_retry_policy
    assert custom.customized_retry_policy == CustomizedRetryPolicy(next=(1000, 5000))


def test_offsets_have_their_values() -> None:
    table = decode_table(OFFSETS, ConsumerOffsets)
    assert table.offsets["TopicTest@group"] == {0: 5, 1: 456, 2: 5_000_000_000, 10: -1}
    assert table.pull_offsets == {"TopicTest@group": {0: 9}}
    assert decode_table(DELAY_OFFSETS, DelayOffsets).offsets == {1: 10, 18: 7, 2: 0}
    assert decode_table(LMQ_OFFSETS, LmqOffsets).lmq_offsets == {"%LMQ%x@g": 5}


def test_ordered_pops_have_their_values() -> None:
    table = decode_table(ORDERED_POPS, OrderedPops)
    pop = table.table["T@g"][2]
    assert (pop.attempt_id, pop.commit_bits, pop.offset_list) == ("att", 3, (5, 1, 3))


def test_topics_of_groups_follow_from_the_offsets_in_the_order_of_java() -> None:
    for text, table in ((OFFSETS, ConsumerOffsets), (LMQ_OFFSETS, LmqOffsets)):
        made = decode_table(text, table).with_group_topics()
        assert write_pretty_json(made) == text
    assert group_topics(["T@g", "bad", "a@b@c", "T@", "S@g"]) == {"g": ["S", "T"]}


@pytest.mark.parametrize(
    "text",
    [
        '{"topicConfigTable":{"T":{"topicName":"T","perm":6,"readQueueNums":"16","new":[1]}}}',
        '{"topicConfigTable":{"T":{"topicName":"T","attributes":null,"order":"false"}},"x":{}}',
        "{'topicConfigTable':{T:{topicName:'T'}},}",
    ],
)
def test_loose_table_is_read_with_defaults_for_what_is_missing(text: str) -> None:
    table = decode_table(text.encode(), TopicTable)
    assert table.topics == {"T": TopicConfig(topic_name="T")}
    assert table.data_version == DataVersion()


def test_quoted_queue_numbers_are_numbers() -> None:
    table = decode_table(b'{"offsetTable":{"T@g":{"0":"5","1":6}}}', ConsumerOffsets)
    assert table.offsets == {"T@g": {0: 5, 1: 6}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"offsetTable":[]}',
        '{"offsetTable":{"T@g":{"x":1}}}',
        '{"offsetTable":{"T@g":{"0":9223372036854775808}}}',
        '{"offsetTable":{{"a":1}:{0:1}}}',
    ],
)
def test_text_that_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_table(text.encode(), ConsumerOffsets)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.dictionaries(st.integers(0, 1 << 31), st.integers(-(1 << 63), (1 << 63) - 1)),
    )
)
def test_any_offsets_survive_the_way_through_their_file(offsets: dict[str, dict[int, int]]) -> None:
    table = ConsumerOffsets(offsets=offsets).with_group_topics()
    assert decode_table(write_pretty_json(table), ConsumerOffsets) == table


@pytest.mark.parametrize(
    ("open_file", "table", "name"),
    [
        (topics_file, TopicTable(), "topics.json"),
        (groups_file, GroupTable(), "subscriptionGroup.json"),
        (consumer_offsets_file, ConsumerOffsets(), "consumerOffset.json"),
        (lmq_offsets_file, LmqOffsets(), "lmqConsumerOffset.json"),
        (delay_offsets_file, DelayOffsets(), "delayOffset.json"),
        (request_modes_file, RequestModes(), "messageRequestMode.json"),
        (ordered_pops_file, OrderedPops(), "consumerOrderInfo.json"),
        (timer_metrics_file, TimerMetrics(), "timermetrics"),
        (transaction_metrics_file, TransactionMetrics(), "transactionMetrics"),
    ],
)
def test_table_survives_its_file(
    tmp_path: Path,
    open_file: Callable[[Disk, Path], TableFile[Struct]],
    table: Struct,
    name: str,
) -> None:
    open_file(Disk(), tmp_path).save(table)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert open_file(Disk(), tmp_path).load() == table


def test_files_have_the_bytes_of_java(tmp_path: Path) -> None:
    topics_file(Disk(), tmp_path).save(decode_table(TOPICS, TopicTable))
    assert (tmp_path / "topics.json").read_bytes() == TOPICS
    timer_metrics_file(Disk(), tmp_path).save(decode_table(TIMER_METRICS, TimerMetrics))
    assert (tmp_path / "timermetrics").read_bytes() == TIMER_METRICS


def test_damaged_table_is_read_from_its_backup_or_reported(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_bytes(TOPICS[: len(TOPICS) // 2])
    with pytest.raises(DurableFileError, match=r"topics\.json"):
        topics_file(Disk(), tmp_path).load()
    (tmp_path / "topics.json.bak").write_bytes(TOPICS)
    assert topics_file(Disk(), tmp_path).load() == decode_table(TOPICS, TopicTable)
