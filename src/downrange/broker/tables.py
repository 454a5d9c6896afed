"""The broker's tables together: built, loaded and saved in one place."""

import logging
from dataclasses import dataclass
from pathlib import Path

from downrange.broker.assignment import RequestModeTable
from downrange.broker.consumer_table import ConsumerTable
from downrange.broker.filter_table import FilterTable
from downrange.broker.group_table import GroupSettings, GroupTable
from downrange.broker.offset_table import OffsetTable
from downrange.broker.producer_table import ProducerTable
from downrange.broker.queue_locks import QueueLocks
from downrange.broker.settings import BrokerSettings
from downrange.broker.subscriptions import SubscriptionFilters
from downrange.broker.system_topics import TopicSettings
from downrange.broker.topic_table import TopicTable
from downrange.runtime.clock import Clock
from downrange.runtime.disk import Disk
from downrange.store.feature_tables import request_modes_file
from downrange.store.filter_tables import consumer_filters_file
from downrange.store.json_tables import groups_file, topics_file
from downrange.store.offset_tables import consumer_offsets_file

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerTables:
    """What a broker knows besides its messages."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    modes: RequestModeTable
    consumers: ConsumerTable
    producers: ProducerTable
    locks: QueueLocks
    filters: FilterTable

    def load(self) -> None:
        """Take what the files hold."""
        self.topics.load()
        self.groups.load()
        self.offsets.load()
        self.modes.load()
        self.filters.load()

    def save_changed(self) -> None:
        """Make durable what changed; a table whose file cannot be written stays marked."""
        for name, table in (
            ("topics", self.topics),
            ("groups", self.groups),
            ("offsets", self.offsets),
            ("request modes", self.modes),
            ("subscriptions by SQL92", self.filters),
        ):
            if table.is_dirty:
                try:
                    table.save()
                except OSError as error:
                    _log.error("the table of %s could not be saved: %s", name, error)


def build_tables(
    settings: BrokerSettings, config_path: Path, disk: Disk, clock: Clock
) -> BrokerTables:
    """Empty tables with the broker's own topics and groups."""
    disk.make_directory(config_path)
    consumers = ConsumerTable(clock, client_expiry_ms=settings.client_expiry_ms)
    filters = FilterTable(
        consumer_filters_file(disk, config_path), clock, SubscriptionFilters.compile
    )
    consumers.on_group_gone.append(filters.unregister)
    return BrokerTables(
        topics=TopicTable(
            topics_file(disk, config_path),
            clock,
            TopicSettings(
                cluster_name=settings.cluster_name,
                broker_name=settings.effective_name,
                auto_create_enabled=settings.auto_create_topics,
                default_queue_nums=settings.default_queue_nums,
                cluster_topic_enabled=settings.cluster_topic_enabled,
                broker_topic_enabled=settings.broker_topic_enabled,
                trace_topic_enabled=settings.trace_topic_enabled,
                trace_topic=settings.trace_topic,
            ),
        ),
        groups=GroupTable(
            groups_file(disk, config_path),
            clock,
            GroupSettings(auto_create_enabled=settings.auto_create_groups),
        ),
        offsets=OffsetTable(consumer_offsets_file(disk, config_path), clock),
        modes=RequestModeTable(request_modes_file(disk, config_path)),
        consumers=consumers,
        producers=ProducerTable(clock, client_expiry_ms=settings.client_expiry_ms),
        locks=QueueLocks(clock),
        filters=filters,
    )
