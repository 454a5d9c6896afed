"""Offsets: how far a group has come, and what a queue holds."""

from collections.abc import Callable
from typing import Protocol

from downrange.broker.group_table import GroupTable
from downrange.broker.offset_table import OffsetTable
from downrange.broker.topic_table import TopicTable
from downrange.protocol.command import Command, response
from downrange.protocol.headers.fields import decode_header, encode_header
from downrange.protocol.headers.offset import (
    GetEarliestStoreTimeRequest,
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    OffsetResponse,
    QueryConsumerOffsetRequest,
    SearchOffsetRequest,
    TimestampResponse,
    UpdateConsumerOffsetRequest,
)
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused
from downrange.store.lookup import Boundary


class Queue(Protocol):
    """What is asked of one queue of the store."""

    min_offset: int
    max_offset: int

    def entry(self, queue_offset: int) -> tuple[int, int, int]:
        """Physical offset, size and tag code of an entry."""
        ...


class Queues(Protocol):
    """The queues of the store."""

    def get(self, topic: str, queue_id: int) -> Queue | None:
        """The queue, if a message was ever put into it."""
        ...


class Times(Protocol):
    """The store's way from times to offsets and back."""

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = ...
    ) -> int:
        """The queue offset that a time falls on."""
        ...

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """When the oldest message of a queue was stored; -1 if it has none."""
        ...


class OffsetHandler:
    """Serves the offsets of groups and queues.

    `is_in_memory` says whether the log at a physical offset is likely to be in memory still.
    """

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        queues: Queues,
        times: Times,
        is_in_memory: Callable[[int], bool],
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._queues = queues
        self._times = times
        self._is_in_memory = is_in_memory

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search,
            RequestCode.GET_MAX_OFFSET: self.get_max,
            RequestCode.GET_MIN_OFFSET: self.get_min,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.get_earliest_store_time,
        }

    def query(self, request: Command, _: Connection) -> Answer:
        """How far a group has come; QUERY_NOT_FOUND lets the consumer choose where to begin."""
        header = decode_header(QueryConsumerOffsetRequest, request.ext_fields)
        offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset < 0:
            if header.set_zero_if_not_found is False:
                raise Refused(
                    ResponseCode.QUERY_NOT_FOUND,
                    "Not found, do not set to zero, maybe this group boot first",
                )
            if not self._is_young(header.topic, header.queue_id):
                raise Refused(
                    ResponseCode.QUERY_NOT_FOUND,
                    "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
                )
            offset = 0
        return _offset_answer(request, offset)

    def update(self, request: Command, _: Connection) -> Answer:
        """A group has come this far; while a reset waits it is told so, and nothing changes."""
        header = decode_header(UpdateConsumerOffsetRequest, request.ext_fields)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if group not in self._groups:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        if topic not in self._topics:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        for name in ("queueId", "commitOffset"):
            # Missing numbers read as 0, and 0 would throw the group back to the beginning.
            if not (request.ext_fields or {}).get(name):
                raise Refused(
                    ResponseCode.INVALID_PARAMETER, f"{name} is missing, topic is {topic}"
                )
        if not self._topics.has_queue(topic, queue_id) and (
            self._queues.get(topic, queue_id) is None
        ):
            # RocketMQ keeps any number; each is memory and a line of its file for good. A queue
            # that the topic has lost but that holds messages is consumed to its end.
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId {queue_id} of topic {topic} does not exist on this broker; the offset is "
                "not stored",
            )
        if self._offsets.has_reset(group, topic, queue_id):
            return response(
                request, ResponseCode.SUCCESS, remark="Offset has been previously reset"
            )
        self._offsets.commit(group, topic, queue_id, header.commit_offset)
        return response(request, ResponseCode.SUCCESS)

    def search(self, request: Command, _: Connection) -> Answer:
        """Which offset a time falls on."""
        header = decode_header(SearchOffsetRequest, request.ext_fields)
        is_upper = (header.boundary_type or "").lower() == Boundary.UPPER.value
        boundary = Boundary.UPPER if is_upper else Boundary.LOWER
        offset = self._times.offset_by_time(
            header.topic, header.queue_id, header.timestamp, boundary
        )
        return _offset_answer(request, offset)

    def get_max(self, request: Command, _: Connection) -> Answer:
        """The offset that the next message gets."""
        header = decode_header(GetMaxOffsetRequest, request.ext_fields)
        queue = self._queues.get(header.topic, header.queue_id)
        return _offset_answer(request, queue.max_offset if queue is not None else 0)

    def get_min(self, request: Command, _: Connection) -> Answer:
        """The first offset that is still kept."""
        header = decode_header(GetMinOffsetRequest, request.ext_fields)
        queue = self._queues.get(header.topic, header.queue_id)
        return _offset_answer(request, queue.min_offset if queue is not None else 0)

    def get_earliest_store_time(self, request: Command, _: Connection) -> Answer:
        """When the oldest message of a queue was stored."""
        header = decode_header(GetEarliestStoreTimeRequest, request.ext_fields)
        timestamp = self._times.earliest_store_time(header.topic, header.queue_id)
        fields = encode_header(TimestampResponse(timestamp=timestamp))
        return response(request, ResponseCode.SUCCESS, ext_fields=fields)

    def _is_young(self, topic: str, queue_id: int) -> bool:
        """Whether a queue still begins with its first message, and that is still in memory.

        A group that starts on such a queue gets everything, also if it asked to begin at the end:
        it most likely was there when the topic was made, and only its heartbeat came late.
        """
        queue = self._queues.get(topic, queue_id)
        if queue is None or queue.min_offset > 0 or queue.max_offset == 0:
            return False
        return self._is_in_memory(queue.entry(0)[0])


def _offset_answer(request: Command, offset: int) -> Command:
    fields = encode_header(OffsetResponse(offset=offset))
    return response(request, ResponseCode.SUCCESS, ext_fields=fields)
