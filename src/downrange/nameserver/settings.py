"""What a name server can be told, under RocketMQ's names and with its defaults."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from downrange.runtime.settings import setting

PORT_MAX: Final = 65_535
DAY_MS: Final = 86_400_000

ALWAYS_BLACK_LISTED: Final = frozenset(
    ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")
)
"""Keys that a request may never change, whatever `configBlackList` says."""

WITHOUT_EFFECT: Final = frozenset(
    (
        "rocketmqHome", "productEnvName", "clusterTest", "clientRequestThreadPoolNums",
        "defaultThreadPoolNums", "clientRequestThreadPoolQueueCapacity",
        "defaultThreadPoolQueueCapacity", "unRegisterBrokerQueueCapacity",
        "enableControllerInNamesrv", "serverWorkerThreads", "serverCallbackExecutorThreads",
        "serverSelectorThreads", "serverOnewaySemaphoreValue", "serverAsyncSemaphoreValue",
        "serverSocketSndBufSize", "serverSocketRcvBufSize", "writeBufferHighWaterMark",
        "writeBufferLowWaterMark", "serverSocketBacklog", "serverNettyWorkerGroupEnable",
        "serverPooledByteBufAllocatorEnable", "useEpollNativeSelector",
    )
)  # fmt: skip
"""Keys of Apache's name server, mostly thread pools, that mean nothing here; no reason to warn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerSettings:
    """All settings of a name server process."""

    host: str = setting("bindAddress", "0.0.0.0", about="address to listen on")  # noqa: S104
    port: int = setting(
        "listenPort", 9876, least=0, most=PORT_MAX, about="port to listen on; 0 takes a free one"
    )
    idle_s_max: int = setting(
        "serverChannelMaxIdleTimeSeconds",
        120,
        least=1,
        about="a connection that is silent for longer is closed",
    )
    scan_interval_ms: int = setting(
        "scanNotActiveBrokerInterval",
        5_000,
        least=100,
        most=DAY_MS,
        about="how often to look for brokers that are silent for too long",
    )
    kv_config_path: Path = setting(
        "kvConfigPath",
        Path("~/namesrv/kvConfig.json"),
        about="file of the key-value table",
    )
    config_store_path: Path = setting(
        "configStorePath",
        Path("~/namesrv/namesrv.properties"),
        about="file that holds the settings after a change at run time",
    )
    config_black_list: str = setting(
        "configBlackList",
        "configBlackList;configStorePath;kvConfigPath",
        about="keys that no request may change, separated by semicolons",
    )
    order_message_enable: bool = setting(
        "orderMessageEnable", default=False, about="put the order conf of a topic into its route"
    )
    return_order_topic_config_to_broker: bool = setting(
        "returnOrderTopicConfigToBroker",
        default=True,
        about="send the order conf of all topics to a broker that registers",
    )
    support_acting_master: bool = setting(
        "supportActingMaster",
        default=False,
        about="show the first slave of a name without master as its read-only master",
    )
    notify_min_broker_id_changed: bool = setting(
        "notifyMinBrokerIdChanged",
        default=False,
        about="tell brokers of a name when the lowest id among them changes",
    )
    enable_all_topic_list: bool = setting(
        "enableAllTopicList", default=True, about="answer requests for the list of all topics"
    )
    enable_topic_list: bool = setting(
        "enableTopicList", default=True, about="answer requests for the lists of some topics"
    )
    need_wait_for_service: bool = setting(
        "needWaitForService",
        default=False,
        about="give no routes at first, so that brokers can register before clients ask",
    )
    wait_seconds_for_service: int = setting(
        "waitSecondsForService", 45, least=0, about="how long needWaitForService waits"
    )
    delete_topic_with_broker_registration: bool = setting(
        "deleteTopicWithBrokerRegistration",
        default=False,
        about="forget the topics of a broker that its next registration does not name",
    )

    stops_gracefully: bool = setting(
        "enableShutdownGracefully", default=False, about="send clients away before the end"
    )
    stop_wait_s: int = setting(
        "shutdownWaitTimeSeconds", 30, least=0, about="how long they may take"
    )

    @property
    def black_list(self) -> frozenset[str]:
        """Keys that a request may not change."""
        return ALWAYS_BLACK_LISTED | set(self.config_black_list.split(";"))
