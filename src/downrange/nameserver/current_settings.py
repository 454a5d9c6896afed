"""The settings in force, which an operator may change while the name server runs."""

import logging

from downrange.nameserver.settings import WITHOUT_EFFECT, NameServerSettings
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.errors import Refused
from downrange.runtime.disk import Disk, make_durable_directory
from downrange.runtime.durable_file import DurableFile, DurableFileError
from downrange.runtime.property_text import Property, read_properties, write_properties
from downrange.runtime.settings import SettingsError, changed, properties_of

_log = logging.getLogger(__name__)

# What is read once, when the process starts.
_FIXED = frozenset(
    ("bindAddress", "listenPort", "scanNotActiveBrokerInterval", "serverChannelMaxIdleTimeSeconds")
)


class CurrentSettings:
    """Owned by the name server; parts ask for `now` each time they need a switch."""

    def __init__(self, settings: NameServerSettings, disk: Disk) -> None:
        self.now = settings
        self._disk = disk
        self._file = DurableFile(disk, settings.config_store_path.expanduser(), read_properties)

    def text(self) -> bytes:
        """All settings as property text."""
        return write_properties(properties_of(self.now))

    def change(self, body: bytes) -> None:
        """Apply property text and keep it for the next start; all of it or nothing."""
        try:
            properties = read_properties(body)
            self._check({entry.key for entry in properties})
            settings = changed(self.now, properties)
        except ValueError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        try:
            self._keep(properties)
        except (OSError, DurableFileError) as error:
            remark = f"nothing was changed, {self._file.path} cannot be replaced: {error}"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark) from error
        self.now = settings
        for entry in properties:
            _log.info("setting changed key=%s value=%s", entry.key, entry.value)

    def _keep(self, properties: list[Property]) -> None:
        # What else the file says stays, also what only an Apache name server understands.
        content = {entry.key: entry.value for entry in self._file.load() or []}
        content.update((entry.key, entry.value) for entry in properties)
        if content:
            make_durable_directory(self._disk, self._file.path.parent)
            self._file.replace(write_properties(content))

    def _check(self, keys: set[str]) -> None:
        black_listed = sorted(keys & self.now.black_list)
        if black_listed:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"on the black list, change it in the file and restart: {', '.join(black_listed)}",
            )
        without_effect = sorted(keys & WITHOUT_EFFECT)
        if without_effect:
            raise SettingsError(f"has no effect in this name server: {', '.join(without_effect)}")
        fixed = sorted(keys & _FIXED)
        if fixed:
            raise SettingsError(f"read at start only, change the file: {', '.join(fixed)}")
