"""Reads answers of brokers and name servers; what makes no sense is a `BadAnswerError`."""

import logging
from typing import Final, TypeVar

import msgspec

from downrange.client.errors import BadAnswerError, InvalidStoredMessageError, RouteLimitError
from downrange.client.message import ReceivedMessage
from downrange.client.record_reader import read_response
from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.bodies.route import TopicRoute
from downrange.protocol.command import Command
from downrange.protocol.errors import ProtocolError
from downrange.protocol.headers.fields import Header, decode_header
from downrange.protocol.route_limits import RouteLimits, check_route

ROUTE_BYTES_MAX: Final = 8 * 1024 * 1024  # a static topic lists its queues one by one
BODY_BYTES_MAX: Final = 8 * 1024 * 1024

_log = logging.getLogger(__name__)

H = TypeVar("H", bound=Header)
B = TypeVar("B", bound=msgspec.Struct)


def answered_header(kind: type[H], answer: Command, peer: str) -> H:
    """The typed header of an answer."""
    try:
        return decode_header(kind, answer.ext_fields)
    except ProtocolError as error:
        raise BadAnswerError(peer, str(error)) from error


def answered_body(kind: type[B], answer: Command, peer: str) -> B:
    """The typed body of an answer."""
    check_size(peer, answer.body, BODY_BYTES_MAX)
    try:
        return decode_body(kind, answer.body)
    except ProtocolError as error:
        raise BadAnswerError(peer, str(error)) from error


def checked_route(topic: str, body: bytes | None, limits: RouteLimits) -> TopicRoute:
    """The route in a response of a name server; `RouteLimitError` if it is too large."""
    check_size("the name server", body, ROUTE_BYTES_MAX)
    try:
        route = decode_body(TopicRoute, body)
    except ProtocolError as error:
        raise BadAnswerError("the name server", str(error)) from error
    try:
        check_route(route, limits)
    except ProtocolError as error:
        raise RouteLimitError(topic, str(error)) from error
    return route


def check_size(peer: str, body: bytes | None, bytes_max: int) -> None:
    """Refuse a JSON body before it is decoded to a multiple of its size."""
    if body is not None and len(body) > bytes_max:
        raise BadAnswerError(peer, f"its body has {len(body)} bytes, the limit is {bytes_max}")


def answered_messages(records: bytes, peer: str, *, broker_name: str = "") -> list[ReceivedMessage]:
    """The valid messages of a response that may hold several; the others are logged."""
    read = read_response(records, broker_name=broker_name)
    for invalid in read.invalid:
        _log.warning("%s left out: it cannot be decoded: %s", invalid, invalid.reason)
    if read.rest_start < len(records):
        reason = read.damage or "the decompressed bodies are too large for one response"
        if not read.messages and not read.invalid:
            raise BadAnswerError(peer, reason)
        _log.warning("%s: messages left out behind byte %d: %s", peer, read.rest_start, reason)
    return read.messages


def answered_message(records: bytes, peer: str, *, broker_name: str = "") -> ReceivedMessage:
    """The one message of a response; `InvalidStoredMessageError` if it cannot be decoded."""
    read = read_response(records, broker_name=broker_name)
    if read.damage is not None:
        raise BadAnswerError(peer, read.damage)
    if len(read.messages) + len(read.invalid) != 1:
        raise BadAnswerError(peer, f"{len(read.messages)} messages at one place of the log")
    if read.invalid:
        raise InvalidStoredMessageError(str(read.invalid[0]), read.invalid[0].reason)
    return read.messages[0]
