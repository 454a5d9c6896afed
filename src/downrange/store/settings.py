"""What a store can be told, with RocketMQ's defaults."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from downrange.store.log_paths import LogPaths

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
OPEN_FILES_MAX = 256  # unless the owner knows what its process can afford


COMMIT_LOG_NAME = "commitlog"


class FlushMode(Enum):
    """When a message counts as stored: in memory, or on the disk."""

    ASYNC = "ASYNC_FLUSH"
    SYNC = "SYNC_FLUSH"


@dataclass(frozen=True, kw_only=True, slots=True)
class FlushSettings:
    """How often what is in memory goes to the disk."""

    mode: FlushMode = FlushMode.ASYNC
    interval_ms: int = 500
    least_pages: int = 4  # fewer dirty pages than this wait for the thorough interval
    thorough_interval_ms: int = 10_000
    sync_timeout_ms: int = 5_000
    queue_interval_ms: int = 1_000
    queue_thorough_interval_ms: int = 60_000


@dataclass(frozen=True, kw_only=True, slots=True)
class RetentionSettings:
    """When old files go."""

    file_reserved_hours: int = 72
    delete_when: str = "04"  # hours of the day, separated by semicolons
    clean_ratio: float = 0.75  # above: expired files go at any hour
    force_ratio: float = 0.85  # above: the oldest files go, expired or not
    full_ratio: float = 0.90  # above: no more messages are taken
    delete_batch_max: int = 10
    interval_ms: int = 10_000
    force_enabled: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadSettings:
    """How much one read may return."""

    memory_ratio: float = 0.40  # this share of RAM behind the log's end counts as in memory
    memory_bytes: int | None = None  # the machine's RAM unless told otherwise
    in_memory_bytes_max: int = 256 * KIB
    in_memory_count_max: int = 32
    on_disk_bytes_max: int = 64 * KIB
    on_disk_count_max: int = 8
    bulk_count_max: int = 8_192  # for a reader that asks for as much as it can get
    bulk_bytes_max: int = 1 * MIB
    filter_bytes_max: int = 16_000  # bytes of queue entries looked at for one filtered read
    query_count_max: int = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreSettings:
    """Where a store is and how it behaves; the file sizes must be those it was written with."""

    root: Path
    commit_log: LogPaths | None = None  # `root`/commitlog if None
    starts_without_log: bool = False  # see store/missing_log.py
    store_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"  # 127.0.0.1:10911
    segment_bytes: int = GIB
    queue_entries: int = 300_000
    index_slots: int = 5_000_000
    index_items: int = 20_000_000
    index_enabled: bool = True
    message_bytes_max: int = 4 * MIB
    is_slave: bool = False
    check_crc_on_recover: bool = True
    check_whole_on_recover: bool = False  # forceVerifyPropCRC, see protocol/record_crc.py
    scrub_bytes_per_s: int = 2 * MIB  # read in the background to find damage; 0: none
    append_record_crc: bool = False  # enabledAppendPropCRC: a checksum over each whole record
    long_topics_enabled: bool = True  # autoMessageVersionOnTopicLen: topics over 127 bytes in V2
    page_cache_busy_ms: int = 1_000
    open_files_max: int = OPEN_FILES_MAX  # of log, queues and index together
    dispatch_stall_ms: int = 10_000  # sends are refused if a message stays invisible for longer
    delay_levels: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    flush: FlushSettings = field(default_factory=FlushSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    read: ReadSettings = field(default_factory=ReadSettings)

    @property
    def checks_whole_records(self) -> bool:
        """Whether a record that carries a checksum over all of it is held to it."""
        return self.check_whole_on_recover or self.append_record_crc

    @property
    def log_paths(self) -> LogPaths:
        """The directories of the commit log."""
        return self.commit_log or LogPaths((self.root / COMMIT_LOG_NAME,))

    @property
    def commit_log_path(self) -> Path:
        """Directory of the first file of the commit log, and of all if there is only one."""
        return self.log_paths.first

    @property
    def consume_queue_path(self) -> Path:
        """Directory of the consume queues."""
        return self.root / "consumequeue"

    @property
    def index_path(self) -> Path:
        """Directory of the key index."""
        return self.root / "index"

    @property
    def config_path(self) -> Path:
        """Directory of the JSON tables."""
        return self.root / "config"
