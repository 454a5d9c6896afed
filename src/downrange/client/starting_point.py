"""Finds the offset that a consumer begins at in a queue: what is kept, else what brokers say."""

import logging

from downrange.client.errors import RocketMQError
from downrange.client.offset_store import OffsetStore
from downrange.client.queue_calls import QueueCalls
from downrange.client.start_offset import (
    Ask,
    ConsumeFromWhere,
    Question,
    StartOffset,
    answered,
    choose_start,
)
from downrange.model.topics import MessageQueue

_log = logging.getLogger(__name__)


class StartingPoint:
    """Chooses for one consumer, and says in the log what it chose and why."""

    def __init__(
        self,
        calls: QueueCalls,
        offsets: OffsetStore,
        group: str,
        where: ConsumeFromWhere,
        timestamp_ms: int,
    ) -> None:
        self._calls = calls
        self._offsets = offsets
        self._group = group
        self._where = where
        self._timestamp_ms = timestamp_ms

    async def find(self, queue: MessageQueue) -> StartOffset:
        """The offset and the reason; `RocketMQError` if nobody can be asked."""
        committed = await self._offsets.stored(queue)
        choice = choose_start(queue, committed, self._where, self._timestamp_ms)
        if isinstance(choice, Ask):
            if choice.question is Question.MAX_OFFSET:
                offset = await self._calls.max_offset(queue)
            else:
                offset = await self._calls.search_offset(queue, self._timestamp_ms)
            choice = answered(choice, offset)
        if choice.offset < 0:
            raise RocketMQError(f"{queue} cannot begin at offset {choice.offset}: {choice.reason}")
        _log.info(
            "group %s begins at offset %d of %s: %s",
            self._group,
            choice.offset,
            queue,
            choice.reason,
        )
        return choice
