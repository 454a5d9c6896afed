"""QUERY_CONSUME_QUEUE: entries of a consume queue, for who looks for a fault."""

from downrange.broker.consumer_table import ConsumerTable
from downrange.protocol.bodies.consume_queue import ConsumeQueueView, QueueEntry
from downrange.protocol.bodies.json_body import encode_body
from downrange.protocol.command import Command, response
from downrange.protocol.headers.admin_topic import QueryConsumeQueueRequest
from downrange.protocol.headers.fields import decode_header
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused
from downrange.store.consume_queue import FILLER_SIZE, HOLE_TAG, ConsumeQueue
from downrange.store.queue_table import QueueTable

ENTRIES_MAX = 10_000  # about 1 MB of answer; RocketMQ ends with the queue's file


class QueuesHandler:
    """Shows queues as they are on the disk."""

    def __init__(self, queues: QueueTable, consumers: ConsumerTable) -> None:
        self._queues = queues
        self._consumers = consumers

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {RequestCode.QUERY_CONSUME_QUEUE: self.view}

    def view(self, request: Command, _: Connection) -> Answer:
        """Some entries from an index on, and what a group would filter them by."""
        header = decode_header(QueryConsumeQueueRequest, request.ext_fields)
        name = f"{header.queue_id}@{header.topic}"
        queue = self._queues.get(header.topic, header.queue_id)
        if queue is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{name} is not exist!")
        if not queue.min_offset <= header.index < queue.max_offset:
            # RocketMQ answers success without a body, over which its own admin tool falls.
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"Index {header.index} of {name} is not exist! "
                f"It has {queue.min_offset} to {queue.max_offset - 1}",
            )
        subscription, filter_data = None, None
        if header.consumer_group is not None:
            subscription = self._consumers.subscription(header.consumer_group, header.topic)
            # Subscriptions by tag have no compiled filter, which RocketMQ writes as JSON's null.
            filter_data = (
                "null"
                if subscription is not None
                else f"{header.consumer_group}@{header.topic} is not online!"
            )
        body = ConsumeQueueView(
            subscription_data=subscription,
            filter_data=filter_data,
            queue_data=_entries(queue, header.index, header.count),
            max_queue_index=queue.max_offset,
            min_queue_index=queue.min_offset,
        )
        return response(request, ResponseCode.SUCCESS, body=encode_body(body))


def _entries(queue: ConsumeQueue, index: int, count: int) -> tuple[QueueEntry, ...]:
    end = min(index + min(count, ENTRIES_MAX), queue.max_offset)
    return tuple(_entry(*queue.entry(queue_offset)) for queue_offset in range(index, end))


def _entry(physical_offset: int, size: int, tag_code: int) -> QueueEntry:
    fault = None
    if tag_code == HOLE_TAG:
        fault = "the record is damaged, readers pass it over"
    elif size == FILLER_SIZE:
        fault = "a filler at the begin of the queue, no message"
    return QueueEntry(
        physic_offset=physical_offset, physic_size=size, tags_code=tag_code, msg=fault
    )
