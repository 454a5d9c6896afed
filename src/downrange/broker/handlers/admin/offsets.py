"""Offsets of groups: all of them, the slowest, and copied from one group to another."""

import logging

from downrange.broker.consumer_table import ConsumerTable
from downrange.broker.offset_table import OffsetTable
from downrange.broker.table_saver import Durable
from downrange.broker.topic_table import TopicTable
from downrange.model.names import InvalidNameError, check_group
from downrange.protocol.bodies.json_body import encode_body
from downrange.protocol.bodies.statistics import CorrectionOffsets
from downrange.protocol.command import Command, response
from downrange.protocol.headers.admin_group import (
    CloneGroupOffsetRequest,
    QueryCorrectionOffsetRequest,
)
from downrange.protocol.headers.fields import decode_header
from downrange.protocol.integers import INT64_MAX
from downrange.protocol.json_text import write_json_steps
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused
from downrange.runtime.slices import in_slices
from downrange.store.queue_table import QueueTable

_log = logging.getLogger(__name__)


class GroupOffsetsHandler:
    """Serves from the offset table."""

    def __init__(
        self,
        topics: TopicTable,
        offsets: OffsetTable,
        consumers: ConsumerTable,
        queues: QueueTable,
        durable: Durable,
    ) -> None:
        self._topics = topics
        self._offsets = offsets
        self._consumers = consumers
        self._queues = queues
        self._durable = durable

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.get_all,
            RequestCode.QUERY_CORRECTION_OFFSET: self.get_correction,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
        }

    async def get_all(self, request: Command, _: Connection) -> Answer:
        """The whole table, as slaves copy it."""
        table = await in_slices(self._offsets.to_file_steps())
        body = await in_slices(write_json_steps(table))
        return response(request, ResponseCode.SUCCESS, body=body)

    def get_correction(self, request: Command, _: Connection) -> Answer:
        """How far the slowest group is in each queue.

        The largest number stands for queues in which the compared group is slower than that. Unlike
        RocketMQ the groups to be left out keep their offsets: a question changes nothing.
        """
        header = decode_header(QueryCorrectionOffsetRequest, request.ext_fields)
        topic = header.topic
        left_out = {name for name in (header.filter_groups or "").split(",") if name}
        slowest = self._offsets.min_offsets(
            topic, left_out, lambda queue_id: self._min_offset(topic, queue_id)
        )
        for queue_id, offset in self._offsets.of_queues(header.compare_group, topic).items():
            if slowest.get(queue_id, -1) > offset:
                slowest[queue_id] = INT64_MAX
        body = CorrectionOffsets(correction_offsets=dict(sorted(slowest.items())))
        return response(request, ResponseCode.SUCCESS, body=encode_body(body))

    async def clone(self, request: Command, connection: Connection) -> Answer:
        """Copy the offsets of a group to another; without a topic in all of its topics.

        RocketMQ copies nothing if no topic is given.
        """
        header = decode_header(CloneGroupOffsetRequest, request.ext_fields)
        source, target = header.src_group, header.dest_group
        for group in (source, target):
            try:
                check_group(group)
            except InvalidNameError as error:
                raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        wanted = header.topic.strip() if header.topic else ""
        for topic in [wanted] if wanted else sorted(self._offsets.topics_of(source)):
            if topic not in self._topics:
                _log.warning("offsets of %s in %s not cloned: no such topic", source, topic)
            elif not header.offline and self._has_left(source, topic):
                _log.warning("offsets of %s in %s not cloned: not subscribed", source, topic)
            else:
                self._offsets.clone(source, target, topic)
                _log.info(
                    "offsets in %s cloned from %s to %s by %s",
                    topic,
                    source,
                    target,
                    connection.address,
                )
        await self._durable()
        return response(request, ResponseCode.SUCCESS)

    def _has_left(self, group: str, topic: str) -> bool:
        """Whether the group is online and does not subscribe the topic any more."""
        state = self._consumers.group(group)
        is_online = state is not None and bool(state.subscriptions)
        return is_online and self._consumers.subscription(group, topic) is None

    def _min_offset(self, topic: str, queue_id: int) -> int:
        queue = self._queues.get(topic, queue_id)
        return queue.min_offset if queue is not None else 0
