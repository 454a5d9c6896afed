"""Topics: those of the system, created by sending, changed by administrators, kept in a file."""

import re
from pathlib import Path

import pytest

from downrange.broker.system_topics import TopicSettings
from downrange.broker.topic_table import TopicTable
from downrange.model.topics import DataVersion, Permission, TopicConfig
from downrange.remoting.errors import Refused
from downrange.runtime.disk import Disk
from downrange.store.json_tables import TopicTable as TopicsInFile
from downrange.store.json_tables import decode_table, topics_file
from downrange.testing.clock import ManualClock

SETTINGS = TopicSettings(cluster_name="DefaultCluster", broker_name="broker-a")
# What a fresh 5.5.0 answers to GET_ALL_TOPIC_CONFIG: queue numbers and permission by name.
FRESH = {
    "BenchmarkTest": (1024, 6),
    "DefaultCluster": (16, 7),
    "DefaultCluster_REPLY_TOPIC": (1, 6),
    "OFFSET_MOVED_EVENT": (1, 6),
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": (1, 6),
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC": (1, 6),
    "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
    "SCHEDULE_TOPIC_XXXX": (18, 6),
    "SELF_TEST_TOPIC": (1, 6),
    "TBW102": (8, 7),
    "broker-a": (1, 7),
    "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 6),
    "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1),
    "rmq_sys_wheel_timer": (1, 6),
}


@pytest.fixture
def table(tmp_path: Path, disk: Disk, clock: ManualClock) -> TopicTable:
    return TopicTable(topics_file(disk, tmp_path), clock, SETTINGS)


def table_with(
    settings: TopicSettings, tmp_path: Path, disk: Disk, clock: ManualClock
) -> TopicTable:
    return TopicTable(topics_file(disk, tmp_path), clock, settings)


def heard(table: TopicTable) -> list[tuple[str, ...]]:
    changes: list[tuple[str, ...]] = []
    table.on_change.append(lambda configs: changes.append(tuple(c.topic_name for c in configs)))
    return changes


def test_a_fresh_broker_has_the_system_topics_of_5_5_0(
    table: TopicTable, clock: ManualClock
) -> None:
    shapes = {c.topic_name: (c.read_queue_nums, c.perm) for c in table.configs()}
    assert shapes == FRESH
    assert all(c.read_queue_nums == c.write_queue_nums for c in table.configs())
    assert table.data_version == DataVersion(timestamp=clock.wall_ms())


def test_the_system_topics_are_those_in_a_file_of_5_5_0(
    table: TopicTable, golden_config: Path
) -> None:
    golden = decode_table((golden_config / "topics.json").read_bytes(), TopicsInFile)
    # The last one is made when a transaction has been checked too often.
    users = {"orders", "payments", "TRANS_CHECK_MAX_TIME_TOPIC"}
    own = {n: c for n, c in golden.topics.items() if not n.startswith("%") and n not in users}
    assert {c.topic_name: c for c in table.configs()} == own


def test_switches_decide_which_system_topics_there_are(
    tmp_path: Path, disk: Disk, clock: ManualClock
) -> None:
    settings = TopicSettings(
        cluster_name="c",
        broker_name="b",
        auto_create_enabled=False,
        cluster_topic_enabled=False,
        broker_topic_enabled=False,
        trace_topic_enabled=True,
        timer_wheel_enabled=False,
    )
    table = table_with(settings, tmp_path, disk, clock)
    assert "TBW102" not in table
    assert "rmq_sys_wheel_timer" not in table
    assert "RMQ_SYS_TRACE_TOPIC" in table
    assert [c.perm for c in (table.get("c"), table.get("b")) if c is not None] == [1, 1]


def test_a_send_creates_a_topic_like_its_default_topic(
    table: TopicTable, clock: ManualClock
) -> None:
    changes = heard(table)
    clock.advance(5)
    created = table.create_for_send("orders", "TBW102", 4, 1)
    assert created == TopicConfig(
        topic_name="orders", read_queue_nums=4, write_queue_nums=4, perm=6, topic_sys_flag=1
    )
    assert table.get("orders") is created
    assert table.create_for_send("orders", "TBW102", 2, 0) is created
    assert changes == [("orders",)]
    assert table.data_version == DataVersion(counter=1, timestamp=clock.wall_ms())


@pytest.mark.parametrize(
    ("default_topic", "asked", "queue_nums"),
    [("TBW102", 100, 8), ("DefaultCluster", 100, 16), ("TBW102", -3, 0), ("broker-a", 4, 1)],
)
def test_a_new_topic_has_no_more_queues_than_its_default_topic(
    table: TopicTable, default_topic: str, asked: int, queue_nums: int
) -> None:
    created = table.create_for_send("t", default_topic, asked, 0)
    assert created is not None
    assert (created.read_queue_nums, created.write_queue_nums) == (queue_nums, queue_nums)


@pytest.mark.parametrize(
    ("default_topic", "reason"),
    [
        ("nope", "the default topic nope does not exist"),
        ("SELF_TEST_TOPIC", "the default topic SELF_TEST_TOPIC may not be inherited"),
    ],
)
def test_what_may_not_be_inherited_creates_nothing(
    table: TopicTable, default_topic: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert table.create_for_send("t", default_topic, 4, 0) is None
    assert table.creation_refusal(default_topic) == reason
    assert reason in caplog.text
    assert "t" not in table


def test_without_auto_creation_an_old_tbw102_in_the_file_does_not_help(
    table: TopicTable, tmp_path: Path, disk: Disk, clock: ManualClock
) -> None:
    table.save()
    settings = TopicSettings(
        cluster_name="DefaultCluster", broker_name="broker-a", auto_create_enabled=False
    )
    later = table_with(settings, tmp_path, disk, clock)
    later.load()
    assert later.create_for_send("t", "TBW102", 4, 0) is None
    assert later.creation_refusal("TBW102") == "autoCreateTopicEnable is false"
    assert later.create_for_send("t", "DefaultCluster", 4, 0) is not None
    assert later.creation_refusal("DefaultCluster") is None


@pytest.mark.parametrize("topic", ["../../etc", "a/b", "", "x" * 128, "a b"])
def test_a_name_that_is_no_topic_is_never_created(table: TopicTable, topic: str) -> None:
    with pytest.raises(Refused) as refusal:
        table.create_for_send(topic, "TBW102", 4, 0)
    assert refusal.value.code == 29
    with pytest.raises(Refused):
        table.update(TopicConfig(topic_name=topic))


def test_a_retry_topic_is_created_once_and_follows_the_order_of_its_group(
    table: TopicTable,
) -> None:
    created = table.create_for_send_back("%RETRY%g", 1, 2, is_ordered=False)
    assert created == TopicConfig(
        topic_name="%RETRY%g", read_queue_nums=1, write_queue_nums=1, topic_sys_flag=2
    )
    assert table.create_for_send_back("%RETRY%g", 5) is created
    assert table.create_for_send_back("%RETRY%g", 5, is_ordered=True).order
    assert table.is_ordered("%RETRY%g")
    closed = table.create_for_send_back("%DLQ%g", 1, perm=Permission.WRITE)
    assert closed.perm == 2


def test_an_update_creates_changes_and_is_silent_when_nothing_changes(table: TopicTable) -> None:
    changes = heard(table)
    wanted = TopicConfig(topic_name="t", read_queue_nums=4, write_queue_nums=4)
    created = table.update(wanted, {"+message.type": "FIFO"})
    assert created.attributes == {"message.type": "FIFO"}
    assert table.update(wanted) is created
    wider = table.update(TopicConfig(topic_name="t", read_queue_nums=8, write_queue_nums=8))
    assert (wider.read_queue_nums, wider.attributes) == (8, {"message.type": "FIFO"})
    assert table.update(wider, {"-message.type": ""}).attributes == {}
    assert changes == [("t",)] * 3
    assert table.data_version.counter == 3


@pytest.mark.parametrize(
    ("config", "code", "text"),
    [
        (TopicConfig(topic_name="TBW102"), 29, "conflict with system topic"),
        (TopicConfig(topic_name="broker-a"), 29, "conflict with system topic"),
        (TopicConfig(topic_name="rmq_sys_own"), 29, "conflict with system topic"),
        (TopicConfig(topic_name="t", read_queue_nums=-1), 29, "cannot have -1 read"),
        (TopicConfig(topic_name="t", write_queue_nums=10_001), 29, "0 to 10000 are possible"),
        (TopicConfig(topic_name="t", perm=99), 29, "perm 99"),
    ],
)
def test_an_update_that_cannot_be_is_refused(
    table: TopicTable, config: TopicConfig, code: int, text: str
) -> None:
    with pytest.raises(Refused, match=re.escape(text)) as refusal:
        table.update(config)
    assert refusal.value.code == code
    assert table.data_version.counter == 0


def test_mixed_message_types_need_a_switch(
    table: TopicTable, tmp_path: Path, disk: Disk, clock: ManualClock
) -> None:
    config, changes = TopicConfig(topic_name="t"), {"+message.type": "MIXED"}
    with pytest.raises(Refused, match="MIXED message type is not supported") as refusal:
        table.update(config, changes)
    assert refusal.value.code == 29
    settings = TopicSettings(cluster_name="c", broker_name="b", mixed_message_type_enabled=True)
    assert table_with(settings, tmp_path, disk, clock).update(config, changes).attributes


def test_a_deleted_topic_is_gone_and_a_system_topic_stays(table: TopicTable) -> None:
    table.create_for_send("t", "TBW102", 4, 0)
    changes = heard(table)
    assert table.delete("t")
    assert not table.delete("t")
    assert table.get("t") is None
    assert changes == [()]
    with pytest.raises(Refused) as refusal:
        table.delete("broker-a")
    assert refusal.value.code == 29


def test_order_topics_of_the_name_server_become_ordered(table: TopicTable) -> None:
    for topic in ("a", "b"):
        table.create_for_send(topic, "TBW102", 4, 0)
    changes = heard(table)
    table.follow_order_topics(["a", "unknown"])
    table.follow_order_topics(["a"])
    assert (table.is_ordered("a"), table.is_ordered("b")) == (True, False)
    assert changes == [("a",)]


def test_the_table_survives_its_file(
    table: TopicTable, tmp_path: Path, disk: Disk, clock: ManualClock
) -> None:
    table.create_for_send("t", "TBW102", 4, 0)
    table.save()
    assert not table.is_dirty
    again = table_with(SETTINGS, tmp_path, disk, clock)
    again.load()
    assert again.to_file() == table.to_file()
    assert not again.is_dirty


def test_a_file_of_5_5_0_comes_out_byte_for_byte(
    tmp_path: Path, disk: Disk, clock: ManualClock, golden_config: Path
) -> None:
    text = (golden_config / "topics.json").read_bytes()
    (tmp_path / "topics.json").write_bytes(text)
    table = table_with(SETTINGS, tmp_path, disk, clock)
    table.load()
    assert not table.is_dirty
    orders = table.get("orders")
    assert orders is not None
    assert orders.attributes == {"message.type": "NORMAL"}
    assert table.data_version.counter == 31
    table.save()
    assert (tmp_path / "topics.json").read_bytes() == text


def test_system_topics_missing_in_an_old_file_are_added_and_saved(
    tmp_path: Path, disk: Disk, clock: ManualClock
) -> None:
    (tmp_path / "topics.json").write_bytes(b'{"topicConfigTable":{"t":{"topicName":"t"}}}')
    table = table_with(SETTINGS, tmp_path, disk, clock)
    table.load()
    assert set(table.names()) == {*FRESH, "t"}
    assert table.is_dirty
    assert table.system_names() == sorted(FRESH)


def test_a_slave_takes_over_the_table_of_its_master(table: TopicTable) -> None:
    table.save()
    master = TopicsInFile(
        data_version=DataVersion(counter=7, timestamp=1), topics={"t": TopicConfig(topic_name="t")}
    )
    table.take_over(master)
    assert table.to_file() == master
    assert table.is_dirty
