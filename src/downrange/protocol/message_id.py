"""The offset message id: where a message is stored, in a form that can be asked for.

    store ip 4 or 16, store port 4, physical offset 8     16 or 28 bytes
    as upper-case hexadecimal                             32 or 56 characters

The reply to a batch has one id for each message, joined by commas.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError
from downrange.protocol.hosts import HOST_BYTES_V4, HOST_BYTES_V6, decode_host

ID_SEPARATOR = ","
_OFFSET_BYTES = 8
_OFFSET_MAX = (1 << 63) - 1
_ID_LENGTHS = frozenset((2 * (HOST_BYTES_V4 + _OFFSET_BYTES), 2 * (HOST_BYTES_V6 + _OFFSET_BYTES)))


class MessageId(NamedTuple):
    """What an offset message id says."""

    ip: str
    port: int
    physical_offset: int


def encode_message_id(store_host: bytes, physical_offset: int) -> str:
    """The id of a message from the host bytes of its broker and its place in the log."""
    if not 0 <= physical_offset <= _OFFSET_MAX:
        raise LocalProtocolError(f"{physical_offset} is no physical offset")
    return f"{_host_text(store_host)}{physical_offset:016X}"


def decode_message_id(text: str) -> MessageId:
    """Address and offset of an id, in either case of letters."""
    data = decode_hex(text)
    if len(text) not in _ID_LENGTHS:
        raise RemoteProtocolError(f"message id {text!r} has {len(text)} characters, not 32 or 56")
    ip, port = decode_host(data[:-_OFFSET_BYTES])
    physical_offset = int.from_bytes(data[-_OFFSET_BYTES:], "big")
    if physical_offset > _OFFSET_MAX:
        raise RemoteProtocolError(f"message id {text!r} has a negative offset")
    return MessageId(ip, port, physical_offset)


def join_message_ids(ids: Iterable[str]) -> str:
    """The id of a batch."""
    return ID_SEPARATOR.join(ids)


def split_message_ids(text: str) -> list[str]:
    """The ids of the messages of a batch; one for a single message."""
    return text.split(ID_SEPARATOR)


def decode_hex(text: str) -> bytes:
    """The bytes of an id; unlike `bytes.fromhex`, blanks are no part of a number."""
    try:
        data = bytes.fromhex(text)
    except ValueError:
        raise RemoteProtocolError(f"id {text!r} is not hexadecimal") from None
    if 2 * len(data) != len(text):
        raise RemoteProtocolError(f"id {text!r} has blanks in it")
    return data


# A broker has one store host, a client meets those of its brokers.
@lru_cache(maxsize=1024)
def _host_text(store_host: bytes) -> str:
    if len(store_host) not in {HOST_BYTES_V4, HOST_BYTES_V6}:
        raise LocalProtocolError(f"a host has 8 or 20 bytes, not {len(store_host)}")
    return store_host.hex().upper()
