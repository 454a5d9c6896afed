"""The JSON tables of single features: pop, ordered pop, timer and transactions.

messageRequestMode.json   RequestModes         who consumes by pop
consumerOrderInfo.json    OrderedPops          what ordered pop consumers hold
timermetrics              TimerMetrics         waiting timer messages by topic
transactionMetrics        TransactionMetrics   open half messages by topic
"""

from enum import StrEnum
from pathlib import Path

from msgspec import Struct, field

from downrange.model.topics import DataVersion
from downrange.protocol.integers import Int64
from downrange.protocol.json_text import write_json
from downrange.runtime.disk import Disk
from downrange.store.json_tables import TableFile

REQUEST_MODES_FILE = "messageRequestMode.json"
ORDERED_POPS_FILE = "consumerOrderInfo.json"
TIMER_METRICS_FILE = "timermetrics"
TRANSACTION_METRICS_FILE = "transactionMetrics"


class RequestMode(StrEnum):
    """How a group gets its messages."""

    PULL = "PULL"
    POP = "POP"


class GroupRequestMode(Struct, frozen=True, kw_only=True, rename="camel"):
    """How one group gets the messages of one topic."""

    topic: str = ""
    consumer_group: str = ""
    mode: RequestMode = RequestMode.PULL
    pop_share_queue_num: int = 0


class RequestModes(Struct, frozen=True, kw_only=True, rename="camel"):
    """Request modes by topic and group."""

    modes: dict[str, dict[str, GroupRequestMode]] = field(
        default_factory=dict, name="messageRequestModeMap"
    )


class OrderedPop(Struct, frozen=True, kw_only=True):
    """The messages of one queue that an ordered pop consumer holds."""

    attempt_id: str | None = field(default=None, name="a")
    commit_bits: Int64 = field(default=0, name="cm")
    invisible_ms: Int64 | None = field(default=None, name="i")
    last_consume_ms: Int64 = field(default=0, name="l")
    # The first offset as it is, the others as distances from it.
    offset_list: tuple[Int64, ...] | None = field(default=None, name="o")
    consumed_counts: dict[int, int] | None = field(default=None, name="oc")
    next_visible_ms: dict[int, Int64] | None = field(default=None, name="ot")
    pop_ms: Int64 = field(default=0, name="popTime")


class OrderedPops(Struct, frozen=True, kw_only=True, rename="camel"):
    """Ordered pops by "topic@group" and queue; the first two fields are new in 5.5 and not read."""

    order_info_count: int | None = None
    ordered_consumption_level: str | None = None
    table: dict[str, dict[int, OrderedPop]] = field(default_factory=dict)


class Metric(Struct, frozen=True, kw_only=True):
    """How many messages of a topic wait, and when that changed."""

    count: Int64 = 0
    changed_ms: Int64 = field(default=0, name="timeStamp")


class TimerMetrics(Struct, frozen=True, kw_only=True, rename="camel"):
    """Waiting timer messages by topic."""

    data_version: DataVersion = field(default_factory=DataVersion)
    counts: dict[str, Metric] = field(default_factory=dict, name="timingCount")


class TransactionMetrics(Struct, frozen=True, kw_only=True, rename="camel"):
    """Open half messages by topic."""

    data_version: DataVersion = field(default_factory=DataVersion)
    counts: dict[str, Metric] = field(default_factory=dict, name="transactionCount")


def request_modes_file(disk: Disk, config_path: Path) -> TableFile[RequestModes]:
    """The file of the request modes."""
    return TableFile(disk, config_path / REQUEST_MODES_FILE, RequestModes)


def ordered_pops_file(disk: Disk, config_path: Path) -> TableFile[OrderedPops]:
    """The file of what ordered pop consumers hold."""
    return TableFile(disk, config_path / ORDERED_POPS_FILE, OrderedPops)


def timer_metrics_file(disk: Disk, config_path: Path) -> TableFile[TimerMetrics]:
    """The file of the timer's counts."""
    return TableFile(disk, config_path / TIMER_METRICS_FILE, TimerMetrics, write_json)


def transaction_metrics_file(disk: Disk, config_path: Path) -> TableFile[TransactionMetrics]:
    """The file of the counts of half messages."""
    return TableFile(disk, config_path / TRANSACTION_METRICS_FILE, TransactionMetrics, write_json)
