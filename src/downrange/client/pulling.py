"""One pull: from the right broker, decoded, and without what was not asked for.

A record that cannot be decoded is reported beside the messages. If it hides where the next record
starts, the pull ends in front of it, and the next one asks for it alone: the response then says
which offset it has.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from downrange.client.broker_calls import PullAnswer
from downrange.client.hooks import FilterHook
from downrange.client.invalid_message import InvalidMessage
from downrange.client.message import ReceivedMessage
from downrange.client.pull_offsets import reject_misplaced
from downrange.client.queue_calls import QueueCalls
from downrange.client.record_reader import ReadRecords, read_response
from downrange.client.session import Session
from downrange.filtering.tags import is_tag_type
from downrange.model.names import LMQ_PREFIX
from downrange.model.topics import MASTER_ID, MessageQueue
from downrange.protocol.bodies.heartbeat import Subscription
from downrange.protocol.headers.pull import PullRequest
from downrange.protocol.properties import find_property
from downrange.protocol.response_codes import ResponseCode

COMMIT_FLAG: Final = 1
SUSPEND_FLAG: Final = 2
SUBSCRIPTION_FLAG: Final = 4
LITE_PULL_FLAG: Final = 16
_TAGS: Final = b"TAGS"


class PullStatus(StrEnum):
    """What a pull found."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


_STATUS: Final = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MSG,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MSG,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}


@dataclass(frozen=True, slots=True)
class PullResult:
    """What a pull found, and where to go on: not always behind the last message that matched.

    `invalid` are messages that cannot be decoded; `next_offset` is behind them too.
    """

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[ReceivedMessage]
    invalid: list[InvalidMessage] = field(default_factory=list)


class Puller:
    """Pulls for one consumer; remembers which broker of a queue to ask next."""

    def __init__(self, session: Session, calls: QueueCalls, group: str) -> None:
        self._session = session
        self._calls = calls
        self._group = group
        self._broker_ids: dict[MessageQueue, int] = {}  # which broker suggested itself
        self.filter_hooks: list[FilterHook] = []

    def broker_id(self, queue: MessageQueue) -> int:
        """Which broker of a queue is asked next."""
        return self._broker_ids.get(queue, MASTER_ID)

    def forget(self, queue: MessageQueue) -> None:
        """The queue is not ours any more."""
        self._broker_ids.pop(queue, None)

    async def pull(
        self,
        queue: MessageQueue,
        subscription: Subscription,
        offset: int,
        *,
        count_max: int,
        timeout_s: float,
        bytes_max: int | None = None,
        suspend_s: float = 0.0,
        commit_offset: int | None = None,
        with_subscription: bool = False,
        lite: bool = False,
    ) -> PullResult:
        """Messages from an offset on; a broker holds the pull for `suspend_s` if it finds none."""
        address, is_replica = await self._calls.readable(queue, self.broker_id(queue))
        flags = (
            (COMMIT_FLAG if commit_offset is not None and not is_replica else 0)
            | (SUSPEND_FLAG if suspend_s > 0 else 0)
            | (SUBSCRIPTION_FLAG if with_subscription else 0)
            | (LITE_PULL_FLAG if lite else 0)
        )
        header = PullRequest(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count_max,
            sys_flag=flags,
            commit_offset=commit_offset or 0,
            suspend_timeout_millis=int(suspend_s * 1000),
            subscription=subscription.sub_string if with_subscription else None,
            sub_version=subscription.sub_version,
            expression_type=subscription.expression_type,
            max_msg_bytes=bytes_max,
            broker_name=queue.broker_name,
        )
        answer = await self._session.calls.pull(address, header, timeout_s=timeout_s, lite=lite)
        self._broker_ids[queue] = answer.header.suggest_which_broker_id
        result = self._decoded(answer, queue, subscription, offset, is_alone=count_max == 1)
        if result is not None:
            return result
        return await self.pull(
            queue,
            subscription,
            offset,
            count_max=1,
            timeout_s=timeout_s,
            commit_offset=commit_offset,
            with_subscription=with_subscription,
            lite=lite,
        )

    def _decoded(
        self,
        answer: PullAnswer,
        queue: MessageQueue,
        subscription: Subscription,
        offset: int,
        *,
        is_alone: bool,
    ) -> PullResult | None:
        """What the response means; None if its first record has to be pulled alone."""
        found, status = answer.header, _STATUS[answer.code]
        next_offset, low, high = found.next_begin_offset, found.min_offset, found.max_offset
        if status is not PullStatus.FOUND:
            return PullResult(status, next_offset, low, high, [])
        read = read_response(
            answer.records,
            broker_name=queue.broker_name,
            offset_delta=found.offset_delta or 0,
            added=b"MIN_OFFSET\x01%d\x02MAX_OFFSET\x01%d\x02" % (low, high),
            body_bytes_max=self._session.settings.body_bytes_max,
        )
        if read.rest_start < len(answer.records):
            last = read.last_offset
            if last is not None:
                next_offset = last + 1
            elif not is_alone:
                return None
            else:
                next_offset = max(next_offset, offset + 1)
                read.invalid.append(_unreadable(queue, next_offset - 1, read, answer.records))
        if not queue.topic.startswith(LMQ_PREFIX):  # records have the offsets of another queue
            reject_misplaced(read, offset, max(next_offset, offset + 1))
        messages = matching(read.messages, subscription)
        for hook in self.filter_hooks:
            messages = hook.filter_messages(self._group, queue, messages)
        invalid = [
            replace(one, queue=queue) for one in read.invalid if _may_match(one, subscription)
        ]
        return PullResult(status, next_offset, low, high, messages, invalid)


def matching(messages: list[ReceivedMessage], subscription: Subscription) -> list[ReceivedMessage]:
    """The messages with one of the tags: a broker compares hashes, which different tags share."""
    if not subscription.tags_set or not is_tag_type(subscription.expression_type):
        return messages
    wanted = _tag_bytes(subscription.tags_set)
    return [
        message for message in messages if find_property(message.properties_text, _TAGS) in wanted
    ]


def _tag_bytes(tags: Sequence[str]) -> frozenset[bytes]:
    return frozenset(tag.encode() for tag in tags)


def _may_match(invalid: InvalidMessage, subscription: Subscription) -> bool:
    """Whether a message that cannot be decoded may have one of the tags."""
    if not invalid.is_readable or not subscription.tags_set:
        return True
    if not is_tag_type(subscription.expression_type):
        return True
    return find_property(invalid.properties_text, _TAGS) in _tag_bytes(subscription.tags_set)


def _unreadable(
    queue: MessageQueue, offset: int, read: ReadRecords, record: bytes
) -> InvalidMessage:
    """A record that was pulled alone and still cannot be read."""
    return InvalidMessage(
        queue=queue,
        queue_offset=offset,
        reason=read.damage or "the record cannot be read",
        body=record,
        is_readable=False,
    )
