"""What a broker can be told, under the names of RocketMQ's broker.conf."""

import socket
from dataclasses import dataclass
from pathlib import Path

from downrange.broker.host_names import check_host, check_name_servers, ip_of
from downrange.model.topics import QUEUE_NUMS_MAX
from downrange.protocol.delay_levels import DEFAULT_LEVELS
from downrange.protocol.hosts import encode_host, format_address
from downrange.runtime.settings import SettingsError, setting
from downrange.store.log_paths import LogPaths, LogPathsError
from downrange.store.settings import (
    COMMIT_LOG_NAME,
    FlushMode,
    FlushSettings,
    ReadSettings,
    RetentionSettings,
    StoreSettings,
)

ENTRY_BYTES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Identity, doors and rules."""

    cluster_name: str = setting("brokerClusterName", "DefaultCluster", about="name of the cluster")
    broker_name: str = setting("brokerName", "", about="name of this broker; the host's if empty")
    broker_id: int = setting("brokerId", 0, least=0, about="a master's is 0, whatever is set")
    role: str = setting("brokerRole", "ASYNC_MASTER", about="only masters are supported yet")
    address: str = setting(
        "brokerIP1", "", about="IP address or host name that clients are told; detected if empty"
    )
    ha_host: str = setting(
        "brokerIP2", "", about="the same for slaves of this broker; detected if empty"
    )
    ha_port: int = setting(
        "haListenPort",
        0,
        least=0,
        most=65_535,
        about="port that slaves are told; 0: listenPort + 1",
    )
    bind_address: str = setting(
        "bindAddress",
        "0.0.0.0",  # noqa: S104 - as RocketMQ; a broker is there to be reached
        about="address to listen on",
    )
    listen_port: int = setting(
        "listenPort", 10911, least=0, most=65_535, about="port; port - 2 is served too"
    )
    name_servers: str = setting("namesrvAddr", "", about="name servers, separated by semicolons")
    register_period_ms: int = setting(
        "registerNameServerPeriod", 30_000, least=1_000, most=60_000, about="between two registers"
    )
    permission: int = setting("brokerPermission", 6, least=0, most=7, about="4 read, 2 write")
    default_queue_nums: int = setting(
        "defaultTopicQueueNums",
        8,
        least=1,
        most=QUEUE_NUMS_MAX,
        about="most queues of a topic created by a send",
    )
    auto_create_topics: bool = setting("autoCreateTopicEnable", True, about="a send may create one")
    auto_create_groups: bool = setting(
        "autoCreateSubscriptionGroup", True, about="a heartbeat or pull may create one"
    )
    topics_max: int = setting("topicsMax", 0, least=0, about="topics that may exist; 0: no limit")
    queues_max: int = setting("queuesMax", 0, least=0, about="queues of all topics; 0: no limit")
    groups_max: int = setting("groupsMax", 0, least=0, about="consumer groups; 0: no limit")
    cluster_topic_enabled: bool = setting("clusterTopicEnable", True, about="a topic per cluster")
    broker_topic_enabled: bool = setting("brokerTopicEnable", True, about="a topic per broker")
    trace_topic_enabled: bool = setting("traceTopicEnable", False, about="create the trace topic")
    trace_topic: str = setting("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", about="its name")
    long_polling_enabled: bool = setting("longPollingEnable", True, about="let pulls wait")
    short_polling_ms: int = setting("shortPollingTimeMills", 1_000, least=0, about="wait without")
    sql92_enabled: bool = setting("enablePropertyFilter", False, about="filter by SQL92")
    region: str = setting("regionId", "DefaultRegion", about="sent with every acknowledgement")
    traces: bool = setting("traceOn", True, about="sent with every acknowledgement")
    rejects_transactions: bool = setting("rejectTransactionMessage", False, about="refuse them")
    transaction_timeout_ms: int = setting(
        "transactionTimeOut", 6_000, least=0, about="age of a half message at its first check"
    )
    transaction_check_max: int = setting(
        "transactionCheckMax", 15, least=1, about="checks before a half message is given up"
    )
    transaction_check_interval_ms: int = setting(
        "transactionCheckInterval", 30_000, least=100, about="between two rounds of checks"
    )
    server_side_reset: bool = setting(
        "useServerSideResetOffset", True, about="reset offsets here; else clients are told to"
    )
    store_replies: bool = setting("storeReplyMessageEnable", True, about="keep reply messages")
    accepts_from_ms: int = setting(
        "startAcceptSendRequestTimeStamp", 0, least=0, about="refuse sends before this time"
    )
    flush_offsets_ms: int = setting(
        "flushConsumerOffsetInterval", 5_000, least=100, about="between two saves of offsets"
    )
    client_expiry_ms: int = setting(
        "channelExpiredTimeout", 120_000, least=1_000, about="silence that ends a client"
    )
    notifies_changes: bool = setting(
        "notifyConsumerIdsChangedEnable", True, about="tell consumers who joined or left"
    )
    idle_s_max: int = setting(
        "serverChannelMaxIdleTimeSeconds", 120, least=1, about="silence that ends a connection"
    )
    stops_gracefully: bool = setting(
        "enableShutdownGracefully", False, about="send clients away before the end"
    )
    stop_wait_s: int = setting(
        "shutdownWaitTimeSeconds", 30, least=0, about="how long they may take"
    )
    waiting_sends_max: int = setting(
        "sendThreadPoolQueueCapacity", 10_000, least=1, about="sends that may wait for the disk"
    )
    waiting_pulls_max: int = setting(
        "pullThreadPoolQueueCapacity", 100_000, least=1, about="pulls that may wait for messages"
    )
    waiting_replies_max: int = setting(
        "replyThreadPoolQueueCapacity", 10_000, least=1, about="replies that may wait for clients"
    )
    waiting_ends_max: int = setting(
        "endTransactionPoolQueueCapacity", 100_000, least=1, about="ends of transactions to write"
    )
    waiting_admin_max: int = setting(
        "adminBrokerThreadPoolQueueCapacity", 10_000, least=1, about="admin calls that may wait"
    )
    waiting_assignments_max: int = setting(
        "loadBalanceThreadPoolQueueCapacity", 100_000, least=1, about="assignments asked for"
    )
    fails_fast: bool = setting(
        "brokerFastFailureEnable", True, about="refuse what has waited too long"
    )
    send_wait_ms_max: int = setting(
        "waitTimeMillsInSendQueue",
        200,
        least=1,
        about="a send that waited longer behind others is refused",
    )
    pull_wait_ms_max: int = setting(
        "waitTimeMillsInPullQueue",
        5_000,
        least=1,
        about="a pull that waited longer behind others is refused",
    )

    @property
    def effective_name(self) -> str:
        """The broker's name, or the host's."""
        return self.broker_name or socket.gethostname()

    def __post_init__(self) -> None:
        for key, host in (("brokerIP1", self.address), ("brokerIP2", self.ha_host)):
            if host:
                check_host(key, host)
        check_name_servers("namesrvAddr", self.name_server_list)

    @property
    def effective_address(self) -> str:
        """The address that clients are told."""
        return self.address or own_address()

    def ha_address(self, port: int) -> str:
        """Where slaves are told to get the log of a broker that listens on this port."""
        return format_address(self.ha_host or own_address(), self.ha_port or port + 1)

    @property
    def name_server_list(self) -> list[str]:
        """The name servers, one by one."""
        return [part.strip() for part in self.name_servers.split(";") if part.strip()]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFileSettings:
    """The store's part of broker.conf."""

    root: str = setting("storePathRootDir", "", about="directory of the store; ~/store if empty")
    commit_log: str = setting(
        "storePathCommitLog",
        "",
        about="directories of the commit log, separated by commas; commitlog of the store if empty",
    )
    read_only_logs: str = setting(
        "readOnlyCommitLogStorePaths",
        "",
        about="directories of the commit log that get no new files, separated by commas",
    )
    starts_without_log: bool = setting(
        "startWithoutCommitLog",
        False,
        about="start although the commit log, or its newest files, are gone",
    )
    flush_mode: FlushMode = setting(
        "flushDiskType", FlushMode.ASYNC, about="when a message counts as stored"
    )
    segment_bytes: int = setting(
        "mappedFileSizeCommitLog", 1 << 30, least=4096, about="size of a file of the log"
    )
    queue_bytes: int = setting(
        "mappedFileSizeConsumeQueue", 6_000_000, least=20, about="size of a file of a queue"
    )
    index_slots: int = setting("maxHashSlotNum", 5_000_000, least=1, about="slots of an index file")
    index_items: int = setting("maxIndexNum", 20_000_000, least=2, about="keys of an index file")
    index_enabled: bool = setting("messageIndexEnable", True, about="find messages by key")
    message_bytes_max: int = setting(
        "maxMessageSize", 4 << 20, least=1, about="largest body of a message"
    )
    flush_interval_ms: int = setting(
        "flushIntervalCommitLog", 500, least=1, about="between two flushes of the log (ASYNC)"
    )
    flush_least_pages: int = setting(
        "flushCommitLogLeastPages", 4, least=0, about="dirty pages worth a flush (ASYNC)"
    )
    flush_thorough_ms: int = setting(
        "flushCommitLogThoroughInterval", 10_000, least=1, about="flush fewer pages after this"
    )
    sync_timeout_ms: int = setting(
        "syncFlushTimeout", 5_000, least=1, about="after this FLUSH_DISK_TIMEOUT is answered"
    )
    file_reserved_hours: int = setting("fileReservedTime", 72, least=1, about="age of files kept")
    delete_when: str = setting("deleteWhen", "04", about="hours at which expired files go")
    clean_percent: int = setting(
        "diskMaxUsedSpaceRatio", 75, least=10, most=95, about="above: expired files go at once"
    )
    force_percent: int = setting(
        "diskSpaceCleanForciblyRatio", 85, least=30, most=85, about="above: oldest files go"
    )
    full_percent: int = setting(
        "diskSpaceWarningLevelRatio", 90, least=35, most=90, about="above: no more messages"
    )
    force_enabled: bool = setting("cleanFileForciblyEnable", True, about="delete when it fills")
    memory_percent: int = setting(
        "accessMessageInMemoryMaxRatio", 40, least=1, most=95, about="of RAM: log in memory"
    )
    bulk_count_max: int = setting(
        "bulkPullCountMax", 8_192, least=1, most=1_000_000, about="messages of a pull in bulk"
    )
    bulk_bytes_max: int = setting(
        "bulkPullBytesMax", 1 << 20, least=1, most=8 << 20, about="bytes of a pull in bulk"
    )
    delay_levels: str = setting("messageDelayLevel", DEFAULT_LEVELS, about="the delay levels")
    check_crc: bool = setting("checkCRCOnRecover", True, about="check bodies at start")
    append_record_crc: bool = setting(
        "enabledAppendPropCRC", False, about="write and check a checksum over each whole record"
    )
    force_record_crc: bool = setting(
        "forceVerifyPropCRC", False, about="check it at start though it is not written"
    )
    scrub_bytes_per_s: int = setting(
        "scrubBytesPerSecond",
        2 << 20,
        least=0,
        most=1 << 30,
        about="of the log read in the background to find damage; 0: none",
    )
    busy_ms: int = setting(
        "osPageCacheBusyTimeOutMills", 1_000, least=1, about="an append this slow means busy"
    )

    @property
    def root_path(self) -> Path:
        """The store's directory."""
        return Path(self.root) if self.root else Path.home() / "store"

    @property
    def log_paths(self) -> LogPaths:
        """The directories of the commit log."""
        default = self.root_path / COMMIT_LOG_NAME
        return LogPaths.parse(default, self.commit_log, self.read_only_logs)

    def __post_init__(self) -> None:
        try:
            LogPaths.parse(Path(COMMIT_LOG_NAME), self.commit_log, self.read_only_logs)
        except LogPathsError as error:
            raise SettingsError(str(error)) from None

    def store_settings(self, broker: BrokerSettings, port: int) -> StoreSettings:
        """The settings of the store itself."""
        return StoreSettings(
            root=self.root_path,
            commit_log=self.log_paths,
            starts_without_log=self.starts_without_log,
            store_host=encode_host(ip_of(broker.effective_address), port),
            segment_bytes=self.segment_bytes,
            queue_entries=max(self.queue_bytes // ENTRY_BYTES, 1),
            index_slots=self.index_slots,
            index_items=self.index_items,
            index_enabled=self.index_enabled,
            message_bytes_max=self.message_bytes_max,
            check_crc_on_recover=self.check_crc,
            check_whole_on_recover=self.force_record_crc,
            append_record_crc=self.append_record_crc,
            scrub_bytes_per_s=self.scrub_bytes_per_s,
            page_cache_busy_ms=self.busy_ms,
            delay_levels=self.delay_levels,
            flush=FlushSettings(
                mode=self.flush_mode,
                interval_ms=self.flush_interval_ms,
                least_pages=self.flush_least_pages,
                thorough_interval_ms=self.flush_thorough_ms,
                sync_timeout_ms=self.sync_timeout_ms,
            ),
            retention=RetentionSettings(
                file_reserved_hours=self.file_reserved_hours,
                delete_when=self.delete_when,
                clean_ratio=self.clean_percent / 100,
                force_ratio=self.force_percent / 100,
                full_ratio=self.full_percent / 100,
                force_enabled=self.force_enabled,
            ),
            read=ReadSettings(
                memory_ratio=self.memory_percent / 100,
                bulk_count_max=self.bulk_count_max,
                bulk_bytes_max=self.bulk_bytes_max,
            ),
        )


def own_address() -> str:
    """The address by which other machines most likely reach this one; loopback if none.

    A datagram socket "connected" to a far address sends nothing, but the system says which of its
    own addresses it would use.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
