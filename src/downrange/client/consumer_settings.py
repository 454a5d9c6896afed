"""What consumers can be told; defaults and bounds are those of the Java client."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from downrange.client.allocation import AllocationStrategy, Averagely
from downrange.client.errors import InvalidMessageError, RocketMQError
from downrange.client.flow_control import FlowLimits
from downrange.client.invalid_message import InvalidMessagePolicy
from downrange.client.start_offset import ConsumeFromWhere
from downrange.model.names import InvalidNameError, check_group

DEFAULT_CONSUMER_GROUP: Final = "DEFAULT_CONSUMER"
START_BACK_MS: Final = 30 * 60 * 1000  # CONSUME_FROM_TIMESTAMP begins half an hour ago
DEFAULT_RECONSUME_TIMES: Final = 16
RECONSUME_FOR_EVER: Final = (1 << 31) - 1


class MessageModel(StrEnum):
    """Whether the members of a group share the messages, or each gets all of them."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumerSettingsError(RocketMQError):
    """A setting outside its bounds; the text names it and them."""


Bounds = tuple[tuple[str, int, int], ...]  # name, lowest, highest


@dataclass(frozen=True, slots=True, kw_only=True)
class _SharedSettings:
    """What push and lite pull consumers are told alike."""

    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET
    consume_timestamp_ms: int | None = None  # None: half an hour before the start
    strategy: AllocationStrategy = field(default_factory=Averagely)
    span_max: int = 2000
    pull_threshold_for_queue: int = 1000
    pull_threshold_mib_for_queue: int = 100
    unit_mode: bool = False
    offsets_folder: str = ""  # of broadcasting; empty: ~/.rocketmq_offsets
    invalid_messages: InvalidMessagePolicy = InvalidMessagePolicy.DEAD_LETTER

    @property
    def flow_limits(self) -> FlowLimits:
        """The limits of a queue whose topic has none."""
        return FlowLimits(
            count_max=self.pull_threshold_for_queue,
            size_mib_max=self.pull_threshold_mib_for_queue,
            span_max=self.span_max,
        )

    @property
    def is_broadcasting(self) -> bool:
        """Whether every member gets every message."""
        return self.message_model is MessageModel.BROADCASTING


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConsumerSettings(_SharedSettings):
    """How a push consumer pulls and consumes."""

    consume_threads_min: int = 20
    consume_threads_max: int = 20
    pull_threshold_for_topic: int | None = None
    pull_threshold_mib_for_topic: int | None = None
    pull_interval_ms: int = 0
    pull_batch_size: int = 32
    pull_batch_bytes: int = 256 * 1024
    consume_batch_size: int = 1
    post_subscription_when_pull: bool = False
    max_reconsume_times: int | None = None  # None: 16 times, in order for ever
    suspend_current_queue_ms: int = 1000
    consume_timeout_min: float = 15
    error_delay_ms: int = 3000
    shutdown_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        """Refuse what Java refuses."""
        _check_bounds(self, _PUSH_BOUNDS)
        if self.consume_threads_min > self.consume_threads_max:
            raise ConsumerSettingsError(
                f"consume_threads_min {self.consume_threads_min} is over consume_threads_max "
                f"{self.consume_threads_max}; raise the latter"
            )
        _check_over_zero(self, "consume_timeout_min", "shutdown_timeout_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class PullConsumerSettings:
    """How a pull consumer pulls."""

    message_model: MessageModel = MessageModel.CLUSTERING
    suspend_max_s: float = 20.0  # how long a broker may hold a pull that finds nothing
    timeout_when_suspended_s: float = 30.0
    pull_timeout_s: float = 10.0
    max_reconsume_times: int = DEFAULT_RECONSUME_TIMES
    unit_mode: bool = False
    offsets_folder: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        _check_suspension(self.suspend_max_s, self.timeout_when_suspended_s)
        _check_over_zero(self, "suspend_max_s", "pull_timeout_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullSettings(_SharedSettings):
    """How a lite pull consumer fetches ahead, polls and commits."""

    auto_commit: bool = True
    auto_commit_interval_s: float = 5.0
    pull_batch_size: int = 10
    pull_threshold_for_all: int = 10_000
    suspend_max_s: float = 20.0
    timeout_when_suspended_s: float = 30.0
    poll_timeout_s: float = 5.0
    topic_check_interval_s: float = 30.0  # how often `watch_queues` asks the name servers
    error_delay_ms: int = 1000

    def __post_init__(self) -> None:
        """Refuse what Java refuses."""
        if self.auto_commit_interval_s < 1.0:
            raise ConsumerSettingsError(
                f"auto_commit_interval_s is {self.auto_commit_interval_s}; it must be at least 1"
            )
        _check_bounds(self, _LITE_BOUNDS)
        _check_suspension(self.suspend_max_s, self.timeout_when_suspended_s)
        _check_over_zero(self, "topic_check_interval_s")


_QUEUE_BOUNDS: Final[Bounds] = (
    ("span_max", 1, 65535),
    ("pull_threshold_for_queue", 1, 65535),
    ("pull_threshold_mib_for_queue", 1, 1024),
    ("pull_batch_size", 1, 1024),
    ("error_delay_ms", 1, 600_000),
)
_LITE_BOUNDS: Final[Bounds] = (*_QUEUE_BOUNDS, ("pull_threshold_for_all", 1, 6553500))
_PUSH_BOUNDS: Final[Bounds] = (
    *_QUEUE_BOUNDS,
    ("consume_threads_min", 1, 1000),
    ("consume_threads_max", 1, 1000),
    ("pull_threshold_for_topic", 1, 6553500),
    ("pull_threshold_mib_for_topic", 1, 102400),
    ("pull_interval_ms", 0, 65535),
    ("consume_batch_size", 1, 1024),
    ("pull_batch_bytes", 1, (1 << 31) - 1),
    ("max_reconsume_times", 0, RECONSUME_FOR_EVER),
    ("suspend_current_queue_ms", 10, 30_000),
)


def _check_bounds(settings: object, bounds: Bounds) -> None:
    for name, low, high in bounds:
        value: int | None = getattr(settings, name)
        if value is not None and not low <= value <= high:
            raise ConsumerSettingsError(f"{name} is {value}; it must be from {low} to {high}")


def _check_over_zero(settings: object, *names: str) -> None:
    for name in names:
        if not getattr(settings, name) > 0:
            raise ConsumerSettingsError(f"{name} is {getattr(settings, name)}; it must be over 0")


def _check_suspension(suspend_max_s: float, timeout_s: float) -> None:
    """A broker must answer before we stop waiting for it."""
    if timeout_s < suspend_max_s:
        raise ConsumerSettingsError(
            f"timeout_when_suspended_s {timeout_s} is below suspend_max_s {suspend_max_s}; "
            f"the broker would answer too late"
        )


def checked_consumer_group(group: str) -> str:
    """The group itself if consumers may have it."""
    try:
        check_group(group)
    except InvalidNameError as error:
        raise InvalidMessageError(f"consumer {error}", code=None) from None
    if group == DEFAULT_CONSUMER_GROUP:
        raise InvalidMessageError(
            f"consumer group {group!r} is nobody's; give yours a name of its own", code=None
        )
    return group
