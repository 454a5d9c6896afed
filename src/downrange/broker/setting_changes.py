"""Which settings a running broker takes over, and who is told.

A key of the broker's settings is in one of three places: here, among those that never change
(`FIXED` in the administration), or it waits in the file for the next start, and the answer says so.
"""

from collections.abc import Callable

from downrange.broker.settings import BrokerSettings, StoreFileSettings

LIVE_BROKER = frozenset(
    (
        "autoCreateSubscriptionGroup",
        "autoCreateTopicEnable",
        "brokerFastFailureEnable",
        "brokerPermission",
        "channelExpiredTimeout",
        "enablePropertyFilter",
        "enableShutdownGracefully",
        "endTransactionPoolQueueCapacity",
        "longPollingEnable",
        "namesrvAddr",
        "notifyConsumerIdsChangedEnable",
        "pullThreadPoolQueueCapacity",
        "rejectTransactionMessage",
        "sendThreadPoolQueueCapacity",
        "shortPollingTimeMills",
        "shutdownWaitTimeSeconds",
        "startAcceptSendRequestTimeStamp",
        "storeReplyMessageEnable",
        "transactionCheckMax",
        "transactionTimeOut",
        "waitTimeMillsInPullQueue",
        "waitTimeMillsInSendQueue",
    )
)
LIVE_STORE = frozenset(
    (
        "cleanFileForciblyEnable",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "diskSpaceCleanForciblyRatio",
        "diskSpaceWarningLevelRatio",
        "fileReservedTime",
        "flushCommitLogLeastPages",
        "flushCommitLogThoroughInterval",
        "maxMessageSize",
        "osPageCacheBusyTimeOutMills",
        "syncFlushTimeout",
    )
)

Apply = Callable[[BrokerSettings, StoreFileSettings], None]


class SettingChanges:
    """Tells parts of new settings; each was told when it joined which part of them it needs."""

    def __init__(self) -> None:
        self.on_broker: list[Callable[[BrokerSettings], None]] = []
        self.on_store: list[Callable[[StoreFileSettings], None]] = []

    def live(self) -> dict[str, Apply]:
        """What to do for each key that takes effect at once."""
        return {
            **dict.fromkeys(LIVE_BROKER, self._tell_broker),
            **dict.fromkeys(LIVE_STORE, self._tell_store),
        }

    def _tell_broker(self, settings: BrokerSettings, _: StoreFileSettings) -> None:
        for listener in self.on_broker:
            listener(settings)

    def _tell_store(self, _: BrokerSettings, settings: StoreFileSettings) -> None:
        for listener in self.on_store:
            listener(settings)
