"""Where a group is to stand: decided queue by queue before anything is changed."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from downrange.admin.errors import WrongRequestError
from downrange.model.topics import MessageQueue


class TargetKind(StrEnum):
    """How a place in a queue is named."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    OFFSET = "offset"
    SHIFT = "shift"


@dataclass(frozen=True, slots=True)
class Target:
    """A place in every queue: an end, a time in ms, an offset, or so many messages from now."""

    kind: TargetKind
    value: int = 0


@dataclass(frozen=True, slots=True)
class QueueState:
    """What a queue holds, and how far the group is; None if it has never committed there."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    consumer_offset: int | None
    offset_at_time: int | None = None  # the answer for a target of the kind TIME


@dataclass(frozen=True, slots=True)
class QueueChange:
    """One queue of a plan: from where to where, and what that means for the consumers."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    now: int | None
    then: int

    @property
    def skipped(self) -> int:
        """Messages that the group will not see."""
        return max(self.then - max(self.now, self.min_offset), 0) if self.now is not None else 0

    @property
    def repeated(self) -> int:
        """Messages that the group will see again."""
        if self.now is None:
            return 0
        return max(min(self.now, self.max_offset) - self.then, 0)


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """What a reset would do."""

    group: str
    topic: str
    target: Target
    changes: tuple[QueueChange, ...]

    @property
    def skipped(self) -> int:
        """Messages that the group will not see."""
        return sum(change.skipped for change in self.changes)

    @property
    def repeated(self) -> int:
        """Messages that the group will see again."""
        return sum(change.repeated for change in self.changes)


def plan_reset(group: str, topic: str, target: Target, states: Iterable[QueueState]) -> ResetPlan:
    """Decide the new offsets; they lie always within what a queue holds."""
    return ResetPlan(group, topic, target, tuple(_change(state, target) for state in states))


def _change(state: QueueState, target: Target) -> QueueChange:
    wanted = _wanted(state, target)
    then = min(max(wanted, state.min_offset), state.max_offset)
    return QueueChange(state.queue, state.min_offset, state.max_offset, state.consumer_offset, then)


def _wanted(state: QueueState, target: Target) -> int:
    match target.kind:
        case TargetKind.EARLIEST:
            return state.min_offset
        case TargetKind.LATEST:
            return state.max_offset
        case TargetKind.TIME:
            assert state.offset_at_time is not None, "asked for before the plan is made"
            return state.offset_at_time
        case TargetKind.OFFSET:
            return target.value
        case TargetKind.SHIFT:
            if state.consumer_offset is None:
                raise WrongRequestError(
                    f"queue {state.queue.queue_id} of broker {state.queue.broker_name} cannot be "
                    f"shifted: the group has no offset there; choose a place instead"
                )
            return state.consumer_offset + target.value
