"""Records as they stand in a log or in the answer to a pull -> one Arrow batch of messages.

A column that nobody asked for is not decoded. What is rare (compressed bodies, inner batches, IPv6
and IPv4 hosts side by side) is done record by record; all the rest is vectorised.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from downrange.model.topics import MessageQueue
from downrange.protocol.batch import unwrap_inner_batch
from downrange.protocol.errors import ProtocolError, RemoteProtocolError
from downrange.protocol.hosts import decode_host, format_address
from downrange.protocol.property_names import KEYS, TAGS, UNIQUE_KEY
from downrange.protocol.record import CRC_MASK, Record, decode_record, encode_record
from downrange.protocol.sys_flag import COMPRESSED, INNER_BATCH, NEED_UNWRAP
from downrange.spark.arrow_slices import fixed, sliced, texts
from downrange.spark.columns import (
    ALL_COLUMNS,
    INVALID_REASON,
    PROPERTY_MAP,
    SINK_ID,
    TIMESTAMP,
    arrow_schema,
)
from downrange.spark.invalid_records import BodyDecoding, InflatedTooMuchError, InvalidMessages
from downrange.spark.property_columns import PropertyColumns
from downrange.spark.record_heads import Data, Longs, RecordHeads, read_heads, record_starts

SINK_ID_PROPERTY: Final = "__DOWNRANGE_SINK_ID"
"""Our sink stamps each message with queryId:batchId:partition:row under this name."""

_PROPERTY_OF: Final = {
    "keys": KEYS,
    "tags": TAGS,
    "uniqueKey": UNIQUE_KEY,
    SINK_ID: SINK_ID_PROPERTY,
}
_UNWRAP: Final = INNER_BATCH | NEED_UNWRAP
_MILLIS_MAX: Final = (1 << 63) // 1000 - 1
_HEX_PAIRS: Final = np.frombuffer(
    b"".join(b"%02X" % octet for octet in range(256)), np.dtype(np.uint16)
)


class RecordDecoder:
    """Decodes records into the columns named in `fields`, in that order.

    Holds nothing between two calls. Without `include_properties` the map is null. `check_crc`
    compares each body with the checksum that its record carries. A record whose body cannot be
    decoded is an `InvalidRecordError`, or has a null body and an `invalidReason`.
    """

    def __init__(
        self,
        fields: Sequence[str] = ALL_COLUMNS,
        *,
        include_properties: bool = True,
        check_crc: bool = False,
        invalid: InvalidMessages = InvalidMessages.FAIL,
    ) -> None:
        self.schema = arrow_schema(fields)
        self._fields = tuple(fields)
        self._include_properties = include_properties
        self._check_crc = check_crc
        self._invalid = invalid

    def batches(
        self,
        data: Data,
        heads: RecordHeads,
        *,
        broker_name: str | None = None,
        offset_delta: int = 0,
    ) -> Iterator[pa.RecordBatch]:
        """The messages of these records, in several batches if decompressed bodies are large."""
        try:
            yield self.decode_heads(
                data,
                heads,
                broker_name=broker_name,
                offset_delta=offset_delta,
                check_crc=self._check_crc,
            )
        except InflatedTooMuchError:
            half = heads.count // 2
            for part in (heads.starts[:half], heads.starts[half:]):
                yield from self.batches(
                    data,
                    read_heads(data, part),
                    broker_name=broker_name,
                    offset_delta=offset_delta,
                )

    def decode(
        self, data: Data, *, broker_name: str | None = None, offset_delta: int = 0
    ) -> pa.RecordBatch:
        """The messages of records that stand end to end, as in the answer to a pull."""
        return self.decode_at(
            data, record_starts(data), broker_name=broker_name, offset_delta=offset_delta
        )

    def decode_at(
        self,
        data: Data,
        starts: Longs,
        *,
        broker_name: str | None = None,
        offset_delta: int = 0,
    ) -> pa.RecordBatch:
        """The messages of the records that start at these places, which ascend.

        `offset_delta` is what a static topic adds to the offsets of this broker.
        """
        heads = read_heads(data, starts)
        return self.decode_heads(
            data,
            heads,
            broker_name=broker_name,
            offset_delta=offset_delta,
            check_crc=self._check_crc,
        )

    def unreadable(self, queue: MessageQueue, queue_offset: int, reason: str) -> pa.RecordBatch:
        """A row for a record that cannot be read: where it is and why, everything else is null."""
        known: dict[str, object] = {
            "topic": queue.topic,
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "queueOffset": queue_offset,
            INVALID_REASON: reason,
        }
        return pa.RecordBatch.from_pylist([known], schema=self.schema)

    def decode_heads(
        self,
        data: Data,
        heads: RecordHeads,
        *,
        broker_name: str | None = None,
        offset_delta: int = 0,
        check_crc: bool = False,
    ) -> pa.RecordBatch:
        """The messages of records whose heads are read already."""
        decoding = BodyDecoding(self._invalid, is_single=heads.count == 1)
        if check_crc:
            _check_crcs(data, heads, offset_delta, decoding)
        if (heads.sys_flags & _UNWRAP == _UNWRAP).any():
            data = _unwrapped(data, heads, offset_delta, decoding)
            heads = read_heads(data, record_starts(data))
        rows = _Rows(data, heads, broker_name, offset_delta, self._include_properties, decoding)
        return pa.RecordBatch.from_arrays(
            [rows.column(name) for name in self._fields], schema=self.schema
        )


class _Rows:
    """The columns of some records, each made when it is asked for."""

    def __init__(
        self,
        data: Data,
        heads: RecordHeads,
        broker_name: str | None,
        offset_delta: int,
        include_properties: bool,
        decoding: BodyDecoding,
    ) -> None:
        self._decoding = decoding
        self._bodies: pa.Array | None = None
        self._content = pa.py_buffer(data)
        self._heads = heads
        self._broker_name = broker_name
        self._offset_delta = offset_delta
        self._include_properties = include_properties
        self._properties: PropertyColumns | None = None
        self._makers: dict[str, Callable[[], pa.Array]] = {
            "topic": self._topic,
            "brokerName": lambda: pa.repeat(pa.scalar(broker_name, pa.string()), heads.count),
            "queueId": lambda: pa.array(heads.ints("queue_id")),
            "queueOffset": lambda: pa.array(heads.longs("queue_offset") + offset_delta),
            "body": self._body,
            INVALID_REASON: self._invalid_reason,
            "bornTimestamp": lambda: _timestamps(heads.longs("born_ms")),
            "storeTimestamp": lambda: _timestamps(heads.longs("store_ms")),
            "msgId": self._message_id,
            "reconsumeTimes": lambda: pa.array(heads.ints("reconsume_times")),
            "bornHost": self._born_host,
            "sysFlag": lambda: pa.array(heads.sys_flags & ~COMPRESSED),
            "properties": self._property_map,
        }

    def column(self, name: str) -> pa.Array:
        if name in _PROPERTY_OF:
            return self._property_texts().column(_PROPERTY_OF[name])
        return self._makers[name]()

    def _topic(self) -> pa.Array:
        heads = self._heads
        return texts(sliced(self._content, heads.topic_starts, heads.topic_ends))

    def _body(self) -> pa.Array:
        if self._bodies is None:
            self._bodies = self._decoded_bodies()
        return self._bodies

    def _decoded_bodies(self) -> pa.Array:
        heads, decoding = self._heads, self._decoding
        bodies = sliced(self._content, heads.body_starts, heads.body_ends)
        is_packed = heads.sys_flags & COMPRESSED != 0
        if not is_packed.any() and not decoding.reasons:
            return bodies
        offsets = heads.longs("queue_offset") + self._offset_delta
        replaced: dict[int, bytes | None] = dict.fromkeys(decoding.reasons)
        for row in np.flatnonzero(is_packed).tolist():
            if row not in replaced:
                replaced[row] = decoding.body(
                    row, int(offsets[row]), bodies[row].as_py(), int(heads.sys_flags[row])
                )
        rows = sorted(replaced)
        is_replaced = np.zeros(heads.count, np.bool_)
        is_replaced[rows] = True
        values = pa.array([replaced[row] for row in rows], pa.binary())
        return pc.replace_with_mask(bodies, pa.array(is_replaced), values)

    def _invalid_reason(self) -> pa.Array:
        self._body()
        reasons = self._decoding.reasons
        if not reasons:
            return pa.nulls(self._heads.count, pa.string())
        return pa.array([reasons.get(row) for row in range(self._heads.count)], pa.string())

    def _message_id(self) -> pa.Array:
        heads = self._heads
        if not heads.is_uniform:
            places = heads.longs("physical_offset").tolist()
            return pa.array(
                [
                    (host + place.to_bytes(8, "big", signed=True)).hex().upper()
                    for host, place in zip(self._hosts("store_host"), places, strict=True)
                ],
                pa.string(),
            )
        table = heads.tables[0][1]
        host_bytes = table.dtype["store_host"].itemsize
        octets = np.empty((heads.count, host_bytes + 8), np.uint8)
        octets[:, :host_bytes] = _octets_of(table["store_host"], host_bytes)
        octets[:, host_bytes:] = _octets_of(table["physical_offset"], 8)
        return fixed(_HEX_PAIRS[octets].reshape(-1).view(np.uint8), 2 * (host_bytes + 8))

    def _born_host(self) -> pa.Array:
        heads = self._heads
        if heads.is_uniform:
            column = heads.tables[0][1]["born_host"]
            content = pa.py_buffer(np.ascontiguousarray(column))
            hosts = pa.Array.from_buffers(
                pa.binary(column.dtype.itemsize), heads.count, [None, content]
            )
        else:
            hosts = pa.array(self._hosts("born_host"), pa.binary())
        coded = hosts.dictionary_encode()
        names = [_host_text(host) for host in coded.dictionary.to_pylist()]
        return pa.array(names, pa.string()).take(coded.indices)

    def _hosts(self, name: str) -> list[bytes]:
        hosts: list[bytes] = [b""] * self._heads.count
        for rows, table in self._heads.tables:
            for row, host in zip(rows.tolist(), table[name].tolist(), strict=True):
                hosts[row] = host
        return hosts

    def _property_map(self) -> pa.Array:
        if not self._include_properties:
            return pa.nulls(self._heads.count, PROPERTY_MAP)
        return self._property_texts().map()

    def _property_texts(self) -> PropertyColumns:
        if self._properties is None:
            heads = self._heads
            self._properties = PropertyColumns(
                sliced(self._content, heads.properties_starts, heads.ends)
            )
        return self._properties


def _timestamps(millis: Longs) -> pa.Array:
    """Microseconds; a time that a producer made up and that no such number holds is null."""
    is_far = (millis > _MILLIS_MAX) | (millis < -_MILLIS_MAX)
    micros = millis * 1000
    if is_far.any():
        return pa.array(micros, pa.int64(), mask=is_far).cast(TIMESTAMP)
    return pa.Array.from_buffers(TIMESTAMP, len(micros), [None, pa.py_buffer(micros)])


def _octets_of(column: npt.NDArray[np.void], width: int) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(column).view(np.uint8).reshape(-1, width)


def _host_text(host: bytes) -> str | None:
    try:
        return format_address(*decode_host(host))
    except RemoteProtocolError:
        return None  # a producer may say what it likes of itself


def _check_crcs(data: Data, heads: RecordHeads, offset_delta: int, decoding: BodyDecoding) -> None:
    view = memoryview(data)
    wanted = heads.ints("crc").tolist()
    spans = zip(heads.body_starts.tolist(), heads.body_ends.tolist(), wanted, strict=True)
    for row, (start, end, crc) in enumerate(spans):
        if start != end and crc32(view[start:end]) & CRC_MASK != crc:
            offset = int(heads.longs("queue_offset")[row]) + offset_delta
            decoding.reject(
                row, offset, "its body is damaged: the checksum differs from the stored one"
            )


def _unwrapped(data: Data, heads: RecordHeads, offset_delta: int, decoding: BodyDecoding) -> bytes:
    """The records, with those that hold a batch replaced by one for each of its messages.

    A batch that cannot be decoded stays one record, which is invalid; `reasons` names the new rows.
    """
    view = memoryview(data)
    parts: list[bytes | memoryview] = []
    known = dict(decoding.reasons)
    decoding.reasons.clear()
    for row, (start, end, flags) in enumerate(
        zip(heads.starts.tolist(), heads.ends.tolist(), heads.sys_flags.tolist(), strict=True)
    ):
        if row in known:
            decoding.reasons[len(parts)] = known[row]
        if flags & _UNWRAP != _UNWRAP:
            parts.append(view[start:end])
            continue
        outer = decode_record(view[start:end], check_crc=False)
        plain = outer._replace(sys_flag=flags & ~(_UNWRAP | COMPRESSED))
        if row in known:
            parts.append(encode_record(plain))
            continue
        try:
            parts.extend(_messages_of(outer, plain, decoding))
        except ProtocolError as error:
            decoding.reject(len(parts), outer.queue_offset + offset_delta, str(error))
            parts.append(encode_record(plain))
    return b"".join(parts)


def _messages_of(outer: Record, plain: Record, decoding: BodyDecoding) -> list[bytes]:
    """A record for each message of a batch."""
    flags = outer.sys_flag
    body = decoding.decompress(outer.body, flags) if flags & COMPRESSED else outer.body
    return [
        encode_record(
            plain._replace(flag=flag, queue_offset=offset, body=inner, properties=properties)
        )
        for offset, (flag, inner, properties) in unwrap_inner_batch(body, outer.queue_offset)
    ]
