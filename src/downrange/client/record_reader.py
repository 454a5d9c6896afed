"""Turns the body of a pull's answer into messages, a few microseconds each.

One unpack for the head of a record, slices for the rest; properties, hosts and ids stay bytes until
somebody asks. Topics of one answer are nearly always the same, so their text is kept.
"""

from collections.abc import Iterator
from functools import lru_cache
from struct import error as struct_error
from typing import Final
from zlib import crc32

from downrange.client.message import ReceivedMessage
from downrange.protocol.batch import unwrap_inner_batch
from downrange.protocol.compression import decompress_by_flag
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.record import CRC_MASK, HEADS, MAGIC_V1, MAGIC_V2
from downrange.protocol.sys_flag import COMPRESSED, INNER_BATCH, NEED_UNWRAP, without_compressed_bit

_HEAD_V4: Final = HEADS[0]
_HEAD_V4_BYTES: Final = HEADS[0].size
_V6_BITS: Final = 3 << 4
_UNWRAP: Final = INNER_BATCH | NEED_UNWRAP
_TOPICS_KEPT_MAX: Final = 4_096


def read_records(
    data: bytes,
    *,
    broker_name: str = "",
    offset_delta: int = 0,
    added: bytes = b"",
    check_crc: bool = True,
) -> list[ReceivedMessage]:
    """The messages of an answer in their order; `RemoteProtocolError` names a damaged one.

    `offset_delta` is what a static topic adds to the offsets of this broker; `added` are properties
    that all messages of the answer get besides their own.
    """
    messages: list[ReceivedMessage] = []
    append = messages.append
    start = 0
    end = len(data)
    topic_bytes, topic = b"", ""
    try:
        while start < end:
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
                raise RemoteProtocolError(f"no record at {start}: magic {magic & 0xFFFFFFFF:#010x}")
            properties_start = topic_end + 2
            next_start = properties_start + (data[topic_end] << 8 | data[topic_end + 1])
            if body_bytes < 0 or next_start != start + size or next_start > end:
                raise RemoteProtocolError(
                    f"record at {start}: size {size} is not the sum of its parts"
                )
            body = data[body_start:body_end]
            if check_crc and body and crc32(body) & CRC_MASK != crc:
                raise _damaged(start, physical_offset)
            if sys_flag & COMPRESSED:
                body = decompress_by_flag(body, sys_flag)
                sys_flag = without_compressed_bit(sys_flag)
            if topic_bytes != data[topic_start:topic_end]:
                topic_bytes = data[topic_start:topic_end]
                topic = _topic(topic_bytes)
            message = ReceivedMessage(
                topic, body, flag, queue_id,
                queue_offset + offset_delta, physical_offset, sys_flag, born_ms, born_host,
                store_ms, store_host, reconsume_times, prepared, size, crc,
                data[properties_start:next_start], broker_name, added,
            )  # fmt: skip
            if sys_flag & _UNWRAP == _UNWRAP:
                messages.extend(_unwrapped(message))
            else:
                append(message)
            start = next_start
    except (struct_error, IndexError):
        raise RemoteProtocolError(
            f"answer of {end} bytes ends within the record at {start}"
        ) from None
    return messages


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


def _damaged(start: int, physical_offset: int) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"the body of the record at {start} (physical offset {physical_offset}) is damaged: "
        f"its checksum differs from the one it carries"
    )
