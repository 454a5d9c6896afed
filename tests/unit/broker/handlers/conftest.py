"""The tables that handlers work on, in a folder of their own."""

from pathlib import Path

import pytest

from downrange.broker.consumer_table import ConsumerTable
from downrange.broker.group_table import GroupSettings, GroupTable
from downrange.broker.offset_table import OffsetTable
from downrange.broker.producer_table import ProducerTable
from downrange.broker.system_topics import TopicSettings
from downrange.broker.topic_table import TopicTable
from downrange.runtime.disk import Disk
from downrange.store.json_tables import groups_file, topics_file
from downrange.store.offset_tables import consumer_offsets_file, pending_resets_file
from downrange.testing.clock import ManualClock


@pytest.fixture
def topics(tmp_path: Path, disk: Disk, clock: ManualClock) -> TopicTable:
    settings = TopicSettings(cluster_name="DefaultCluster", broker_name="broker-a")
    return TopicTable(topics_file(disk, tmp_path), clock, settings)


@pytest.fixture
def groups(tmp_path: Path, disk: Disk, clock: ManualClock) -> GroupTable:
    return GroupTable(groups_file(disk, tmp_path), clock)


@pytest.fixture
def closed_groups(tmp_path: Path, disk: Disk, clock: ManualClock) -> GroupTable:
    """Groups that do not come into being by being used."""
    settings = GroupSettings(auto_create_enabled=False)
    return GroupTable(groups_file(disk, tmp_path), clock, settings)


@pytest.fixture
def offsets(tmp_path: Path, disk: Disk, clock: ManualClock) -> OffsetTable:
    return OffsetTable(
        consumer_offsets_file(disk, tmp_path), clock, pending_resets_file(disk, tmp_path)
    )


@pytest.fixture
def consumers(clock: ManualClock) -> ConsumerTable:
    return ConsumerTable(clock)


@pytest.fixture
def producers(clock: ManualClock) -> ProducerTable:
    return ProducerTable(clock)
