"""When a consumer stops pulling for a moment because it holds enough already."""

from dataclasses import dataclass
from enum import StrEnum

from downrange.client.process_queue import ProcessQueue

_MIB = 1024 * 1024


class HoldBack(StrEnum):
    """Why nothing is pulled now."""

    COUNT = "too many messages are cached"
    SIZE = "the cached messages are too large"
    SPAN = "the lowest and the highest cached offset are too far apart"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """How much one queue may hold; beyond each of them nothing is pulled."""

    count_max: int = 1000
    size_mib_max: int = 100
    span_max: int = 2000

    def shared_by(
        self, queues: int, *, topic_count_max: int | None, topic_size_mib_max: int | None
    ) -> "FlowLimits":
        """The limits of one of so many queues, where a whole topic has limits too."""
        if not queues:
            return self
        return FlowLimits(
            count_max=(
                self.count_max if topic_count_max is None else max(1, topic_count_max // queues)
            ),
            size_mib_max=(
                self.size_mib_max
                if topic_size_mib_max is None
                else max(1, topic_size_mib_max // queues)
            ),
            span_max=self.span_max,
        )


def hold_back(queue: ProcessQueue, limits: FlowLimits, *, in_order: bool) -> HoldBack | None:
    """Why nothing may be pulled for this queue now; None if it may.

    The span limits what is redelivered after a crash because one message hangs: any message where
    they may be done in any order, an invalid one where they are consumed in order.
    """
    if queue.count > limits.count_max:
        return HoldBack.COUNT
    if queue.bytes // _MIB > limits.size_mib_max:
        return HoldBack.SIZE
    if (queue.unsettled_span if in_order else queue.span) > limits.span_max:
        return HoldBack.SPAN
    return None
