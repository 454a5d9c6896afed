"""The consumer groups of a broker, and which of them may not consume which topics."""

import dataclasses
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from downrange.broker.attributes import GROUP_ATTRIBUTES, NO_CHANGES, changed_attributes
from downrange.broker.quotas import Quota
from downrange.broker.saved_table import SavedTable
from downrange.model.names import SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS, InvalidNameError, check_group
from downrange.model.topics import QUEUE_NUMS_MAX, DataVersion, SubscriptionGroupConfig
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.errors import Refused
from downrange.runtime.clock import Clock
from downrange.store import json_tables

_log = logging.getLogger(__name__)

READ_INDEX = 2  # the bit that forbids reading, INDEX_PERM_READ
FORBIDDEN_INDEX_MAX = 30  # the bits are those of a positive Java int

GroupListener = Callable[[], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSettings:
    """Which groups come into being by being used; the comment is the name in broker.conf."""

    auto_create_enabled: bool = True  # autoCreateSubscriptionGroup
    create_system_groups: bool = True  # enableCreateSysGroup


class GroupTable(SavedTable[json_tables.GroupTable]):
    """The groups in memory. Owned by the thread of the broker.

    Configurations are replaced, never changed. `on_change` hears of every change.
    """

    def __init__(
        self,
        file: json_tables.TableFile[json_tables.GroupTable],
        clock: Clock,
        settings: GroupSettings | None = None,
    ) -> None:
        super().__init__(file, is_new=True)
        self._clock = clock
        self._settings = settings or GroupSettings()
        self._groups = _system_groups()
        self._forbidden: dict[str, dict[str, int]] = {}
        self.data_version = DataVersion(timestamp=clock.wall_ms())
        self.on_change: list[GroupListener] = []
        self.quota = Quota()
        self._created: dict[str, int] = {}  # since the last save, with the generation

    def change(self, *, auto_create_enabled: bool) -> None:
        """Let groups come into being by being used, or no more."""
        self._settings = dataclasses.replace(
            self._settings, auto_create_enabled=auto_create_enabled
        )

    # --- persistence -----------------------------------------------------------------------

    def load(self) -> None:
        """Take what the file holds; system groups that it lacks are there all the same."""
        table = self._file.load()
        if table is None:
            return
        self._groups = table.groups | {
            name: config for name, config in _system_groups().items() if name not in table.groups
        }
        self._forbidden = {group: dict(bits) for group, bits in table.forbidden.items()}
        self.data_version = table.data_version
        if len(self._groups) == len(table.groups):
            self._note_loaded()

    def to_file(self) -> json_tables.GroupTable:
        """The table as its file and its slaves see it."""
        return json_tables.GroupTable(
            data_version=self.data_version,
            forbidden={group: dict(bits) for group, bits in self._forbidden.items()},
            groups=dict(self._groups),
        )

    # --- questions -------------------------------------------------------------------------

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """A group's configuration, created if that is allowed; None if it is not."""
        config = self._groups.get(group)
        return config if config is not None else self._create(group)

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """A group's configuration; None if there is no such group."""
        return self._groups.get(group)

    def is_durable(self, group: str) -> bool:
        """Whether the creation of the group is on disk."""
        return group not in self._created

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    def __len__(self) -> int:
        return len(self._groups)

    def names(self) -> list[str]:
        """All groups, system groups too."""
        return sorted(self._groups)

    def configs(self) -> list[SubscriptionGroupConfig]:
        """The configurations of all groups."""
        return list(self._groups.values())

    # --- administration --------------------------------------------------------------------

    def update(
        self, config: SubscriptionGroupConfig, attribute_changes: Mapping[str, str] = NO_CHANGES
    ) -> SubscriptionGroupConfig:
        """Create a group or give it another configuration; `Refused` says what is wrong.

        The attributes become those it has, with the changes; those in `config` do not count.
        """
        group = config.group_name
        try:
            check_group(group)
        except InvalidNameError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        if config.retry_queue_nums > QUEUE_NUMS_MAX:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"retryQueueNums {config.retry_queue_nums} of {group}: a topic has at most "
                f"{QUEUE_NUMS_MAX} queues",
            )
        old = self._groups.get(group)
        attributes = changed_attributes(
            GROUP_ATTRIBUTES, None if old is None else old.attributes, attribute_changes
        )
        new = replace(config, attributes=attributes)
        if old is None:
            self.quota.check_group(len(self._groups))
        if new != old:
            _log.info("group %s: %s", "created" if old is None else "changed", new)
            self._enter(new)
            self._changed()
        return new

    def disable(self, group: str) -> bool:
        """Let a group consume no more; False if there is no such group."""
        config = self._groups.get(group)
        if config is None:
            return False
        if config.consume_enable:
            self._groups[group] = replace(config, consume_enable=False)
            self._changed()
        return True

    def delete(self, group: str) -> bool:
        """Forget a group and what it may not consume; False if there was none."""
        was_forbidden = self._forbidden.pop(group, None) is not None
        was_known = self._groups.pop(group, None) is not None
        self._created.pop(group, None)
        if was_known:
            _log.info("group %s deleted", group)
        if was_known or was_forbidden:
            self._changed()
        return was_known

    def take_over(self, table: json_tables.GroupTable) -> None:
        """Become what a master's table is."""
        if table != self.to_file():
            self._groups = dict(table.groups)
            self._forbidden = {group: dict(bits) for group, bits in table.forbidden.items()}
            self.data_version = table.data_version
            self._note_change()

    # --- what a group may not consume ------------------------------------------------------

    def forbidden_bits(self, group: str, topic: str) -> int:
        """The bits that forbid a topic to a group; 0 is none."""
        topics = self._forbidden.get(group)
        return max(topics.get(topic, 0), 0) if topics is not None else 0

    def is_forbidden(self, group: str, topic: str, index: int = READ_INDEX) -> bool:
        """Whether the group may not read the topic, or what another bit stands for."""
        return self.forbidden_bits(group, topic) >> index & 1 == 1

    def set_forbidden(self, group: str, topic: str, index: int, *, is_forbidden: bool) -> int:
        """Set or clear one of the bits; returns all of them.

        Clearing the last bit of a topic leaves the group's other topics alone, unlike RocketMQ.
        """
        if not 0 <= index <= FORBIDDEN_INDEX_MAX:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"there is no permission bit {index}")
        old = self.forbidden_bits(group, topic)
        bits = old | 1 << index if is_forbidden else old & ~(1 << index)
        if bits == old:
            return bits
        topics = self._forbidden.setdefault(group, {})
        if bits:
            topics[topic] = bits
        else:
            topics.pop(topic, None)
            if not topics:
                del self._forbidden[group]
        self._changed()
        return bits

    # --- inside ----------------------------------------------------------------------------

    def _create(self, group: str) -> SubscriptionGroupConfig | None:
        settings = self._settings
        if not settings.auto_create_enabled and not (
            settings.create_system_groups and group.startswith(SYSTEM_GROUP_PREFIX)
        ):
            return None
        try:
            check_group(group)
        except InvalidNameError as error:
            _log.warning("group was not created: %s", error)
            return None
        self.quota.check_group(len(self._groups))
        config = SubscriptionGroupConfig(group_name=group)
        self._enter(config)
        _log.info("group created by use: %s", group)
        self._changed()
        return config

    def _enter(self, config: SubscriptionGroupConfig) -> None:
        if config.group_name not in self._groups:
            self._created[config.group_name] = self.generation + 1
        self._groups[config.group_name] = config

    def _saved(self, generation: int, snapshot: json_tables.GroupTable) -> None:
        super()._saved(generation, snapshot)
        self._created = {
            group: created for group, created in self._created.items() if created > generation
        }

    def _changed(self) -> None:
        self.data_version = self.data_version.next(self._clock.wall_ms())
        self._note_change()
        for listener in self.on_change:
            listener()


def _system_groups() -> dict[str, SubscriptionGroupConfig]:
    return {group: SubscriptionGroupConfig(group_name=group) for group in sorted(SYSTEM_GROUPS)}
