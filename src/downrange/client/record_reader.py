"""Decodes the body of a pull response into messages, a few microseconds per message.

One unpack for the head of a record, slices for the rest; properties, hosts and ids stay bytes until
they are used. Topics of one response are nearly always the same, so their text is cached.

A record whose body cannot be decoded becomes an `InvalidMessage`, and reading goes on behind it.
A record whose own lengths contradict each other hides where the next one starts, so reading stops
in front of it; the caller pulls again from there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from struct import error as struct_error
from typing import Final
from zlib import crc32

from downrange.client.invalid_message import InvalidMessage, invalid_record
from downrange.client.message import ReceivedMessage
from downrange.protocol.batch import unwrap_inner_batch
from downrange.protocol.compression import DECOMPRESSED_BYTES_MAX, decompress_by_flag
from downrange.protocol.errors import ProtocolError, RemoteProtocolError
from downrange.protocol.record import CRC_MASK, HEADS, MAGIC_V1, MAGIC_V2
from downrange.protocol.sys_flag import COMPRESSED, INNER_BATCH, NEED_UNWRAP, without_compressed_bit

_HEAD_V4: Final = HEADS[0]
_HEAD_V4_BYTES: Final = HEADS[0].size
_V6_BITS: Final = 3 << 4
_UNWRAP: Final = INNER_BATCH | NEED_UNWRAP
_PACKED: Final = COMPRESSED | NEED_UNWRAP  # bodies that are more than the bytes of one message
UNWRAPPED_MAX: Final = 65_536  # messages of a response, beyond which no batch is unwrapped
_TOPICS_KEPT_MAX: Final = 4_096


@dataclass(slots=True)
class ReadRecords:
    """What was read of a response, in its order.

    `rest_start` is where reading stopped; at the end if everything was read. `damage` says why it
    stopped there; None if only because the bodies so far are large enough for one response.
    """

    messages: list[ReceivedMessage]
    invalid: list[InvalidMessage]
    rest_start: int = 0
    damage: str | None = None
    inflated_bytes: int = 0

    @property
    def last_offset(self) -> int | None:
        """The highest queue offset that was read; None if there is none."""
        ends = [part[-1].queue_offset for part in (self.messages, self.invalid) if part]
        return max(ends, default=None)


def read_response(
    data: bytes,
    *,
    broker_name: str = "",
    offset_delta: int = 0,
    added: bytes = b"",
    check_crc: bool = True,
    body_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> ReadRecords:
    """The messages of a response, and what is invalid among them; raises nothing.

    `offset_delta` is what a static topic adds to the offsets of this broker; `added` are properties
    that all messages of the response get besides their own. `body_bytes_max` limits a decompressed
    body, and the sum of those of one response to little more.
    """
    read = ReadRecords([], [])
    append = read.messages.append
    start = 0
    end = len(data)
    topic_bytes, topic = b"", ""
    while start < end:
        try:
            fields = _HEAD_V4.unpack_from(data, start)
            body_start = start + _HEAD_V4_BYTES
            if fields[7] & _V6_BITS:
                head = HEADS[(fields[7] >> 4) & 3]
                fields = head.unpack_from(data, start)
                body_start = start + head.size
            (
                size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag,
                born_ms, born_host, store_ms, store_host, reconsume_times, prepared, body_bytes,
            ) = fields  # fmt: skip
            body_end = body_start + body_bytes
            if magic == MAGIC_V1:
                topic_start = body_end + 1
                topic_end = topic_start + data[body_end]
            elif magic == MAGIC_V2:
                topic_start = body_end + 2
                topic_end = topic_start + (data[body_end] << 8 | data[body_end + 1])
            else:
                read.damage = f"no record at {start}: magic {magic & 0xFFFFFFFF:#010x}"
                break
            properties_start = topic_end + 2
            next_start = properties_start + (data[topic_end] << 8 | data[topic_end + 1])
            if body_bytes < 0 or next_start != start + size or next_start > end:
                read.damage = f"record at {start}: size {size} is not the sum of its parts"
                break
        except (struct_error, IndexError):
            read.damage = f"response of {end} bytes ends within the record at {start}"
            break
        body = data[body_start:body_end]
        if topic_bytes != data[topic_start:topic_end]:
            topic_bytes = data[topic_start:topic_end]
            topic = _topic(topic_bytes)
        message = ReceivedMessage(
            topic, body, flag, queue_id,
            queue_offset + offset_delta, physical_offset, sys_flag, born_ms, born_host,
            store_ms, store_host, reconsume_times, prepared, size, crc,
            data[properties_start:next_start], broker_name, added,
        )  # fmt: skip
        if check_crc and body and crc32(body) & CRC_MASK != crc:
            read.invalid.append(invalid_record(message, _damaged(start, physical_offset)))
        elif not sys_flag & _PACKED:
            append(message)
        elif not _unpack_into(read, message, body_bytes_max):
            break
        start = next_start
    read.rest_start = start
    return read


def read_records(
    data: bytes, *, broker_name: str = "", body_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> list[ReceivedMessage]:
    """The messages of records that must all be valid; `RemoteProtocolError` if one is not."""
    read = read_response(data, broker_name=broker_name, body_bytes_max=body_bytes_max)
    if read.invalid:
        raise RemoteProtocolError(f"{read.invalid[0]} is invalid: {read.invalid[0].reason}")
    if read.damage is not None:
        raise RemoteProtocolError(read.damage)
    if read.rest_start < len(data):
        raise RemoteProtocolError(f"decompressed bodies have more than {body_bytes_max} bytes")
    return read.messages


def _unpack_into(read: ReadRecords, message: ReceivedMessage, bytes_max: int) -> bool:
    """Decompress and unwrap; False if the response is large enough without this record."""
    raw, sys_flag = message.body, message.sys_flag
    try:
        if sys_flag & COMPRESSED:
            message.body = decompress_by_flag(raw, sys_flag, bytes_max=bytes_max)
            read.inflated_bytes += len(message.body)
            if read.inflated_bytes > bytes_max:
                # One that is alone within the limit, so it is not the first.
                return False
            message.sys_flag = without_compressed_bit(sys_flag)
        if sys_flag & _UNWRAP == _UNWRAP:
            if len(read.messages) > UNWRAPPED_MAX:
                return False
            read.messages.extend(list(_unwrapped(message)))
        else:
            read.messages.append(message)
    except ProtocolError as error:
        message.body, message.sys_flag = raw, sys_flag
        read.invalid.append(invalid_record(message, str(error)))
    return True


@lru_cache(maxsize=_TOPICS_KEPT_MAX)
def _topic(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _unwrapped(outer: ReceivedMessage) -> Iterator[ReceivedMessage]:
    """The messages that a batch queue stores as one record."""
    for queue_offset, (flag, body, properties) in unwrap_inner_batch(
        outer.body, outer.queue_offset
    ):
        yield ReceivedMessage(
            outer.topic, body, flag, outer.queue_id, queue_offset, outer.physical_offset,
            outer.sys_flag & ~_UNWRAP, outer.born_timestamp_ms, outer.born_host_bytes,
            outer.store_timestamp_ms, outer.store_host_bytes, outer.reconsume_times,
            outer.prepared_offset, outer.store_size, crc32(body) & CRC_MASK, properties,
            outer.broker_name, outer.added_properties,
        )  # fmt: skip


def _damaged(start: int, physical_offset: int) -> str:
    return (
        f"the body of the record at {start} (physical offset {physical_offset}) is damaged: "
        f"its checksum differs from the stored one"
    )
