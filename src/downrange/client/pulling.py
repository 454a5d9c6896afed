"""One pull: from the right broker, decoded, and with what was not asked for taken out."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from downrange.client.answers import answered_records
from downrange.client.hooks import FilterHook
from downrange.client.message import ReceivedMessage
from downrange.client.queue_calls import QueueCalls
from downrange.client.session import Session
from downrange.filtering.tags import is_tag_type
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
    """What a pull found, and where to go on: not always behind the last message that matched."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[ReceivedMessage]


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
        found = answer.header
        self._broker_ids[queue] = found.suggest_which_broker_id
        status = _STATUS[answer.code]
        messages: list[ReceivedMessage] = []
        if status is PullStatus.FOUND:
            messages = answered_records(
                answer.records,
                f"broker {address} for {queue}",
                broker_name=queue.broker_name,
                offset_delta=found.offset_delta or 0,
                added=b"MIN_OFFSET\x01%d\x02MAX_OFFSET\x01%d\x02"
                % (found.min_offset, found.max_offset),
            )
            messages = matching(messages, subscription)
            for hook in self.filter_hooks:
                messages = hook.filter_messages(self._group, queue, messages)
        return PullResult(
            status, found.next_begin_offset, found.min_offset, found.max_offset, messages
        )


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
