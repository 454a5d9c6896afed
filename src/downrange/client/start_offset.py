"""Where a consumer begins in a queue that it was just given, and why there.

What the broker names for the group wins always. Without that `ConsumeFromWhere` decides; a retry
topic begins at its first message, so that nothing that was given back is skipped, except by time,
where Java begins at its end.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from downrange.model.names import is_retry_topic
from downrange.model.topics import MessageQueue


class ConsumeFromWhere(StrEnum):
    """Where a group begins that has no offset yet."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class Question(StrEnum):
    """What a broker has to be asked to know the offset."""

    MAX_OFFSET = "the end of the queue"
    OFFSET_BY_TIME = "the first message of a time"


@dataclass(frozen=True, slots=True)
class StartOffset:
    """An offset and the reason for it, for logs and for people who wonder."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Ask:
    """The answer to this question is the offset; the reason is known already."""

    question: Question
    reason: str


def choose_start(
    queue: MessageQueue,
    committed: int | None,
    where: ConsumeFromWhere,
    timestamp_ms: int,
) -> StartOffset | Ask:
    """The offset to begin at, or what to ask for it."""
    if committed == 0:
        # A broker says 0 for a group it does not know while the queue has its first messages in
        # memory: most likely the group was there when the topic was made.
        return StartOffset(0, "the group has consumed nothing here, and the queue is young")
    if committed is not None:
        return StartOffset(committed, "the group has come this far")
    is_retry = is_retry_topic(queue.topic)
    match where:
        case ConsumeFromWhere.LAST_OFFSET:
            if is_retry:
                return StartOffset(
                    0, "the group has no offset here and a retry topic is read whole"
                )
            return Ask(Question.MAX_OFFSET, f"the group has no offset here and {where.value} says")
        case ConsumeFromWhere.FIRST_OFFSET:
            return StartOffset(0, f"the group has no offset here and {where.value} says so")
        case ConsumeFromWhere.TIMESTAMP:
            if is_retry:
                return Ask(
                    Question.MAX_OFFSET, f"the group has no offset here and {where.value} says"
                )
            return Ask(
                Question.OFFSET_BY_TIME,
                f"the group has no offset here and {where.value} {timestamp_ms} says",
            )
    assert_never(where)


def answered(ask: Ask, offset: int) -> StartOffset:
    """The offset that a broker has named."""
    return StartOffset(offset, f"{ask.reason}: {ask.question.value}")
