"""The JSON table of SQL92 subscriptions, consumerFilter.json, in exactly RocketMQ 5.5's form."""

from pathlib import Path

from msgspec import Struct, field

from downrange.protocol.integers import Int64
from downrange.runtime.disk import Disk
from downrange.store.json_tables import TableFile

CONSUMER_FILTERS_FILE = "consumerFilter.json"


class BloomBits(Struct, frozen=True, kw_only=True):
    """The bits of a subscription in a Bloom filter of `bit_count` bits."""

    bit_count: int = field(default=0, name="bitNum")
    positions: tuple[int, ...] = field(default=(), name="bitPos")


class GroupFilter(Struct, frozen=True, kw_only=True, rename="camel"):
    """What one group wants of one topic."""

    bits: BloomBits | None = field(default=None, name="bloomFilterData")
    born_ms: Int64 = field(default=0, name="bornTime")
    client_version: Int64 = 0
    group: str = field(default="", name="consumerGroup")
    is_dead: bool = field(default=False, name="dead")
    dead_ms: Int64 = field(default=0, name="deadTime")
    expression: str = ""
    expression_type: str = ""
    topic: str = ""


class TopicFilters(Struct, frozen=True, kw_only=True, rename="camel"):
    """What groups want of one topic."""

    groups: dict[str, GroupFilter] = field(default_factory=dict, name="groupFilterData")
    topic: str = ""


class ConsumerFilters(Struct, frozen=True, kw_only=True):
    """Subscriptions by topic and group."""

    topics: dict[str, TopicFilters] = field(default_factory=dict, name="filterDataByTopic")


def consumer_filters_file(disk: Disk, config_path: Path) -> TableFile[ConsumerFilters]:
    """The file of the subscriptions."""
    return TableFile(
        disk, config_path / CONSUMER_FILTERS_FILE, ConsumerFilters, member="filterDataByTopic"
    )
