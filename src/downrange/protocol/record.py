"""The message record: one layout for the commit log, replication and the body of a pull reply.

    0   total size        4   of the whole record, this field included
    4   magic             4   0xDAA320A7 V1, 0xDAA320AB V2
    8   body CRC          4   CRC32 & 0x7FFFFFFF of the body as stored (compressed or not)
    12  queue id          4
    16  flag              4   the user's own
    20  queue offset      8   0 for a record with the PREPARED or ROLLBACK flag
    28  physical offset   8   where the record itself starts in the log
    36  system flag       4   see sys_flag.py
    40  born time         8   ms
    48  born host         8   ip 4 + port 4 (ip 16 + port 4 if system flag bit 4)
    56  store time        8   ms
    64  store host        8   (ip 16 + port 4 if system flag bit 5)
    72  reconsume times   4
    76  prepared offset   8   of a transaction's half message
    84  body length       4
    88  body              n
        topic length      1   (2 in V2)
        topic             n   UTF-8
        properties length 2
        properties        n   see properties.py

Positions are for IPv4 hosts. Only the body is protected by a checksum; the other fields are held
together by the sizes, which must add up, and by the physical offset, which names its own place.
"""

from collections.abc import Iterator
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple
from zlib import crc32

from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError
from downrange.protocol.hosts import HOST_BYTES_V4, HOST_BYTES_V6
from downrange.protocol.properties import PROPERTIES_BYTES_MAX
from downrange.protocol.record_crc import check_record_crc
from downrange.protocol.sys_flag import BORN_HOST_V6, STORE_HOST_V6

MAGIC_V1 = 0xDAA320A7 - (1 << 32)
MAGIC_V2 = 0xDAA320AB - (1 << 32)
MAGIC_BLANK = 0xCBD43194 - (1 << 32)
CRC_MASK = 0x7FFFFFFF
TOPIC_BYTES_MAX_V1 = 127  # the length is a signed byte in Java
TOPIC_BYTES_MAX_V2 = 32_767
_TOPIC_BYTES_MAX = {MAGIC_V1: TOPIC_BYTES_MAX_V1, MAGIC_V2: TOPIC_BYTES_MAX_V2}

BLANK = Struct(">ii")  # size and magic of the filler at the end of a log file
PHYSICAL_OFFSET_POSITION = 28
STORE_TIME_POSITION_V4 = 56  # 12 bytes later when the born host is IPv6
HOST_V6_SHIFT = 12

# By bits 4 and 5 of the system flag: which of born host and store host is IPv6.
_HOST_BYTES = ((8, 8), (20, 8), (8, 20), (20, 20))
HEADS = tuple(Struct(f">iiiiiqqiq{born}sq{store}siqi") for born, store in _HOST_BYTES)
HEAD_V4 = HEADS[0]
# The same in pieces: up to the physical offset, up to the prepared offset; the body's length is
# left. Messages of a batch share the second.
HEAD_START = Struct(">iiiiiqq")
HEAD_MIDDLES = tuple(Struct(f">iq{born}sq{store}siq") for born, store in _HOST_BYTES)
_LENGTH_1 = Struct(">B")
_LENGTH_2 = Struct(">H")
RECORD_BYTES_MIN = HEAD_V4.size + 1 + 2


class Record(NamedTuple):
    """A stored message, field by field; body, topic and properties are as stored."""

    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
    body: bytes
    topic: bytes
    properties: bytes
    magic: int = MAGIC_V1

    @property
    def body_crc(self) -> int:
        """The checksum that the record carries for its body."""
        return crc32(self.body) & CRC_MASK


def topic_field(topic: bytes) -> tuple[int, bytes]:
    """Magic and length-prefixed topic, in the version that the topic's length asks for."""
    if len(topic) <= TOPIC_BYTES_MAX_V1:
        return MAGIC_V1, _LENGTH_1.pack(len(topic)) + topic
    if len(topic) <= TOPIC_BYTES_MAX_V2:
        return MAGIC_V2, _LENGTH_2.pack(len(topic)) + topic
    raise LocalProtocolError(f"a topic of {len(topic)} bytes does not fit into a record")


def tail(body: bytes, topic_with_length: bytes, properties: bytes) -> bytes:
    """What follows the head of a record."""
    return b"".join((body, topic_with_length, _LENGTH_2.pack(len(properties)), properties))


def encode_record(record: Record) -> bytes:
    """The bytes of a record; `LocalProtocolError` if a field cannot be written."""
    if len(record.properties) > PROPERTIES_BYTES_MAX:
        raise LocalProtocolError(
            f"a property text of {len(record.properties)} bytes is over {PROPERTIES_BYTES_MAX}"
        )
    magic, field = topic_field(record.topic)
    if record.magic == MAGIC_V2:
        field = _LENGTH_2.pack(len(record.topic)) + record.topic
    elif record.magic != magic:
        raise LocalProtocolError(
            f"a topic of {len(record.topic)} bytes needs magic {magic & 0xFFFFFFFF:#010x}, "
            f"not {record.magic & 0xFFFFFFFF:#010x}"
        )
    for host, flag in ((record.born_host, BORN_HOST_V6), (record.store_host, STORE_HOST_V6)):
        host_bytes = HOST_BYTES_V6 if record.sys_flag & flag else HOST_BYTES_V4
        if len(host) != host_bytes:
            raise LocalProtocolError(
                f"a host has {len(host)} bytes where system flag {record.sys_flag:#x} asks for "
                f"{host_bytes}"
            )
    head = HEADS[(record.sys_flag >> 4) & 3]
    rest = tail(record.body, field, record.properties)
    try:
        return _pack_head(head, record, head.size + len(rest)) + rest
    except struct_error as error:
        raise LocalProtocolError(f"a number does not fit into its field: {error}") from error


def _pack_head(head: Struct, record: Record, size: int) -> bytes:
    return head.pack(
        size,
        record.magic,
        record.body_crc,
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.physical_offset,
        record.sys_flag,
        record.born_timestamp,
        record.born_host,
        record.store_timestamp,
        record.store_host,
        record.reconsume_times,
        record.prepared_offset,
        len(record.body),
    )


def decode_record(
    data: bytes | memoryview,
    start: int = 0,
    *,
    check_crc: bool = True,
    check_whole: bool = False,
) -> Record:
    """The record that starts at `start`; `RemoteProtocolError` if it is not whole and sound.

    `check_whole` also holds it to the checksum over the whole record, if it carries one; that is
    off unless asked for, see record_crc.py.
    """
    view = memoryview(data)
    available = len(view) - start
    if available < RECORD_BYTES_MIN:
        raise RemoteProtocolError(f"{available} bytes at {start} are too few for a record")
    # The four layouts agree up to the system flag, which says which one it is.
    head = HEADS[(HEAD_V4.unpack_from(view, start)[7] >> 4) & 3]
    if available < head.size:
        raise RemoteProtocolError(f"{available} bytes at {start} are too few for a record's head")
    fields = head.unpack_from(view, start)
    size, magic, crc = fields[:3]
    if magic not in {MAGIC_V1, MAGIC_V2}:
        raise RemoteProtocolError(f"no record at {start}: magic {magic & 0xFFFFFFFF:#010x}")
    if not head.size <= size <= available:
        raise RemoteProtocolError(f"record at {start} claims {size} of {available} bytes")
    body, topic, properties = _parts(
        view[start : start + size], head.size, fields[14], magic, start
    )
    if check_crc and body and crc32(body) & CRC_MASK != crc:
        raise RemoteProtocolError(
            f"body of the record at {start} (physical offset {fields[6]}) is damaged: "
            f"its checksum is {crc32(body) & CRC_MASK:#010x}, not {crc:#010x}"
        )
    if check_whole and check_record_crc(view[start : start + size]) is False:
        raise RemoteProtocolError(
            f"the record at {start} (physical offset {fields[6]}) is damaged: it does not have "
            f"the checksum that its last property says"
        )
    # From queue id to prepared offset the record's fields have the order of the head's.
    return Record._make((*fields[3:14], body, topic, properties, magic))


def _parts(
    record: memoryview, body_start: int, body_length: int, magic: int, start: int
) -> tuple[bytes, bytes, bytes]:
    """Body, topic and properties of a record's bytes, whose lengths must add up to its size."""
    length_bytes = 1 if magic == MAGIC_V1 else 2
    body_end = body_start + body_length
    topic_start = body_end + length_bytes
    if body_length < 0 or topic_start > len(record):
        raise RemoteProtocolError(f"record at {start} claims a body of {body_length} bytes")
    topic_length = int.from_bytes(record[body_end:topic_start], "big")
    topic_end = topic_start + topic_length
    if topic_end + 2 > len(record) or topic_length > _TOPIC_BYTES_MAX[magic]:
        raise RemoteProtocolError(f"record at {start} claims a topic of {topic_length} bytes")
    properties_length = int.from_bytes(record[topic_end : topic_end + 2], "big")
    if topic_end + 2 + properties_length != len(record) or properties_length > PROPERTIES_BYTES_MAX:
        raise RemoteProtocolError(
            f"record at {start}: size {len(record)} is not the sum of its parts "
            f"(body {body_length}, topic {topic_length}, properties {properties_length})"
        )
    return (
        bytes(record[body_start:body_end]),
        bytes(record[topic_start:topic_end]),
        bytes(record[topic_end + 2 :]),
    )


def decode_records(data: bytes | memoryview, *, check_crc: bool = True) -> Iterator[Record]:
    """The records that stand end to end, as in the body of a pull reply."""
    start = 0
    while start < len(data):
        record = decode_record(data, start, check_crc=check_crc)
        yield record
        start += record_size(data, start)


def record_size(data: bytes | memoryview, start: int = 0) -> int:
    """How many bytes the record at `start` claims."""
    return int.from_bytes(data[start : start + 4], "big", signed=True)
