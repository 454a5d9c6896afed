"""INVOKE_BROKER_TO_RESET_OFFSET: moves a group to a time or to an offset.

By default the broker does it alone: the new offsets wait in the offset table for the next pull. The
older way, useServerSideResetOffset=false, tells the clients, and so works only for who is online.
"""

import logging

from downrange.broker.consumer_table import Consumer, ConsumerTable
from downrange.broker.group_table import GroupTable
from downrange.broker.offset_table import UNKNOWN, OffsetTable
from downrange.broker.table_saver import Durable
from downrange.broker.topic_table import TopicTable
from downrange.model.topics import MessageQueue, TopicConfig
from downrange.protocol.bodies.json_body import encode_body
from downrange.protocol.bodies.queues import QueueOffset, ResetOffset, ResetOffsetForCpp
from downrange.protocol.command import Command, response
from downrange.protocol.headers.broker_to_client import ResetOffsetRequest
from downrange.protocol.headers.fields import decode_header, encode_header
from downrange.protocol.languages import LanguageCode
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.versions import version_name, version_number
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused
from downrange.store.lookup import Lookup
from downrange.store.queue_table import QueueTable

_log = logging.getLogger(__name__)

CLIENT_VERSION_MIN = version_number("V3_0_7_SNAPSHOT")
NO_OFFSET = -1  # what admin clients send for "by time"


class ResetsHandler:
    """Finds the offsets and hands them to the offset table, or to the clients."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        consumers: ConsumerTable,
        queues: QueueTable,
        lookup: Lookup,
        durable: Durable,
        *,
        broker_name: str,
        server_side: bool = True,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._queues = queues
        self._lookup = lookup
        self._durable = durable
        self._broker_name = broker_name
        self._server_side = server_side

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset}

    async def reset(self, request: Command, connection: Connection) -> Answer:
        """Move a group; answers with the new offsets when they are on disk."""
        header = decode_header(ResetOffsetRequest, request.ext_fields)
        config = self._topics.get(header.topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        _log.info(
            "offsets of %s in %s are to be reset by %s: %s",
            header.group,
            header.topic,
            connection.address,
            header,
        )
        if self._server_side:
            found = self._reset_here(header, config)
            await self._durable()
        else:
            found = self._reset_at_clients(header, config, is_cpp=_is_cpp(request.language))
        body = ResetOffset(
            offset_table={
                MessageQueue(header.topic, self._broker_name, queue_id): offset
                for queue_id, offset in found.items()
            }
        )
        return response(request, ResponseCode.SUCCESS, body=encode_body(body))

    def _reset_here(self, header: ResetOffsetRequest, config: TopicConfig) -> dict[int, int]:
        topic, group = header.topic, header.group
        if group not in self._groups:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist"
            )
        if header.queue_id >= 0:
            found = {header.queue_id: self._wanted_offset(header, config)}
        else:
            found = {
                queue_id: self._offset_at(topic, queue_id, header.timestamp)
                for queue_id in range(config.read_queue_nums)
            }
        if not found:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"No queues to reset: {topic} has none to read"
            )
        for queue_id, offset in found.items():
            self._offsets.reset(group, topic, queue_id, offset)
        return found

    def _wanted_offset(self, header: ResetOffsetRequest, config: TopicConfig) -> int:
        queue_id = header.queue_id
        if queue_id >= config.read_queue_nums:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"Topic {header.topic} has no queue {queue_id}, only {config.read_queue_nums}",
            )
        if header.offset is None or header.offset == NO_OFFSET:
            return self._offset_at(header.topic, queue_id, header.timestamp)
        queue = self._queues.get(header.topic, queue_id)
        low, high = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)
        if not low <= header.offset <= high:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {header.offset} not in consume queue range [{low}-{high}]",
            )
        return header.offset

    def _offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        """The offset of a time; a time before 1970 means the end of the queue."""
        if timestamp >= 0:
            return self._lookup.offset_by_time(topic, queue_id, timestamp)
        queue = self._queues.get(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def _reset_at_clients(
        self, header: ResetOffsetRequest, config: TopicConfig, *, is_cpp: bool
    ) -> dict[int, int]:
        topic, group = header.topic, header.group
        found: dict[int, int] = {}
        for queue_id in range(config.write_queue_nums):
            current = self._offsets.query(group, topic, queue_id)
            if current == UNKNOWN:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"The consumer group <{group}> not exist: it has consumed nothing of queue "
                    f"{queue_id} of {topic}",
                )
            wanted = self._offset_at(topic, queue_id, header.timestamp)
            found[queue_id] = wanted if header.is_force else min(wanted, current)
        state = self._consumers.group(group)
        if state is None:
            raise Refused(
                ResponseCode.CONSUMER_NOT_ONLINE,
                "Consumer not online, so can not reset offset, "
                f"Group: {group} Topic: {topic} Timestamp: {header.timestamp}",
            )
        clients = list(state.clients.values())
        for client in clients:
            if client.version < CLIENT_VERSION_MIN:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"the client {client.client_id} does not support this feature. "
                    f"version={version_name(client.version)}",
                )
        for client in clients:
            self._tell(client, header, found, is_cpp=is_cpp or _is_cpp(client.language))
        return found

    def _tell(
        self, client: Consumer, header: ResetOffsetRequest, found: dict[int, int], *, is_cpp: bool
    ) -> None:
        topic, name = header.topic, self._broker_name
        if is_cpp:
            body = encode_body(
                ResetOffsetForCpp(
                    offset_table=tuple(
                        QueueOffset(topic=topic, broker_name=name, queue_id=one, offset=offset)
                        for one, offset in found.items()
                    )
                )
            )
        else:
            table = {MessageQueue(topic, name, one): offset for one, offset in found.items()}
            body = encode_body(ResetOffset(offset_table=table))
        fields = encode_header(
            ResetOffsetRequest(
                group=header.group, topic=topic, timestamp=header.timestamp, is_force=False
            )
        )
        client.connection.send_one_way(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body)


def _is_cpp(language: LanguageCode) -> bool:
    # Clients in C++ cannot read a map with objects as keys; their admin tools say so themselves.
    return language is LanguageCode.CPP
