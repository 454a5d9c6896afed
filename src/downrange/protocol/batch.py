"""The body of a batch send: messages without topic and host, one after the other.

    total size         4   of this message, this field included; not checked, as in Java
    magic              4   0 when written, not looked at
    body CRC           4   0 when written, not looked at
    flag               4
    body length        4
    body               n
    properties length  2
    properties         n

A broker makes a full record of each. For topics of the queue type BatchCQ it stores the whole body
as one record (an inner batch), which the client unwraps; message i has the queue offset of the
record + i.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from struct import Struct, error

from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError
from downrange.protocol.properties import PROPERTIES_BYTES_MAX

# flag, body, properties
BatchMessage = tuple[int, bytes, bytes]
# The same of all messages: flags, bodies, properties.
BatchColumns = tuple[Sequence[int], Sequence[bytes], Sequence[bytes]]

_HEAD = Struct(">iiiii")
_READ_HEAD = Struct(">12xii")
_LENGTH = Struct(">h")
_read_int = Struct(">i").unpack_from
_HEAD_BYTES = _HEAD.size
_BODY_LENGTH_POSITION = 16
_LENGTH_BYTES = _LENGTH.size
MESSAGE_BYTES_MIN = _HEAD_BYTES + _LENGTH_BYTES
# As many of the smallest messages as fit into 4 MiB, the largest body a broker takes by default.
MESSAGES_MAX = 4 * 1024 * 1024 // MESSAGE_BYTES_MIN


def encode_batch(messages: Iterable[BatchMessage]) -> bytes:
    """The batch body of (flag, body, properties) of each message."""
    parts: list[bytes] = []
    for flag, body, properties in messages:
        if len(properties) > PROPERTIES_BYTES_MAX:
            raise LocalProtocolError(
                f"properties take {len(properties)} bytes, {PROPERTIES_BYTES_MAX} are possible"
            )
        size = MESSAGE_BYTES_MIN + len(body) + len(properties)
        try:
            head = _HEAD.pack(size, 0, 0, flag, len(body))
        except error as cause:
            raise LocalProtocolError(f"flag {flag} or size {size} is over 32 bits") from cause
        parts += (head, body, _LENGTH.pack(len(properties)), properties)
    return b"".join(parts)


def cut_batch(data: bytes, *, messages_max: int = MESSAGES_MAX) -> BatchColumns:
    """What the messages hold; `RemoteProtocolError` if the lengths do not fit."""
    columns = _cut_alike(data) or _cut_each(data)
    if len(columns[0]) > messages_max:
        raise RemoteProtocolError(f"a batch of more than {messages_max} messages")
    return columns


def _cut_alike(data: bytes) -> BatchColumns | None:
    """The messages, if all have bodies and properties of one length, as events often do."""
    try:
        (body_length,) = _read_int(data, _BODY_LENGTH_POSITION)
        (properties_length,) = _LENGTH.unpack_from(data, _HEAD_BYTES + body_length)
    except error:
        return None
    if body_length < 0 or properties_length < 0:
        return None
    layout = _layout(body_length, properties_length)
    if len(data) % layout.size:
        return None
    flags, body_lengths, bodies, properties_lengths, texts = zip(
        *layout.iter_unpack(data), strict=True
    )
    if body_lengths.count(body_length) != len(flags) or properties_lengths.count(
        properties_length
    ) != len(flags):
        return None
    return flags, bodies, texts


@lru_cache(maxsize=256)
def _layout(body_length: int, properties_length: int) -> Struct:
    return Struct(f">12xii{body_length}sh{properties_length}s")


def _cut_each(data: bytes) -> BatchColumns:
    flags: list[int] = []
    bodies: list[bytes] = []
    texts: list[bytes] = []
    start = 0
    end = len(data)
    read_head = _READ_HEAD.unpack_from
    read_length = _LENGTH.unpack_from
    try:
        while start < end:
            flag, body_length = read_head(data, start)
            body_start = start + _HEAD_BYTES
            body_end = body_start + body_length
            (properties_length,) = read_length(data, body_end)
            text_start = body_end + _LENGTH_BYTES
            next_start = text_start + properties_length
            if body_length < 0 or properties_length < 0 or next_start > end:
                raise _misfit(len(flags), body_length, properties_length)
            flags.append(flag)
            bodies.append(data[body_start:body_end])
            texts.append(data[text_start:next_start])
            start = next_start
    except error:
        raise RemoteProtocolError(
            f"batch of {end} bytes ends within message {len(flags)}, which starts at {start}"
        ) from None
    return flags, bodies, texts


def skip_messages(data: bytes, start: int, count_max: int) -> tuple[int, int]:
    """Where the message after the next `count_max` begins, and how long the bodies before it are.

    `RemoteProtocolError` if the lengths do not fit.
    """
    bodies_bytes = 0
    end = len(data)
    read_int, read_length = _read_int, _LENGTH.unpack_from
    try:
        for index in range(count_max):
            if start >= end:
                break
            (body_length,) = read_int(data, start + _BODY_LENGTH_POSITION)
            body_end = start + _HEAD_BYTES + body_length
            (properties_length,) = read_length(data, body_end)
            start = body_end + _LENGTH_BYTES + properties_length
            if body_length < 0 or properties_length < 0 or start > end:
                raise _misfit(index, body_length, properties_length)
            bodies_bytes += body_length
    except error:
        raise RemoteProtocolError(f"batch of {end} bytes ends within a message") from None
    return start, bodies_bytes


def decode_batch(data: bytes, *, messages_max: int = MESSAGES_MAX) -> list[BatchMessage]:
    """(flag, body, properties) of each message; `RemoteProtocolError` if the lengths do not fit."""
    return list(zip(*cut_batch(data, messages_max=messages_max), strict=True))


def count_batch(data: bytes, *, messages_max: int = MESSAGES_MAX) -> int:
    """How many messages a body has by their total sizes, which is how an inner batch is counted."""
    count = 0
    start = 0
    while start < len(data):
        size = int.from_bytes(data[start : start + 4], "big", signed=True)
        start += size
        count += 1
        if size < MESSAGE_BYTES_MIN or start > len(data):
            raise RemoteProtocolError(f"message {count - 1} of a batch claims {size} bytes")
        if count > messages_max:
            raise RemoteProtocolError(f"a batch of more than {messages_max} messages")
    return count


def unwrap_inner_batch(data: bytes, base_offset: int) -> Iterator[tuple[int, BatchMessage]]:
    """Queue offset and content of each message of a record that holds an inner batch."""
    return enumerate(decode_batch(data), start=base_offset)


def _misfit(index: int, body_length: int, properties_length: int) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"message {index} of a batch claims a body of {body_length} and properties of "
        f"{properties_length} bytes, which does not fit"
    )
