"""The topics of a broker: found, created by sending, changed and deleted by administrators."""

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from downrange.broker.attributes import (
    MESSAGE_TYPE,
    MIXED_MESSAGES,
    NO_CHANGES,
    TOPIC_ATTRIBUTES,
    changed_attributes,
)
from downrange.broker.quotas import Quota
from downrange.broker.saved_table import SavedTable
from downrange.broker.system_topics import TopicSettings, system_topics
from downrange.model.names import (
    AUTO_CREATE_TOPIC,
    InvalidNameError,
    check_topic,
    is_system_topic,
)
from downrange.model.topics import QUEUE_NUMS_MAX, DataVersion, Permission, TopicConfig
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.errors import Refused
from downrange.runtime.clock import Clock
from downrange.store import json_tables

_log = logging.getLogger(__name__)

PERMISSION_MAX = 15

# Gets the topics that are new or different; none if some were deleted.
TopicListener = Callable[[tuple[TopicConfig, ...]], None]


class TopicTable(SavedTable[json_tables.TopicTable]):
    """The topics in memory. Owned by the thread of the broker.

    Configurations are replaced, never changed, so who keeps one can tell by identity whether it
    is still the current one. `on_change` hears of every change after it was made. A topic takes
    messages once its creation is on disk (`takes`); name servers are told what is on disk
    (`durable_table`).
    """

    def __init__(
        self,
        file: json_tables.TableFile[json_tables.TopicTable],
        clock: Clock,
        settings: TopicSettings,
    ) -> None:
        super().__init__(file, is_new=True)
        self._clock = clock
        self._settings = settings
        self._own = system_topics(settings)
        self._topics: dict[str, TopicConfig] = dict(self._own)
        self.data_version = DataVersion(timestamp=clock.wall_ms())
        self.on_change: list[TopicListener] = []
        self._durable = json_tables.TopicTable(data_version=self.data_version)
        # Created or changed since the last save: the generation, and what is on disk of it.
        self._unsaved: dict[str, tuple[int, TopicConfig | None]] = {}
        self.quota = Quota()

    def change(self, *, auto_create_enabled: bool) -> None:
        """Let sends create topics, or no more."""
        self._settings = dataclasses.replace(
            self._settings, auto_create_enabled=auto_create_enabled
        )
        if auto_create_enabled and AUTO_CREATE_TOPIC not in self._topics:
            self._own = system_topics(self._settings)
            self._put(self._own[AUTO_CREATE_TOPIC])

    # --- persistence -----------------------------------------------------------------------

    def load(self) -> None:
        """Take what the file holds; system topics that it lacks are there all the same."""
        table = self._file.load()
        if table is None:
            return
        self._topics = table.topics | {
            name: config for name, config in self._own.items() if name not in table.topics
        }
        self.data_version = table.data_version
        self._durable = table
        if len(self._topics) == len(table.topics):
            self._note_loaded()

    def to_file(self) -> json_tables.TopicTable:
        """The table as its file and its slaves see it."""
        return json_tables.TopicTable(data_version=self.data_version, topics=dict(self._topics))

    def touch(self) -> None:
        """Give the table a new version, so that name servers look at it again."""
        self._changed(())

    def durable_table(self) -> json_tables.TopicTable:
        """The topics that are on disk, with the version that the file has.

        The broker's own topics are there in any case: every start enters them.
        """
        durable = self._durable
        if all(name in durable.topics for name in self._own):
            return durable
        return replace(durable, topics=self._own | durable.topics)

    # --- questions -------------------------------------------------------------------------

    def get(self, topic: str) -> TopicConfig | None:
        """A topic's configuration; None if there is no such topic."""
        return self._topics.get(topic)

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __len__(self) -> int:
        return len(self._topics)

    def names(self) -> list[str]:
        """All topics, system topics too."""
        return sorted(self._topics)

    def configs(self) -> list[TopicConfig]:
        """The configurations of all topics."""
        return list(self._topics.values())

    def is_system(self, topic: str) -> bool:
        """Whether a topic belongs to RocketMQ, this broker or its cluster, not to users."""
        return topic in self._own or is_system_topic(topic)

    def system_names(self) -> list[str]:
        """The topics of this broker that do not belong to users."""
        return sorted(topic for topic in self._topics if self.is_system(topic))

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Whether a topic has this queue, to write or to read."""
        config = self._topics.get(topic)
        if config is None:
            return False
        return 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums)

    def is_ordered(self, topic: str) -> bool:
        """Whether a topic's queues must not move to other brokers."""
        config = self._topics.get(topic)
        return config is not None and config.order

    def is_durable(self, topic: str) -> bool:
        """Whether the topic is on disk as it is here."""
        return topic not in self._unsaved or topic in self._own

    def takes(self, topic: str, queue_id: int) -> bool:
        """Whether a message of this queue would find its topic after a crash.

        False while the creation of the topic, or of so many queues, is not on disk.
        """
        if self.is_durable(topic):
            return True
        _, durable = self._unsaved[topic]
        return durable is not None and queue_id < max(
            durable.read_queue_nums, durable.write_queue_nums
        )

    # --- created on the way ----------------------------------------------------------------

    def create_for_send(
        self, topic: str, default_topic: str, queue_nums: int, sys_flag: int
    ) -> TopicConfig | None:
        """The topic, created like `default_topic` if that may be inherited; else None.

        `creation_refusal` then says why. `queue_nums` is what the producer wishes at most.
        """
        existing = self._topics.get(topic)
        if existing is not None:
            return existing
        default = self._heritable(default_topic)
        if isinstance(default, str):
            _log.warning("topic %s was not created: %s", topic, default)
            return None
        queue_nums = max(min(queue_nums, default.write_queue_nums), 0)
        config = TopicConfig(
            topic_name=_checked(topic),
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=default.perm & ~Permission.INHERIT,
            topic_sys_flag=sys_flag,
            topic_filter_type=default.topic_filter_type,
        )
        self.quota.check_topics(self._topics, (config,))
        return self._put(config)

    def creation_refusal(self, default_topic: str) -> str | None:
        """Why sending does not create topics like this one; None if it does."""
        default = self._heritable(default_topic)
        return default if isinstance(default, str) else None

    def create_for_send_back(
        self,
        topic: str,
        queue_nums: int,
        sys_flag: int = 0,
        *,
        perm: int = Permission.READ_WRITE.value,
        is_ordered: bool | None = None,
    ) -> TopicConfig:
        """A retry, dead-letter or other topic that the broker needs itself.

        One that is there stays as it is, except that `is_ordered`, if given, is made true of it.
        """
        config = self._topics.get(topic)
        if config is None:
            return self._put(
                TopicConfig(
                    topic_name=topic,
                    read_queue_nums=queue_nums,
                    write_queue_nums=queue_nums,
                    perm=int(perm),
                    topic_sys_flag=sys_flag,
                    order=bool(is_ordered),
                )
            )
        if is_ordered is not None and config.order != is_ordered:
            return self._put(replace(config, order=is_ordered))
        return config

    # --- administration --------------------------------------------------------------------

    def update(
        self, config: TopicConfig, attribute_changes: Mapping[str, str] = NO_CHANGES
    ) -> TopicConfig:
        """Create a topic or give it another configuration; `Refused` says what is wrong.

        The attributes become those it has, with the changes; those in `config` do not count.
        """
        new = self._updated(config, attribute_changes)
        old = self._topics.get(new.topic_name)
        self.quota.check_topics(self._topics, (new,))
        return old if old is not None and new == old else self._put(new)

    def update_all(self, configs: Iterable[TopicConfig]) -> None:
        """The same for many topics, heard of and saved once: all of them, or none.

        The attributes in each configuration are changes to those that the topic has.
        """
        new = [self._updated(config, config.attributes) for config in configs]
        changed = tuple(one for one in new if one != self._topics.get(one.topic_name))
        if not changed:
            return
        self.quota.check_topics(self._topics, changed)
        for one in changed:
            self._enter(one)
        self._changed(changed)

    def check_deletable(self, topic: str) -> None:
        """`Refused` for a system topic."""
        if self.is_system(topic):
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"The topic[{topic}] is conflict with system topic; it cannot be deleted",
            )

    def delete(self, topic: str) -> bool:
        """Forget a topic; False if there was none. A system topic is refused."""
        self.check_deletable(topic)
        if self._topics.pop(topic, None) is None:
            return False
        self._unsaved.pop(topic, None)
        _log.info("topic %s deleted", topic)
        self._changed(())
        return True

    def follow_order_topics(self, topics: Iterable[str]) -> None:
        """Mark as ordered what the name server's ORDER_TOPIC_CONFIG names."""
        found = [self._topics.get(topic) for topic in topics]
        marked = [replace(one, order=True) for one in found if one is not None and not one.order]
        if marked:
            for one in marked:
                self._enter(one)
            self._changed(tuple(marked))

    def take_over(self, table: json_tables.TopicTable) -> None:
        """Become what a master's table is."""
        if table.data_version != self.data_version or table.topics != self._topics:
            self._topics = dict(table.topics)
            self.data_version = table.data_version
            self._note_change()

    # --- inside ----------------------------------------------------------------------------

    def _heritable(self, default_topic: str) -> TopicConfig | str:
        """The topic that a new one may inherit from, or why it may not."""
        default = self._topics.get(default_topic)
        if default_topic == AUTO_CREATE_TOPIC and not self._settings.auto_create_enabled:
            return "autoCreateTopicEnable is false"
        if default is None:
            return f"the default topic {default_topic} does not exist"
        if not default.perm & Permission.INHERIT:
            return f"the default topic {default_topic} may not be inherited"
        return default

    def _updated(self, config: TopicConfig, attribute_changes: Mapping[str, str]) -> TopicConfig:
        """What a topic would become."""
        topic = _checked(config.topic_name)
        if self.is_system(topic):
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"The topic[{topic}] is conflict with system topic; choose another name",
            )
        _check_numbers(config)
        if (
            not self._settings.mixed_message_type_enabled
            and attribute_changes.get(f"+{MESSAGE_TYPE}") == MIXED_MESSAGES
        ):
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                "MIXED message type is not supported: enableMixedMessageType is false",
            )
        old = self._topics.get(topic)
        attributes = changed_attributes(
            TOPIC_ATTRIBUTES, None if old is None else old.attributes, attribute_changes
        )
        return replace(config, attributes=attributes)

    def _put(self, config: TopicConfig) -> TopicConfig:
        self._enter(config)
        self._changed((config,))
        return config

    def _enter(self, config: TopicConfig) -> None:
        topic = config.topic_name
        old = self._topics.get(topic)
        _log.info("topic %s: %s", "created" if old is None else "changed", config)
        _, durable = self._unsaved.get(topic, (0, old))
        self._unsaved[topic] = self.generation + 1, durable
        self._topics[topic] = config

    def _saved(self, generation: int, snapshot: json_tables.TopicTable) -> None:
        super()._saved(generation, snapshot)
        self._durable = snapshot
        self._unsaved = {
            topic: change for topic, change in self._unsaved.items() if change[0] > generation
        }

    def _changed(self, configs: tuple[TopicConfig, ...]) -> None:
        """Let `_enter` and deletions count as one change, and tell of it."""
        self.data_version = self.data_version.next(self._clock.wall_ms())
        self._note_change()
        for listener in self.on_change:
            listener(configs)


def _checked(topic: str) -> str:
    # A topic is also the name of a folder, so nothing else may ever get into the table.
    try:
        return check_topic(topic)
    except InvalidNameError as error:
        raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from error


def _check_numbers(config: TopicConfig) -> None:
    # RocketMQ takes any number here and then serves nobody; the mistake is better seen at once.
    counts = (config.read_queue_nums, config.write_queue_nums)
    if min(counts) < 0 or max(counts) > QUEUE_NUMS_MAX:
        raise Refused(
            ResponseCode.INVALID_PARAMETER,
            f"topic {config.topic_name} cannot have {config.read_queue_nums} read and "
            f"{config.write_queue_nums} write queues; 0 to {QUEUE_NUMS_MAX} are possible",
        )
    if not 0 <= config.perm <= PERMISSION_MAX:
        raise Refused(
            ResponseCode.INVALID_PARAMETER,
            f"perm {config.perm} of {config.topic_name} is none: 2 is write, 4 is read, 6 is both",
        )
