"""The broker's tables together: built, loaded and saved in one place."""

from dataclasses import dataclass
from pathlib import Path

from downrange.broker.assignment import RequestModeTable
from downrange.broker.consumer_table import ConsumerTable
from downrange.broker.delay_table import DelayTable
from downrange.broker.filter_table import FilterTable
from downrange.broker.group_table import GroupSettings, GroupTable
from downrange.broker.lost_topics import restore_topics
from downrange.broker.offset_table import OffsetTable
from downrange.broker.producer_table import ProducerTable
from downrange.broker.queue_locks import QueueLocks
from downrange.broker.quotas import Quota
from downrange.broker.settings import BrokerSettings
from downrange.broker.subscriptions import SubscriptionFilters
from downrange.broker.system_topics import TopicSettings
from downrange.broker.table_saver import Spawn, TableSaver
from downrange.broker.table_savers import TableSavers
from downrange.broker.topic_table import TopicTable
from downrange.runtime.blocking import BlockingRunner
from downrange.runtime.clock import Clock
from downrange.runtime.disk import Disk, make_durable_directory
from downrange.store.feature_tables import request_modes_file
from downrange.store.filter_tables import consumer_filters_file
from downrange.store.json_tables import groups_file, topics_file
from downrange.store.message_store import MessageStore
from downrange.store.offset_tables import (
    consumer_offsets_file,
    delay_offsets_file,
    pending_resets_file,
)


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
    delays: DelayTable
    savers: TableSavers

    def load(self) -> None:
        """Take what the files hold; a file that cannot be read is an error."""
        self.topics.load()
        self.groups.load()
        self.offsets.load()
        self.modes.load()
        self.filters.load()
        self.delays.load()

    @property
    def save_failure(self) -> str | None:
        """Which tables cannot be saved, and why; None if all can."""
        return self.savers.failure


def open_tables(
    settings: BrokerSettings,
    store: MessageStore,
    disk: Disk,
    clock: Clock,
    runner: BlockingRunner,
    spawn: Spawn,
) -> BrokerTables:
    """The tables as their files have them, and the topics of messages in this open store."""
    tables = build_tables(settings, store.settings.config_path, disk, clock, runner, spawn)
    tables.load()
    restore_topics(tables.topics, store.queues)
    return tables


def build_tables(
    settings: BrokerSettings,
    config_path: Path,
    disk: Disk,
    clock: Clock,
    runner: BlockingRunner,
    spawn: Spawn,
) -> BrokerTables:
    """Empty tables with the broker's own topics and groups; `runner` writes their files.

    New topics and groups are saved when the current turn of the event loop is over.
    """
    make_durable_directory(disk, config_path)
    consumers = ConsumerTable(clock, client_expiry_ms=settings.client_expiry_ms)
    filters = FilterTable(
        consumer_filters_file(disk, config_path), clock, SubscriptionFilters.compile
    )
    consumers.on_group_gone.append(filters.unregister)
    topics = TopicTable(
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
    )
    groups = GroupTable(
        groups_file(disk, config_path),
        clock,
        GroupSettings(auto_create_enabled=settings.auto_create_groups),
    )
    offsets = OffsetTable(
        consumer_offsets_file(disk, config_path), clock, pending_resets_file(disk, config_path)
    )
    topics.quota = groups.quota = Quota(
        topics_max=settings.topics_max,
        queues_max=settings.queues_max,
        groups_max=settings.groups_max,
    )
    modes = RequestModeTable(request_modes_file(disk, config_path))
    delays = DelayTable(delay_offsets_file(disk, config_path), clock)
    savers = TableSavers(
        runner,
        topics=TableSaver("topics", topics, runner, spawn),
        groups=TableSaver("consumer groups", groups, runner, spawn),
        offsets=TableSaver("consumer offsets", offsets, runner, spawn),
        modes=TableSaver("request modes", modes, runner, spawn),
        filters=TableSaver("SQL92 subscriptions", filters, runner, spawn),
        delays=TableSaver("delay offsets", delays, runner, spawn),
    )
    topics.on_change.append(lambda _configs: savers.topics.request())
    groups.on_change.append(savers.groups.request)
    return BrokerTables(
        topics=topics,
        groups=groups,
        offsets=offsets,
        modes=modes,
        consumers=consumers,
        producers=ProducerTable(clock, client_expiry_ms=settings.client_expiry_ms),
        locks=QueueLocks(clock),
        filters=filters,
        delays=delays,
        savers=savers,
    )
