"""Rows of an Arrow batch -> bodies of batch sends, in a handful of passes over all rows.

Every row becomes a message as `protocol/batch` draws it; the messages lie one after the other, so
that any run of rows is a batch body without copying. No Python code runs for a single row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from downrange.protocol import property_names as names
from downrange.protocol.batch import MESSAGE_BYTES_MIN
from downrange.protocol.properties import PROPERTIES_BYTES_MAX
from downrange.protocol.unique_id import UniqueIdGenerator
from downrange.spark import write_columns as columns
from downrange.spark.arrow_records import SINK_ID_PROPERTY

ROWS_MAX: Final = 32_768  # encoded at once; half of what the counter of unique ids tells apart

_HEAD_BYTES: Final = 20
_LENGTH_BYTES: Final = 2
_COUNTER_TEXTS: Final = np.frombuffer(
    b"".join(b"%04X" % counter for counter in range(1 << 16)), dtype="S4"
)
_NAME_END: Final = b"\x01"
_VALUE_END: Final = b"\x02"
_NAME_END_CODE: Final = 1
_VALUE_END_CODE: Final = 2
_RESERVED: Final = pa.array(
    sorted({name.encode() for name in names.RESERVED} | {SINK_ID_PROPERTY.encode(), b""}),
    pa.binary(),
)

Ints = NDArray[np.int64]
Cells = NDArray[np.int32] | NDArray[np.int16] | NDArray[np.bytes_]


class SinkRowError(ValueError):
    """A row that cannot be a message; the text says which and why."""


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Message i is `data[offsets[i]:offsets[i + 1]]`; `rows` are the numbers of the rows."""

    data: memoryview
    offsets: Ints
    body_lengths: Ints
    rows: Ints

    def body(self, index: int) -> bytes:
        """The body of one message."""
        start = int(self.offsets[index]) + _HEAD_BYTES
        return bytes(self.data[start : start + int(self.body_lengths[index])])

    def property_text(self, index: int) -> bytes:
        """Its property text."""
        start = int(self.offsets[index]) + _HEAD_BYTES + int(self.body_lengths[index])
        return bytes(self.data[start + _LENGTH_BYTES : int(self.offsets[index + 1])])


class RowEncoder:
    """Encodes the rows of one task; `stamp` is what their sink ids begin with, empty for none."""

    def __init__(
        self,
        unique_ids: UniqueIdGenerator,
        *,
        stamp: str,
        namespace: str = "",
        drops_reserved: bool = False,
    ) -> None:
        self._unique_ids = unique_ids
        self._drops_reserved = drops_reserved
        self._stamp = f"{SINK_ID_PROPERTY}\x01{stamp}".encode() if stamp else b""
        self._instance = f"{names.INSTANCE_ID}\x01{namespace}\x02".encode() if namespace else b""

    def encode(self, batch: pa.RecordBatch, rows: Ints) -> EncodedRows:
        """All rows of a batch of at most ROWS_MAX, which have these numbers in the task."""
        count = batch.num_rows
        assert 0 < count <= ROWS_MAX
        named_body = columns.BODY in batch.schema.names
        body = binary_column(batch, columns.BODY if named_body else columns.VALUE)
        body_lengths = _lengths(body)
        refuse_row(
            (body_lengths == 0) | _nulls(body),
            rows,
            "has no body (empty or null), and brokers take no such message",
        )
        pieces = [*self._properties(batch, rows), *self._stamps(count, rows)]
        text_lengths: Ints = np.zeros(count, dtype=np.int64)
        for piece in pieces:
            text_lengths += len(piece) if isinstance(piece, bytes) else _lengths(piece)
        refuse_row(
            text_lengths > PROPERTIES_BYTES_MAX,
            rows,
            f"has over {PROPERTIES_BYTES_MAX} bytes of properties",
        )
        heads = np.zeros((count, 5), dtype=">i4")
        heads[:, 0] = MESSAGE_BYTES_MIN + body_lengths + text_lengths
        heads[:, 4] = body_lengths
        whole = _joined(
            _fixed(heads, _HEAD_BYTES),
            body,
            _fixed(text_lengths.astype(">i2"), _LENGTH_BYTES),
            *pieces,
        )
        offsets = np.frombuffer(whole.buffers()[1], dtype=np.int32, count=count + 1)
        data = memoryview(whole.buffers()[2]).cast("B")
        return EncodedRows(data, offsets.astype(np.int64), body_lengths, rows)

    def _properties(self, batch: pa.RecordBatch, rows: Ints) -> Sequence[pa.Array | bytes]:
        pieces: list[pa.Array | bytes] = []
        if columns.PROPERTIES in batch.schema.names:
            pieces.append(self._user_properties(batch.column(columns.PROPERTIES), rows))
        for column, name in (
            (columns.TAGS, names.TAGS),
            (columns.KEYS, names.KEYS),
            (columns.ORDERING_KEY, names.SHARDING_KEY),
        ):
            text = binary_column(batch, column)
            if text is not None:
                _refuse_separators(text, rows, f"column {column!r}")
                # Readers drop a property without a value, so none is written.
                text = pc.if_else(pc.equal(pc.binary_length(text), 0), None, text)
                pieces.append(_property(name, text))
        for column, name in (
            (columns.DELAY_LEVEL, names.DELAY_LEVEL),
            (columns.DELAY_TIME_MS, names.TIMER_DELAY_MS),
        ):
            number = positive_numbers(batch, column)
            if number is not None:
                text = pc.cast(pc.cast(pa.array(number), pa.string()), pa.binary())
                pieces.append(_property(name, pc.if_else(pa.array(number > 0), text, None)))
        return pieces

    def _stamps(self, count: int, rows: Ints) -> Sequence[pa.Array | bytes]:
        head, first = self._unique_ids.reserve(count)
        counters = _COUNTER_TEXTS[(first + np.arange(count)) & 0xFFFF]
        before = self._instance + f"{names.UNIQUE_KEY}\x01{head}".encode()
        ids = _fixed(counters, 4)
        if not self._stamp:
            return [before, ids, _VALUE_END]
        numbers = pc.cast(pc.cast(pa.array(rows), pa.string()), pa.binary())
        return [before, ids, _VALUE_END + self._stamp, numbers, _VALUE_END]

    def _user_properties(self, maps: pa.MapArray, rows: Ints) -> pa.Array:
        """The text of each row's map. Entries lie row by row, so the rows are runs of them."""
        offsets = maps.offsets.to_numpy().astype(np.int64)
        lengths = np.diff(offsets)
        start, end = int(offsets[0]), int(offsets[-1])
        keys = pc.cast(maps.keys[start:end], pa.binary())
        values = pc.cast(maps.items[start:end], pa.binary())
        owners = np.repeat(np.arange(len(maps)), lengths)
        is_kept = ~_nulls(values)
        if maps.null_count:
            is_kept &= ~_nulls(maps)[owners]
        is_reserved = pc.is_in(keys, _RESERVED).to_numpy(zero_copy_only=False) & is_kept
        if is_reserved.any():
            if not self._drops_reserved:
                self._refuse_reserved(keys, owners, is_reserved, rows)
            is_kept &= ~is_reserved
        if not is_kept.all():
            mask = pa.array(is_kept)
            keys, values, owners = keys.filter(mask), values.filter(mask), owners[is_kept]
        for texts in (keys, values):
            _refuse_separators(texts, rows[owners], "column 'properties'")
        entries = _joined(keys, _NAME_END, values, _VALUE_END)
        entry_offsets = np.frombuffer(entries.buffers()[1], dtype=np.int32, count=len(entries) + 1)
        kept_offsets = np.zeros(len(maps) + 1, dtype=np.int64)
        np.cumsum(np.bincount(owners, minlength=len(maps)), out=kept_offsets[1:])
        return pa.Array.from_buffers(
            pa.binary(),
            len(maps),
            [None, pa.py_buffer(entry_offsets[kept_offsets]), entries.buffers()[2]],
        )

    @staticmethod
    def _refuse_reserved(
        keys: pa.Array, owners: Ints, is_reserved: NDArray[np.bool_], rows: Ints
    ) -> None:
        first = int(np.argmax(is_reserved))
        name = keys[first].as_py().decode()
        said = f"property {name!r}, which belongs to RocketMQ" if name else "a nameless property"
        raise SinkRowError(
            f"row {rows[owners[first]]} has {said}; use a column for it, "
            f"or the option reservedProperties=drop to leave such properties out"
        )


def binary_column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """A column of text or bytes as bytes; None if it is not there."""
    if name not in batch.schema.names:
        return None
    return pc.cast(batch.column(name), pa.binary())


def positive_numbers(batch: pa.RecordBatch, name: str) -> Ints | None:
    """A column of whole numbers, null as 0; None if it is not there."""
    if name not in batch.schema.names:
        return None
    filled = pc.fill_null(pc.cast(batch.column(name), pa.int64()), 0)
    numbers: Ints = filled.to_numpy(zero_copy_only=False)
    return numbers


def refuse_row(is_wrong: NDArray[np.bool_], rows: Ints, reason: str) -> None:
    """Raise for the first row that is wrong."""
    if is_wrong.any():
        raise SinkRowError(f"row {rows[int(np.argmax(is_wrong))]} {reason}")


def _refuse_separators(texts: pa.Array, rows: Ints, where: str) -> None:
    data = texts.buffers()[2]
    if data is None:
        return
    codes = np.frombuffer(data, dtype=np.uint8)
    if codes.size == 0 or codes.min() > _VALUE_END_CODE:
        return
    for separator in (_NAME_END, _VALUE_END):
        found = pc.fill_null(pc.match_substring(texts, separator), False)
        refuse_row(
            found.to_numpy(zero_copy_only=False),
            rows,
            f"has the character 0x01 or 0x02 in {where}; they separate properties",
        )


def _property(name: str, values: pa.Array) -> pa.Array:
    """The entry for each row; nothing where there is no value."""
    return pc.binary_join_element_wise(
        f"{name}\x01".encode(), values, _VALUE_END, b"", null_handling="emit_null"
    )


def _joined(*pieces: pa.Array | bytes) -> pa.Array:
    return pc.binary_join_element_wise(*pieces, b"", null_handling="replace", null_replacement=b"")


def _lengths(texts: pa.Array) -> Ints:
    lengths = pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False)
    wide: Ints = lengths.astype(np.int64)
    return wide


def _nulls(values: pa.Array) -> NDArray[np.bool_]:
    flags: NDArray[np.bool_] = values.is_null().to_numpy(zero_copy_only=False)
    return flags


def _fixed(cells: Cells, width: int) -> pa.Array:
    """Cells of one width as texts of that length, without a copy."""
    count = len(cells)
    ends = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(cells))]
    )
