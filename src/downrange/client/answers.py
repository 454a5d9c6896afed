"""Reads answers of brokers and name servers; what makes no sense is a `BadAnswerError`."""

from typing import TypeVar

import msgspec

from downrange.client.errors import BadAnswerError
from downrange.client.message import ReceivedMessage
from downrange.client.record_reader import read_records
from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.command import Command
from downrange.protocol.errors import ProtocolError
from downrange.protocol.headers.fields import Header, decode_header

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
    try:
        return decode_body(kind, answer.body)
    except ProtocolError as error:
        raise BadAnswerError(peer, str(error)) from error


def answered_records(
    records: bytes, peer: str, *, broker_name: str = "", offset_delta: int = 0, added: bytes = b""
) -> list[ReceivedMessage]:
    """The messages of an answer."""
    try:
        return read_records(
            records, broker_name=broker_name, offset_delta=offset_delta, added=added
        )
    except ProtocolError as error:
        raise BadAnswerError(peer, str(error)) from error
