"""Requests that only a client can answer: the broker, which is connected to it, passes them on."""

import asyncio
import logging

from downrange.broker.consumer_table import Consumer, ConsumerTable
from downrange.broker.group_table import GroupTable
from downrange.broker.topic_table import TopicTable
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.json_body import decode_body, encode_body
from downrange.protocol.bodies.queues import ConsumerStatus
from downrange.protocol.command import Command, response
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.headers.broker_to_client import (
    ConsumeDirectlyRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
)
from downrange.protocol.headers.fields import decode_header, encode_header
from downrange.protocol.message_id import decode_message_id
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.versions import version_name, version_number
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused, RemotingError, RequestTimeoutError
from downrange.store.lookup import Lookup

_log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 10.0
STATUS_TIMEOUT_S = 5.0
CALL_VERSION_MIN = version_number("V3_1_8_SNAPSHOT")
STATUS_VERSION_MIN = version_number("V3_0_7_SNAPSHOT")


class ClientCallsHandler:
    """Finds the client, asks it with a deadline, and hands its answer back."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        consumers: ConsumerTable,
        lookup: Lookup,
        *,
        broker_name: str,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._lookup = lookup
        self._broker_name = broker_name

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.get_running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.get_status,
        }

    async def get_running_info(self, request: Command, _: Connection) -> Answer:
        """What a client is doing."""
        header = decode_header(GetConsumerRunningInfoRequest, request.ext_fields)
        return await self._call(
            request, header.consumer_group, header.client_id, request.ext_fields, request.body
        )

    async def consume_directly(self, request: Command, _: Connection) -> Answer:
        """Have one client consume one message, now."""
        header = decode_header(ConsumeDirectlyRequest, request.ext_fields)
        message_id = header.msg_id or ""
        try:
            place = decode_message_id(message_id).physical_offset
        except RemoteProtocolError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"msgId: {error}") from error
        record = self._lookup.record_at(place)
        if record is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"this broker has no message {message_id} (any more)"
            )
        fields = {**(request.ext_fields or {}), "brokerName": self._broker_name}
        topic = self._topics.get(header.topic or "")
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._groups.get(header.consumer_group)
        if group is not None:
            fields["groupSysFlag"] = str(group.group_sys_flag)
        return await self._call(
            request, header.consumer_group, header.client_id or "", fields, bytes(record)
        )

    async def get_status(self, request: Command, _: Connection) -> Answer:
        """How far the clients of a group have come themselves, by client; one if it is named.

        A client that does not answer is left out.
        """
        header = decode_header(GetConsumerStatusRequest, request.ext_fields)
        state = self._consumers.group(header.group)
        if state is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{header.group}]",
            )
        wanted = (header.client_addr or "").strip()
        clients = [one for one in state.clients.values() if wanted in {"", one.client_id}]
        for client in clients:
            _check_version(client, STATUS_VERSION_MIN)
        fields = encode_header(GetConsumerStatusRequest(topic=header.topic, group=header.group))
        tables = await asyncio.gather(*(_ask_status(client, fields) for client in clients))
        body = ConsumerStatus(
            consumer_table={
                client.client_id: table
                for client, table in zip(clients, tables, strict=True)
                if table is not None
            }
        )
        return response(request, ResponseCode.SUCCESS, body=encode_body(body))

    async def _call(
        self,
        request: Command,
        group: str,
        client_id: str,
        fields: dict[str, str] | None,
        body: bytes | None,
    ) -> Command:
        client = self._consumers.find_client(group, client_id)
        if client is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
            )
        _check_version(client, CALL_VERSION_MIN)
        try:
            answer = await client.connection.call(
                request.code, fields, body, timeout_s=CALL_TIMEOUT_S
            )
        except RequestTimeoutError as error:
            raise Refused(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{group}> <{client_id}> Timeout: {error}",
            ) from error
        except RemotingError as error:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"invoke consumer <{group}> <{client_id}> Exception: {error}",
            ) from error
        return response(
            request,
            answer.code,
            remark=answer.remark,
            ext_fields=answer.ext_fields,
            body=answer.body,
        )


async def _ask_status(client: Consumer, fields: dict[str, str]) -> dict[MessageQueue, int] | None:
    code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    try:
        answer = await client.connection.call(code, fields, timeout_s=STATUS_TIMEOUT_S)
        if answer.code == ResponseCode.SUCCESS and answer.body:
            return decode_body(ConsumerStatus, answer.body).message_queue_table
        _log.warning("client %r does not say how far it is: %s", client.client_id, answer.remark)
    except (RemotingError, RemoteProtocolError) as error:
        _log.warning("client %r does not say how far it is: %s", client.client_id, error)
    return None


def _check_version(client: Consumer, least: int) -> None:
    if client.version < least:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"The Consumer <{client.client_id}> Version <{version_name(client.version)}> too low "
            f"to finish, please upgrade it to {version_name(least)}",
        )
