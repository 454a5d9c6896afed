"""Consumer groups: those of the system, created by use, forbidden topics, kept in a file."""

from pathlib import Path

import pytest

from downrange.broker.group_table import GroupSettings, GroupTable
from downrange.model.topics import DataVersion, SubscriptionGroupConfig
from downrange.remoting.errors import Refused
from downrange.runtime.disk import Disk
from downrange.store.json_tables import GroupTable as GroupsInFile
from downrange.store.json_tables import decode_table, groups_file
from downrange.testing.clock import ManualClock

# What a fresh 5.5.0 answers to GET_ALL_SUBSCRIPTIONGROUP_CONFIG.
FRESH = [
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_OWNER",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_PULL",
    "CID_RMQ_SYS_TRANS",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "TOOLS_CONSUMER",
]


@pytest.fixture
def table(tmp_path: Path, disk: Disk, clock: ManualClock) -> GroupTable:
    return GroupTable(groups_file(disk, tmp_path), clock)


def test_a_fresh_broker_has_the_groups_of_5_5_0(table: GroupTable, golden_config: Path) -> None:
    assert table.names() == FRESH
    golden = decode_table((golden_config / "subscriptionGroup.json").read_bytes(), GroupsInFile)
    assert {c.group_name: c for c in table.configs()} == {n: golden.groups[n] for n in FRESH}


def test_a_group_that_is_used_comes_into_being(table: GroupTable, clock: ManualClock) -> None:
    changes: list[None] = []
    table.on_change.append(lambda: changes.append(None))
    assert table.get("g") is None
    assert table.find("g") == SubscriptionGroupConfig(group_name="g")
    assert table.find("g") is table.get("g")
    assert "g" in table
    assert len(changes) == 1
    assert table.data_version == DataVersion(counter=1, timestamp=clock.wall_ms())


@pytest.mark.parametrize("group", ["", "a/b", "../x", "g" * 121])
def test_a_name_that_is_no_group_never_becomes_one(table: GroupTable, group: str) -> None:
    assert table.find(group) is None
    with pytest.raises(Refused) as refusal:
        table.update(SubscriptionGroupConfig(group_name=group))
    assert refusal.value.code == 29


def test_a_group_cannot_have_more_retry_queues_than_a_topic_has(table: GroupTable) -> None:
    with pytest.raises(Refused, match="at most 10000 queues") as refusal:
        table.update(SubscriptionGroupConfig(group_name="g", retry_queue_nums=10_001))
    assert refusal.value.code == 29


def test_without_auto_creation_only_system_groups_come_into_being(
    tmp_path: Path, disk: Disk, clock: ManualClock
) -> None:
    file = groups_file(disk, tmp_path)
    table = GroupTable(file, clock, GroupSettings(auto_create_enabled=False))
    assert table.find("g") is None
    assert table.find("CID_RMQ_SYS_NEW") is not None
    strict = GroupSettings(auto_create_enabled=False, create_system_groups=False)
    assert GroupTable(file, clock, strict).find("CID_RMQ_SYS_NEW") is None


def test_an_update_is_silent_when_nothing_changes(table: GroupTable) -> None:
    config = SubscriptionGroupConfig(group_name="g", retry_max_times=3)
    table.update(config, {"+priority.factor": "50"})
    table.update(config)
    assert table.data_version.counter == 1
    found = table.get("g")
    assert found is not None
    assert (found.retry_max_times, found.attributes) == (3, {"priority.factor": "50"})


def test_a_disabled_group_stays_with_consuming_switched_off(table: GroupTable) -> None:
    table.find("g")
    assert table.disable("g")
    assert not table.disable("nope")
    found = table.get("g")
    assert found is not None
    assert not found.consume_enable


def test_forbidden_topics_are_set_and_cleared_one_by_one(table: GroupTable) -> None:
    assert table.set_forbidden("g", "a", 2, is_forbidden=True) == 4
    assert table.set_forbidden("g", "b", 2, is_forbidden=True) == 4
    assert table.set_forbidden("g", "a", 0, is_forbidden=True) == 5
    assert table.is_forbidden("g", "a")
    assert table.set_forbidden("g", "a", 2, is_forbidden=False) == 1
    assert table.set_forbidden("g", "a", 0, is_forbidden=False) == 0
    # A real 5.5.0 lets the group read topic b again here.
    assert (table.is_forbidden("g", "a"), table.is_forbidden("g", "b")) == (False, True)
    assert table.to_file().forbidden == {"g": {"b": 4}}
    with pytest.raises(Refused):
        table.set_forbidden("g", "a", 31, is_forbidden=True)


def test_a_deleted_group_is_gone_with_what_was_forbidden(table: GroupTable) -> None:
    table.find("g")
    table.set_forbidden("g", "a", 2, is_forbidden=True)
    assert table.delete("g")
    assert not table.delete("g")
    assert (table.get("g"), table.forbidden_bits("g", "a")) == (None, 0)


def test_the_table_survives_its_file(
    table: GroupTable, tmp_path: Path, disk: Disk, clock: ManualClock
) -> None:
    table.find("g")
    table.set_forbidden("g", "a", 2, is_forbidden=True)
    table.save()
    assert not table.is_dirty
    again = GroupTable(groups_file(disk, tmp_path), clock)
    again.load()
    assert again.to_file() == table.to_file()
    assert not again.is_dirty


def test_a_file_of_5_5_0_comes_out_byte_for_byte(
    table: GroupTable, tmp_path: Path, golden_config: Path
) -> None:
    text = (golden_config / "subscriptionGroup.json").read_bytes()
    (tmp_path / "subscriptionGroup.json").write_bytes(text)
    table.load()
    assert not table.is_dirty
    table.save()
    assert (tmp_path / "subscriptionGroup.json").read_bytes() == text


def test_a_slave_takes_over_the_table_of_its_master(table: GroupTable) -> None:
    master = GroupsInFile(
        data_version=DataVersion(counter=9),
        forbidden={"g": {"t": 4}},
        groups={"g": SubscriptionGroupConfig(group_name="g")},
    )
    table.take_over(master)
    assert table.to_file() == master
