"""What both sides of a store exchange agree on: file sizes, topics, and how many messages."""

from pathlib import Path

from interop.apache import LONG_GROUP

from downrange.broker.filter_table import FilterTable
from downrange.broker.subscriptions import SubscriptionFilters
from downrange.model.topics import SubscriptionGroupConfig, TopicConfig
from downrange.protocol.bodies.heartbeat import Subscription
from downrange.runtime.clock import SystemClock
from downrange.runtime.disk import Disk
from downrange.store.filter_tables import consumer_filters_file
from downrange.store.json_tables import GroupTable, TopicTable, groups_file, topics_file
from downrange.store.settings import ReadSettings, RetentionSettings, StoreSettings

MIB = 1024 * 1024
MESSAGES = 100_000
MORE_MESSAGES = 5_000
QUEUES = 4
TOPICS = ("orders", "payments", "shipments")
LONG_TOPIC = f"%RETRY%{LONG_GROUP}"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
SQL_GROUP = "by-sql"
SQL_SUBSCRIPTION = Subscription(
    topic=TOPICS[0], sub_string="number > 3", sub_version=7, expression_type="SQL92"
)

SEGMENT_BYTES = 32 * MIB  # so that the messages fill several files
INDEX_SLOTS = 500_000
INDEX_ITEMS = 200_000  # so that their keys do not fit into one index file
PULL_COUNT_MAX = 4096

APACHE_SETTINGS = {
    "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
    "maxHashSlotNum": str(INDEX_SLOTS),
    "maxIndexNum": str(INDEX_ITEMS),
    # Without this a crash costs Apache keys: it deletes the unfinished index file and indexes again
    # only from the log file where the consume queues go on.
    "messageIndexSafe": "true",
    # Large answers, because the test pulls everything.
    "maxTransferCountOnMessageInMemory": str(PULL_COUNT_MAX),
    "maxTransferBytesOnMessageInMemory": str(4 * MIB),
    "maxTransferCountOnMessageInDisk": str(PULL_COUNT_MAX),
    "maxTransferBytesOnMessageInDisk": str(4 * MIB),
}


def downrange_settings(root: Path) -> StoreSettings:
    """Settings under which our store reads and writes the same files."""
    return StoreSettings(
        root=root,
        segment_bytes=SEGMENT_BYTES,
        index_slots=INDEX_SLOTS,
        index_items=INDEX_ITEMS,
        # The tests compare messages, not how a slow or nearly full disk is treated.
        page_cache_busy_ms=60_000,
        retention=RetentionSettings(clean_ratio=0.97, force_ratio=0.98, full_ratio=0.99),
        read=ReadSettings(
            in_memory_count_max=PULL_COUNT_MAX,
            in_memory_bytes_max=8 * MIB,
            on_disk_count_max=PULL_COUNT_MAX,
            on_disk_bytes_max=8 * MIB,
            query_count_max=MESSAGES,
        ),
    )


def save_tables(root: Path) -> None:
    """Write the tables from which an Apache broker learns what topics and groups there are."""
    config = root / "config"
    config.mkdir(parents=True, exist_ok=True)
    queue_counts = {**dict.fromkeys(TOPICS, QUEUES), LONG_TOPIC: 1}
    topics = {
        name: TopicConfig(topic_name=name, read_queue_nums=count, write_queue_nums=count)
        for name, count in queue_counts.items()
    }
    groups = {LONG_GROUP: SubscriptionGroupConfig(group_name=LONG_GROUP)}
    topics_file(Disk(), config).save(TopicTable(topics=topics))
    groups_file(Disk(), config).save(GroupTable(groups=groups))
    filters = filter_table(root)
    filters.register(SQL_GROUP, [SQL_SUBSCRIPTION])
    filters.save()


def filter_table(root: Path) -> FilterTable:
    """The SQL92 subscriptions of a store, as the last broker has left them."""
    file = consumer_filters_file(Disk(), root / "config")
    filters = FilterTable(file, SystemClock(), SubscriptionFilters.compile)
    filters.load()
    return filters
