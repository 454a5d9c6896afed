"""UPDATE_BROKER_CONFIG and GET_BROKER_CONFIG: settings of the running broker.

RocketMQ says yes to everything here: a key that it does not know, a number that is none, a file
size that makes the store unreadable at the next start. Here a change is either done or refused with
the reason, and a setting that only the next start will read is said to be one.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from downrange.broker.handlers.admin.config_file import ConfigFile
from downrange.broker.setting_changes import Apply
from downrange.broker.settings import BrokerSettings, StoreFileSettings
from downrange.model.topics import MASTER_ID, DataVersion
from downrange.protocol.command import Command, response
from downrange.protocol.delay_levels import DelayLevels
from downrange.protocol.headers.admin_broker import GetBrokerConfigResponse
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.hosts import parse_address
from downrange.protocol.json_text import write_json
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused
from downrange.runtime.clock import Clock
from downrange.runtime.property_text import (
    Property,
    PropertyTextError,
    read_properties,
    write_properties,
)
from downrange.runtime.settings import SettingsError, changed, properties_of
from downrange.store.log_paths import SEPARATOR
from downrange.store.retention import parse_hours

_log = logging.getLogger(__name__)

# Never to be changed from afar: where files are read from.
BLACK_LIST = frozenset(("brokerConfigPath", "rocketmqHome", "configBlackList"))
# The store's files have these sizes, tables and name servers know the broker by these names.
FIXED = frozenset(
    (
        "brokerClusterName",
        "brokerId",
        "brokerName",
        "brokerRole",
        "startWithoutCommitLog",
        "readOnlyCommitLogStorePaths",
        "storePathCommitLog",
        "mappedFileSizeCommitLog",
        "mappedFileSizeConsumeQueue",
        "maxHashSlotNum",
        "maxIndexNum",
        "storePathRootDir",
    )
)
_CHECKS: Mapping[str, Callable[[str], object]] = {
    "deleteWhen": parse_hours,
    "messageDelayLevel": DelayLevels.parse,
}


class LiveSettings:
    """The settings as they are now. Owned by the event loop.

    `live` has, for each key that the running broker can take over, how; the others wait in the file
    for the next start.
    """

    def __init__(
        self,
        broker: BrokerSettings,
        store: StoreFileSettings,
        file: ConfigFile,
        clock: Clock,
        *,
        live: Mapping[str, Apply] | None = None,
        black_list: Collection[str] = (),
    ) -> None:
        self.broker = broker
        self.store = store
        self._file = file
        self._clock = clock
        self._live = {} if live is None else live
        self._black_list = BLACK_LIST.union(black_list)
        self.data_version = DataVersion(timestamp=clock.wall_ms())

    def properties(self) -> dict[str, str]:
        """All settings as text; names, addresses and paths are shown as they are in effect."""
        broker, store = self.broker, self.store
        ha_host, ha_port = parse_address(broker.ha_address(broker.listen_port))
        shown = {
            **properties_of(broker),
            **properties_of(store),
            "brokerId": str(MASTER_ID),
            "brokerName": broker.effective_name,
            "brokerIP1": broker.effective_address,
            "brokerIP2": ha_host,
            "haListenPort": str(ha_port),
            "storePathRootDir": str(store.root_path),
            "storePathCommitLog": SEPARATOR.join(map(str, store.log_paths.paths)),
        }
        if not store.read_only_logs:
            del shown["readOnlyCommitLogStorePaths"]  # null, which RocketMQ does not show either
        return shown

    def update(self, properties: Iterable[Property]) -> list[str]:
        """Change settings, all or none; returns the keys that the next start will read.

        `Refused` says what cannot be; `OSError` that the file could not be written, and then
        nothing has changed.
        """
        wanted = {entry.key: entry for entry in properties}
        if not wanted:
            raise Refused(ResponseCode.INVALID_PARAMETER, "the request names no setting")
        self._check_keys(wanted.keys())
        try:
            broker, store = self._changed(wanted)
        except (SettingsError, ValueError) as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        self._file.set({key: entry.value for key, entry in wanted.items()})
        self.broker, self.store = broker, store
        self.data_version = self.data_version.next(self._clock.wall_ms())
        applied = dict.fromkeys(self._live[key] for key in wanted if key in self._live)
        for apply in applied:
            apply(broker, store)
        return sorted(wanted.keys() - self._live.keys())

    def _check_keys(self, keys: Collection[str]) -> None:
        black = sorted(self._black_list.intersection(keys))
        if black:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"Can not update config in black list: {', '.join(black)}",
            )
        known = properties_of(self.broker).keys() | properties_of(self.store).keys()
        unknown = sorted(set(keys) - known)
        if unknown:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"no such setting: {', '.join(unknown)}; GET_BROKER_CONFIG lists what there is",
            )
        fixed = sorted(FIXED.intersection(keys))
        if fixed:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"{', '.join(fixed)} cannot change once a broker has files and a name",
            )

    def _changed(self, wanted: Mapping[str, Property]) -> tuple[BrokerSettings, StoreFileSettings]:
        for key, check in _CHECKS.items():
            if key in wanted:
                check(wanted[key].value)
        ours = properties_of(self.broker)
        return (
            changed(self.broker, [entry for key, entry in wanted.items() if key in ours]),
            changed(self.store, [entry for key, entry in wanted.items() if key not in ours]),
        )


class ConfigHandler:
    """Serves the settings."""

    def __init__(self, settings: LiveSettings) -> None:
        self._settings = settings

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update,
            RequestCode.GET_BROKER_CONFIG: self.get,
        }

    def update(self, request: Command, connection: Connection) -> Answer:
        """Change settings; the remark of a success says what takes a new start."""
        try:
            properties = read_properties(request.body or b"", "the request")
        except PropertyTextError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        try:
            later = self._settings.update(properties)
        except OSError as error:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"nothing was changed, the file cannot be written: {error}",
            ) from error
        text = ", ".join(f"{entry.key}={entry.value}" for entry in properties)
        _log.info("settings changed by %s: %s", connection.address, text)
        remark = None
        if later:
            remark = f"saved, takes effect at the next start: {', '.join(later)}"
            _log.warning("%s", remark)
        return response(request, ResponseCode.SUCCESS, remark=remark)

    def get(self, request: Command, _: Connection) -> Answer:
        """All settings as property text."""
        settings = self._settings
        version = write_json(settings.data_version).decode()
        return response(
            request,
            ResponseCode.SUCCESS,
            ext_fields=encode_header(GetBrokerConfigResponse(version=version)),
            body=write_properties(settings.properties()),
        )
