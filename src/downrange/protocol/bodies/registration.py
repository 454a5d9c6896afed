"""What a broker tells the name server about itself: the body of REGISTER_BROKER.

It travels as JSON, or compressed when the header says so. The compressed form is zlib over

    length 4 | data version, JSON
    count 4  | per topic:   length 4 | topic line
    length 4 | filter servers, JSON list
    count 4  | per mapping: length 4 | queue mapping, JSON      (since 5.0)
"""

import struct
import zlib
from typing import Final

import msgspec

from downrange.model.topics import DataVersion, TopicConfig
from downrange.protocol.bodies.json_body import Body, decode_body, encode_body
from downrange.protocol.bodies.route import QueueMapping
from downrange.protocol.bodies.topics import decode_topic_line, encode_topic_line
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.integers import Int32, Int64
from downrange.protocol.json_text import write_json

PLAIN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Room for half a million topics; a small body must not unpack into all of our memory."""

_INT: Final = struct.Struct(">i")


class MappedQueue(Body, frozen=True, kw_only=True):
    """One stretch of a logic queue of a static topic: which queue of which broker holds it."""

    gen: Int32 = 0
    queue_id: Int32 = 0
    bname: str | None = None
    logic_offset: Int64 = 0
    start_offset: Int64 = 0
    end_offset: Int64 = -1
    time_of_start: Int64 = -1
    time_of_end: Int64 = -1


class QueueMappingDetail(QueueMapping, frozen=True, kw_only=True):
    """A queue mapping with the history of each queue."""

    hosted_queues: dict[Int32, tuple[MappedQueue, ...]] | None = None


class TopicTable(Body, frozen=True, kw_only=True):
    """All topics of a broker, with the version of the table."""

    topic_config_table: dict[str, TopicConfig] = msgspec.field(default_factory=dict)
    data_version: DataVersion = DataVersion()
    topic_queue_mapping_info_map: dict[str, QueueMapping] = msgspec.field(default_factory=dict)
    topic_queue_mapping_detail_map: dict[str, QueueMappingDetail] = msgspec.field(
        default_factory=dict
    )
    mapping_data_version: DataVersion = DataVersion()


class Registration(Body, frozen=True, kw_only=True):
    """Body of REGISTER_BROKER."""

    topic_config_serialize_wrapper: TopicTable = TopicTable()
    filter_server_list: tuple[str, ...] = ()


def body_crc(body: bytes) -> int:
    """Give the checksum that the header carries as bodyCrc32: of the bytes as they travel."""
    return zlib.crc32(body) & 0x7FFF_FFFF


def encode_registration(registration: Registration, *, compressed: bool) -> bytes:
    """Write the body in the form the header names."""
    if not compressed:
        return encode_body(registration)
    table = registration.topic_config_serialize_wrapper
    parts = [_sized(encode_body(table.data_version)), _INT.pack(len(table.topic_config_table))]
    parts += [
        _sized(encode_topic_line(topic).encode()) for topic in table.topic_config_table.values()
    ]
    parts.append(_sized(write_json(registration.filter_server_list)))
    mappings = table.topic_queue_mapping_info_map.values()
    parts.append(_INT.pack(len(mappings)))
    parts += [_sized(encode_body(mapping)) for mapping in mappings]
    return zlib.compress(b"".join(parts), zlib.Z_BEST_COMPRESSION)


def decode_registration(body: bytes, *, compressed: bool) -> Registration:
    """Read the body in the form the header names."""
    if not compressed:
        return decode_body(Registration, body)
    parts = _Parts(_unpacked(body))
    version = decode_body(DataVersion, parts.sized())
    topics = {}
    for _ in range(parts.count()):
        topic = decode_topic_line(parts.sized().decode("utf-8", "replace"))
        topics[topic.topic_name] = topic
    filters = decode_body(tuple[str, ...], parts.sized())
    mappings = {}
    if parts.remaining:  # brokers before 5.0 end here
        for _ in range(parts.count()):
            mapping = decode_body(QueueMapping, parts.sized())
            mappings[mapping.topic or ""] = mapping
    table = TopicTable(
        data_version=version,
        topic_config_table=topics,
        topic_queue_mapping_info_map=mappings,
    )
    return Registration(topic_config_serialize_wrapper=table, filter_server_list=filters)


class _Parts:
    """A cursor over the unpacked form."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def remaining(self) -> int:
        return len(self._data) - self._position

    def count(self) -> int:
        return self._int("count", bytes_each=_INT.size)

    def sized(self) -> bytes:
        length = self._int("length", bytes_each=1)
        self._position += length
        return self._data[self._position - length : self._position]

    def _int(self, what: str, *, bytes_each: int) -> int:
        if self.remaining < _INT.size:
            raise RemoteProtocolError(f"register body ends where a {what} should be")
        (number,) = _INT.unpack_from(self._data, self._position)
        assert isinstance(number, int)
        self._position += _INT.size
        if not 0 <= number * bytes_each <= self.remaining:
            raise RemoteProtocolError(
                f"register body has a {what} of {number} before its last {self.remaining} bytes"
            )
        return number


def _sized(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _unpacked(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(body, PLAIN_BYTES_MAX)
    except zlib.error as error:
        raise RemoteProtocolError(f"register body is not zlib: {error}") from None
    if not inflater.eof:
        raise RemoteProtocolError(
            f"register body is cut short or unpacks to more than {PLAIN_BYTES_MAX} bytes"
        )
    return plain
