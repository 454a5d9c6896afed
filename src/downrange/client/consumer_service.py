"""Answers what brokers ask of the consumers of a session: 220, 221, 307 and 309."""

import logging
from collections.abc import Coroutine, Mapping
from typing import Protocol, runtime_checkable

import msgspec

from downrange.client.answers import BODY_BYTES_MAX
from downrange.client.message import ReceivedMessage
from downrange.client.record_reader import read_records
from downrange.client.running_info import stacks
from downrange.client.session import Session
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.consumer import ConsumeDirectlyResult, RunningInfo
from downrange.protocol.bodies.json_body import decode_body, encode_body
from downrange.protocol.bodies.queues import ConsumerStatus, ResetOffset
from downrange.protocol.command import Command, response
from downrange.protocol.errors import ProtocolError
from downrange.protocol.headers.broker_to_client import (
    ConsumeDirectlyRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    ResetOffsetRequest,
)
from downrange.protocol.headers.fields import decode_header
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection
from downrange.remoting.errors import Refused

_log = logging.getLogger(__name__)


@runtime_checkable
class ServedConsumer(Protocol):
    """A consumer that can be looked into and told what to do."""

    def running_info(self) -> RunningInfo:
        """What it is doing."""
        ...

    def consumed_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """How far it has come."""
        ...

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Begin anew at these offsets; returns before it is done."""
        ...

    async def consume_directly(
        self, message: ReceivedMessage, broker_name: str
    ) -> ConsumeDirectlyResult | None:
        """Have its listener consume a message, now; None if it has no listener."""
        ...


class ConsumerService:
    """The handlers; a request names its group, so one of these serves a whole session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def serve(self) -> None:
        """Take the requests of the brokers of this session."""
        self._session.serve(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset)
        self._session.serve(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._status)
        self._session.serve(RequestCode.GET_CONSUMER_RUNNING_INFO, self._running_info)
        self._session.serve(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume_directly)

    def _reset(self, request: Command, connection: Connection) -> Answer:
        header = decode_header(ResetOffsetRequest, request.ext_fields)
        consumer = self._consumer(header.group)
        _log.info(
            "broker %s resets the offsets of %s in %s",
            connection.address,
            header.group,
            header.topic,
        )
        if len(request.body or b"") > BODY_BYTES_MAX:
            raise Refused(
                ResponseCode.INVALID_PARAMETER, f"offsets of more than {BODY_BYTES_MAX} bytes"
            )
        if consumer is not None and request.body:
            table = decode_body(ResetOffset, request.body).offset_table
            consumer.reset_offsets(header.topic, table)
        return None

    def _status(self, request: Command, _: Connection) -> Answer:
        header = decode_header(GetConsumerStatusRequest, request.ext_fields)
        consumer = self._consumer(header.group)
        table = consumer.consumed_offsets(header.topic) if consumer is not None else {}
        return _with_body(request, ConsumerStatus(message_queue_table=table))

    def _running_info(self, request: Command, _: Connection) -> Answer:
        header = decode_header(GetConsumerRunningInfoRequest, request.ext_fields)
        consumer = self._consumer(header.consumer_group)
        if consumer is None:
            raise _unknown(header.consumer_group)
        info = consumer.running_info()
        if header.jstack_enable:
            info = msgspec.structs.replace(info, jstack=stacks())
        return _with_body(request, info)

    def _consume_directly(self, request: Command, _: Connection) -> Coroutine[None, None, Answer]:
        header = decode_header(ConsumeDirectlyRequest, request.ext_fields)
        consumer = self._consumer(header.consumer_group)
        if consumer is None:
            raise _unknown(header.consumer_group)
        message = _one_message(request.body or b"")
        return self._answer_directly(request, consumer, message, header)

    async def _answer_directly(
        self,
        request: Command,
        consumer: ServedConsumer,
        message: ReceivedMessage,
        header: ConsumeDirectlyRequest,
    ) -> Answer:
        result = await consumer.consume_directly(message, header.broker_name or "")
        if result is None:
            raise _unknown(header.consumer_group)
        return _with_body(request, result)

    def _consumer(self, group: str) -> ServedConsumer | None:
        consumer: object = self._session.consumer(group)
        return consumer if isinstance(consumer, ServedConsumer) else None


def _one_message(record: bytes) -> ReceivedMessage:
    try:
        (message,) = read_records(record)
    except (ProtocolError, ValueError) as error:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"the message cannot be decoded by this consumer: {error}"
        ) from error
    return message


def _with_body(request: Command, body: msgspec.Struct) -> Command:
    return response(request, ResponseCode.SUCCESS, body=encode_body(body))


def _unknown(group: str) -> Refused:
    return Refused(
        ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer"
    )
