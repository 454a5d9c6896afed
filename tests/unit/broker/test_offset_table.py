"""Offsets of groups: committed, reset once, cloned, removed, kept in a file."""

from pathlib import Path

import pytest

from downrange.broker.offset_table import OffsetTable
from downrange.runtime.disk import Disk
from downrange.store.offset_tables import (
    ConsumerOffsets,
    PendingResets,
    consumer_offsets_file,
    pending_resets_file,
)
from downrange.testing.clock import ManualClock


@pytest.fixture
def table(tmp_path: Path, disk: Disk, clock: ManualClock) -> OffsetTable:
    return OffsetTable(
        consumer_offsets_file(disk, tmp_path), clock, pending_resets_file(disk, tmp_path)
    )


def test_an_offset_is_what_was_committed_last_also_if_that_is_less(table: OffsetTable) -> None:
    assert table.query("g", "t", 0) == -1
    table.commit("g", "t", 0, 7)
    assert table.query("g", "t", 0) == 7
    table.commit("g", "t", 0, 5)
    assert table.query("g", "t", 0) == 5
    assert (table.query("g", "t", 1), table.query("h", "t", 0)) == (-1, -1)
    assert table.of_queues("g", "t") == {0: 5}


def test_only_a_change_makes_the_table_dirty(table: OffsetTable) -> None:
    seen = [table.is_dirty]
    table.commit("g", "t", 0, 7)
    seen.append(table.is_dirty)
    table.save()
    table.commit("g", "t", 0, 7)
    seen.append(table.is_dirty)
    assert seen == [False, True, False]


def test_the_version_changes_after_many_commits(
    tmp_path: Path, disk: Disk, clock: ManualClock
) -> None:
    table = OffsetTable(
        consumer_offsets_file(disk, tmp_path),
        clock,
        pending_resets_file(disk, tmp_path),
        commits_per_version=3,
    )
    counters = []
    for offset in range(7):
        table.commit("g", "t", 0, offset)
        counters.append(table.data_version.counter)
    assert counters == [0, 0, 1, 1, 1, 2, 2]


def test_a_reset_holds_until_a_pull_takes_it_and_commits_are_ignored_meanwhile(
    table: OffsetTable,
) -> None:
    table.commit("g", "t", 0, 10)
    table.reset("g", "t", 0, 3)
    assert table.has_reset("g", "t", 0)
    table.commit("g", "t", 0, 11)
    table.commit("g", "t", 1, 11)
    assert (table.query("g", "t", 0), table.query("g", "t", 1)) == (3, 11)
    assert table.take_reset("g", "t", 1) is None
    assert table.take_reset("g", "t", 0) == 3
    assert table.take_reset("g", "t", 0) is None
    assert not table.has_reset("g", "t", 0)
    assert table.query("g", "t", 0) == 3
    table.commit("g", "t", 0, 4)
    assert table.query("g", "t", 0) == 4


def test_a_reset_is_in_the_table_for_consumers_that_start_later(table: OffsetTable) -> None:
    table.reset("g", "t", 2, 3)
    assert table.of_queues("g", "t") == {2: 3}
    assert table.is_dirty


def test_a_pull_offset_is_apart_from_the_committed_one(table: OffsetTable) -> None:
    table.commit("g", "t", 0, 5)
    assert table.query_pull("g", "t", 0) == 5
    table.note_pull("g", "t", 0, 9)
    assert (table.query_pull("g", "t", 0), table.query("g", "t", 0)) == (9, 5)
    table.clear_pull("g", "t")
    assert table.query_pull("g", "t", 0) == 5
    assert table.query_pull("g", "t", 1) == -1


def test_topics_and_groups_are_found_by_each_other(table: OffsetTable) -> None:
    for group, topic in (("g", "t"), ("g", "u"), ("h", "t"), ("gg", "tt")):
        table.commit(group, topic, 0, 1)
    assert table.topics_of("g") == {"t", "u"}
    assert table.groups_of("t") == {"g", "h"}


def test_a_clone_stands_where_its_source_stood(table: OffsetTable) -> None:
    table.commit("g", "t", 0, 5)
    table.clone("g", "h", "t")
    table.commit("g", "t", 0, 6)
    assert table.of_queues("h", "t") == {0: 5}
    table.clone("nobody", "h", "t")
    assert table.of_queues("h", "t") == {0: 5}
    table.put_all("h", "t", {0: 1, 3: 2})
    assert table.of_queues("h", "t") == {0: 1, 3: 2}


def test_what_is_removed_is_gone_everywhere_and_nothing_else(table: OffsetTable) -> None:
    for group, topic in (("g", "t"), ("g", "u"), ("h", "t"), ("gg", "t")):
        table.commit(group, topic, 0, 1)
        table.note_pull(group, topic, 0, 2)
        table.reset(group, topic, 0, 3)
    table.remove_group("g")
    assert (table.topics_of("g"), table.groups_of("t")) == (set(), {"h", "gg"})
    assert (table.query_pull("g", "t", 0), table.has_reset("g", "t", 0)) == (-1, False)
    table.remove_topic("t")
    assert table.to_file().offsets == {}
    assert table.to_file().pull_offsets == {}


def test_the_slowest_group_counts_and_excluded_ones_keep_their_offsets(table: OffsetTable) -> None:
    for group, offset in (("fast", 9), ("slow", 4), ("dead", 1), ("out", 3)):
        table.commit(group, "t", 0, offset)
    assert table.min_offsets("t", {"out"}, lambda _: 2) == {0: 4}
    assert table.query("out", "t", 0) == 3


def test_offsets_of_nobody_behind_the_data_are_removed(table: OffsetTable) -> None:
    for group, offset in (("gone", 1), ("runs", 1), ("ahead", 9)):
        table.commit(group, "t", 0, offset)
    removed = table.remove_stale(lambda group, _: group == "runs", lambda _, __: 5)
    assert (removed, table.groups_of("t")) == (1, {"runs", "ahead"})


def test_offsets_and_waiting_resets_survive_in_the_file_and_pull_offsets_do_not(
    table: OffsetTable, tmp_path: Path, disk: Disk, clock: ManualClock
) -> None:
    table.commit("g", "t", 0, 5)
    table.note_pull("g", "t", 0, 6)
    table.reset("g", "t", 1, 2)
    table.save()
    again = OffsetTable(
        consumer_offsets_file(disk, tmp_path), clock, pending_resets_file(disk, tmp_path)
    )
    again.load()
    assert again.of_queues("g", "t") == {0: 5, 1: 2}
    assert again.has_reset("g", "t", 1)
    assert again.query_pull("g", "t", 0) == 5
    assert again.data_version == table.data_version
    assert not again.is_dirty
    assert again.take_reset("g", "t", 1) == 2
    again.save()
    assert pending_resets_file(disk, tmp_path).load() == PendingResets()


def test_a_file_of_5_5_0_comes_out_byte_for_byte(
    tmp_path: Path, disk: Disk, clock: ManualClock, golden_config: Path
) -> None:
    text = (golden_config / "consumerOffset.json").read_bytes()
    (tmp_path / "consumerOffset.json").write_bytes(text)
    table = OffsetTable(
        consumer_offsets_file(disk, tmp_path), clock, pending_resets_file(disk, tmp_path)
    )
    table.load()
    table.save()
    saved = (tmp_path / "consumerOffset.json").read_bytes()
    # Pull offsets are written for readers and not loaded, so they are missing the second time.
    assert saved.partition(b'"pullOffsetTable"')[0] == text.partition(b'"pullOffsetTable"')[0]


def test_a_slave_takes_over_the_offsets_of_its_master(table: OffsetTable) -> None:
    table.take_over(ConsumerOffsets(offsets={"t@g": {0: 4}}))
    assert table.query("g", "t", 0) == 4
    assert table.is_dirty
