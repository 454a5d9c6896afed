"""QUERY_ASSIGNMENT and its switches: the broker shares out the queues of a group."""

import logging
from collections.abc import Awaitable, Callable, Sequence

from downrange.broker.assignment import STRATEGIES, RequestModeTable, allocate_for_pop
from downrange.broker.consumer_table import BROADCASTING, ConsumerTable
from downrange.broker.group_table import GroupTable
from downrange.broker.table_saver import Durable
from downrange.broker.topic_table import TopicTable
from downrange.model.names import is_lmq, is_retry_topic
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.assignment import (
    AssignmentRequest,
    AssignmentResponse,
    QueueAssignment,
    RequestModeChange,
)
from downrange.protocol.bodies.json_body import decode_body, encode_body
from downrange.protocol.command import Command, response
from downrange.protocol.json_text import write_json
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused
from downrange.store.feature_tables import GroupRequestMode, RequestMode

_log = logging.getLogger(__name__)

CLUSTERING = "CLUSTERING"
# The readable queues of a topic on all brokers, as the name server knows them; None if it does not.
ReadableQueues = Callable[[str], Awaitable[Sequence[MessageQueue] | None]]


class AssignmentHandler:
    """Serves QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE and GET_ALL_MESSAGE_REQUEST_MODE."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        consumers: ConsumerTable,
        modes: RequestModeTable,
        readable_queues: ReadableQueues,
        durable: Durable,
        *,
        broker_name: str,
        shares_out: bool = True,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._modes = modes
        self._readable_queues = readable_queues
        self._durable = durable
        self._broker_name = broker_name
        self._shares_out = shares_out

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.get_modes,
        }

    async def query(self, request: Command, _: Connection) -> Answer:
        """The queues of one client of a group, and whether to pull or to pop them."""
        body = decode_body(AssignmentRequest, request.body)
        mode = self._modes.mode_of(
            body.topic, body.consumer_group, must_pull=is_retry_topic(body.topic)
        )
        queues = await self._queues_of(body.topic, body.message_model)
        allocated = self._share_out(body, mode, queues) if queues is not None else None
        if allocated is None:
            # Java writes nothing for null, and a client that reads nothing keeps what it has.
            return response(request, ResponseCode.SUCCESS, body=b"{}")
        assignments = tuple(
            QueueAssignment(message_queue=one, mode=mode.mode.value) for one in allocated
        )
        answer = encode_body(AssignmentResponse(message_queue_assignments=assignments))
        return response(request, ResponseCode.SUCCESS, body=answer)

    async def set_mode(self, request: Command, _: Connection) -> Answer:
        """Let a group pull or pop a topic from now on; durable when this is answered."""
        body = decode_body(RequestModeChange, request.body)
        if is_retry_topic(body.topic):
            raise Refused(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if body.topic not in self._topics:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{body.topic}] not exist")
        if self._groups.find(body.consumer_group) is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist"
            )
        if body.mode not in RequestMode.__members__:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"mode {body.mode} is not PULL or POP")
        self._modes.set(
            GroupRequestMode(
                topic=body.topic,
                consumer_group=body.consumer_group,
                mode=RequestMode(body.mode),
                pop_share_queue_num=body.pop_share_queue_num,
            )
        )
        await self._durable()
        return response(request, ResponseCode.SUCCESS)

    def get_modes(self, request: Command, _: Connection) -> Answer:
        """All modes that were set, for slaves."""
        return response(request, ResponseCode.SUCCESS, body=write_json(self._modes.to_file()))

    async def _queues_of(
        self, topic: str, message_model: str | None
    ) -> Sequence[MessageQueue] | None:
        if is_lmq(topic) and message_model != BROADCASTING:
            return [MessageQueue(topic, self._broker_name, 0)]
        return await self._readable_queues(topic)

    def _share_out(
        self, body: AssignmentRequest, mode: GroupRequestMode, queues: Sequence[MessageQueue]
    ) -> Sequence[MessageQueue] | None:
        """The client's queues; none means that it gets none, None that it keeps what it has."""
        if body.message_model == BROADCASTING:
            return queues
        if body.message_model != CLUSTERING:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"messageModel {body.message_model} is neither CLUSTERING nor BROADCASTING",
            )
        if not self._shares_out:
            return queues
        strategy = STRATEGIES.get(body.strategy_name or "")
        client_ids = self._consumers.client_ids(body.consumer_group)
        if strategy is None or not client_ids:
            _log.warning(
                "no assignment: group=%s topic=%s client=%s strategy=%s clients=%d",
                body.consumer_group,
                body.topic,
                body.client_id,
                body.strategy_name,
                len(client_ids),
            )
            return None
        ordered = sorted(queues)
        if mode.mode is RequestMode.POP:
            return allocate_for_pop(
                strategy, body.client_id, ordered, client_ids, mode.pop_share_queue_num
            )
        return strategy(body.client_id, ordered, client_ids)
