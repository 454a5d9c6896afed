"""The JSON tables of offsets: how far each group has consumed, how far each delay level is.

consumerOffset.json      ConsumerOffsets    "topic@group" -> queue -> offset
lmqConsumerOffset.json   LmqOffsets         the same, and "queue@group" -> offset of light queues
delayOffset.json         DelayOffsets       delay level -> offset in its queue
pendingReset.json        PendingResets      "topic@group" -> queue -> offset; our own
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Self

from msgspec import Struct, field
from msgspec.structs import replace

from downrange.model.topics import DataVersion
from downrange.protocol.integers import Int64
from downrange.protocol.java_hash import INT_MASK, java_hash
from downrange.runtime.disk import Disk
from downrange.runtime.slices import Steps, at_once
from downrange.store.json_tables import TableFile

CONSUMER_OFFSETS_FILE = "consumerOffset.json"
LMQ_OFFSETS_FILE = "lmqConsumerOffset.json"
DELAY_OFFSETS_FILE = "delayOffset.json"
PENDING_RESETS_FILE = "pendingReset.json"
TOPIC_GROUP_SEPARATOR = "@"

QueueOffsets = dict[int, Int64]

# Initial capacities of the maps in ConsumerOffsetManager.getGroupTopicMap.
_GROUPS_CAPACITY = 128
_TOPICS_CAPACITY = 8
_LOAD_FACTOR = 0.75


class ConsumerOffsets(Struct, frozen=True, kw_only=True, rename="camel"):
    """Next offset to consume, by "topic@group" and queue.

    `group_topics` follows from the offsets: a broker writes it for its readers and ignores it when
    it reads; the same holds for `pull_offsets`, which 5.5 writes and does not load.
    """

    data_version: DataVersion = field(default_factory=DataVersion)
    group_topics: dict[str, list[str]] = field(default_factory=dict, name="groupTopicMap")
    offsets: dict[str, QueueOffsets] = field(default_factory=dict, name="offsetTable")
    pull_offsets: dict[str, QueueOffsets] = field(default_factory=dict, name="pullOffsetTable")

    def with_group_topics(self) -> Self:
        """The table as it is to be saved, with `group_topics` made from the offsets."""
        return replace(self, group_topics=group_topics(self.offsets))


class PendingResets(Struct, frozen=True, kw_only=True, rename="camel"):
    """Offsets that were reset and that no pull has taken yet, by "topic@group" and queue.

    A file of our own: an Apache broker that finds a member it does not know in consumerOffset.json
    starts without offsets (seen with 5.5.0).
    """

    resets: dict[str, QueueOffsets] = field(default_factory=dict, name="pendingResetTable")


class LmqOffsets(ConsumerOffsets, frozen=True, kw_only=True, rename="camel"):
    """Offsets of a broker with light message queues, which have one offset each."""

    lmq_offsets: dict[str, Int64] = field(default_factory=dict, name="lmqOffsetTable")


class DelayOffsets(Struct, frozen=True, kw_only=True, rename="camel"):
    """Next offset to deliver, by delay level."""

    data_version: DataVersion = field(default_factory=DataVersion)
    offsets: QueueOffsets = field(default_factory=dict, name="offsetTable")


def consumer_offsets_file(disk: Disk, config_path: Path) -> TableFile[ConsumerOffsets]:
    """The file of the consumer offsets."""
    return TableFile(
        disk, config_path / CONSUMER_OFFSETS_FILE, ConsumerOffsets, member="offsetTable"
    )


def pending_resets_file(disk: Disk, config_path: Path) -> TableFile[PendingResets]:
    """The file of the resets that wait for their consumers."""
    return TableFile(
        disk, config_path / PENDING_RESETS_FILE, PendingResets, member="pendingResetTable"
    )


def lmq_offsets_file(disk: Disk, config_path: Path) -> TableFile[LmqOffsets]:
    """The file of the consumer offsets of a broker with light message queues."""
    return TableFile(disk, config_path / LMQ_OFFSETS_FILE, LmqOffsets)


def delay_offsets_file(disk: Disk, config_path: Path) -> TableFile[DelayOffsets]:
    """The file of the delay levels' offsets."""
    return TableFile(disk, config_path / DELAY_OFFSETS_FILE, DelayOffsets, member="offsetTable")


def group_topics(topics_at_groups: Iterable[str]) -> dict[str, list[str]]:
    """The topics of each group, in the order in which Java's hash maps have them."""
    return at_once(group_topics_steps(topics_at_groups))


def group_topics_steps(topics_at_groups: Iterable[str]) -> Steps[dict[str, list[str]]]:
    """The same in steps, one per offset and group: hashing as Java does takes its time."""
    topics_by_group: dict[str, dict[str, None]] = {}
    for key in topics_at_groups:
        topic, separator, group = key.partition(TOPIC_GROUP_SEPARATOR)
        if separator and group and TOPIC_GROUP_SEPARATOR not in group:
            topics_by_group.setdefault(group, {})[topic] = None
        yield
    groups = yield from _in_hash_order(topics_by_group, _GROUPS_CAPACITY)
    ordered: dict[str, list[str]] = {}
    for group in groups:
        ordered[group] = yield from _in_hash_order(topics_by_group[group], _TOPICS_CAPACITY)
    return ordered


def _in_hash_order(names: Iterable[str], capacity: int) -> Steps[list[str]]:
    """The names as `java.util.HashMap` iterates: by bucket, within a bucket as inserted."""
    inserted = list(names)
    while len(inserted) > capacity * _LOAD_FACTOR:
        capacity *= 2
    buckets: dict[str, int] = {}
    for name in inserted:
        unsigned = java_hash(name) & INT_MASK
        buckets[name] = (unsigned ^ (unsigned >> 16)) & (capacity - 1)
        yield
    return sorted(inserted, key=buckets.__getitem__)
