"""The fixed fields of many records at once, as numpy columns.

Records stand end to end and each says how long it is, so finding where they start is a walk, one
step a record. Everything after it is vectorised: all heads are gathered into one table and its
columns are the fields. The layout is that of protocol/record.py.
"""

from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from typing import Final

import numpy as np
import numpy.typing as npt

from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.record import HEAD_V4, HEADS, MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN
from downrange.protocol.sys_flag import BORN_HOST_V6, STORE_HOST_V6

Data = bytes | bytearray | memoryview
Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
Octets = npt.NDArray[np.uint8]

_read_size = Struct(">i").unpack_from
_COMMON: Final = np.dtype(
    [
        ("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("queue_id", ">i4"), ("flag", ">i4"),
        ("queue_offset", ">i8"), ("physical_offset", ">i8"), ("sys_flag", ">i4"),
        ("born_ms", ">i8"), ("after", "V40"),
    ]
)  # fmt: skip
_HOST_BYTES: Final = {False: 8, True: 20}


def _layout(born_is_v6: bool, store_is_v6: bool) -> np.dtype[np.void]:
    return np.dtype(
        [
            *((name, _COMMON[name]) for name in _COMMON.names or () if name != "after"),
            ("born_host", f"V{_HOST_BYTES[born_is_v6]}"),
            ("store_ms", ">i8"),
            ("store_host", f"V{_HOST_BYTES[store_is_v6]}"),
            ("reconsume_times", ">i4"),
            ("prepared_offset", ">i8"),
            ("body_bytes", ">i4"),
        ]
    )


_LAYOUTS: Final = tuple(_layout(bool(bits & 1), bool(bits & 2)) for bits in range(4))
assert [layout.itemsize for layout in _LAYOUTS] == [head.size for head in HEADS]
_V6_BITS: Final = BORN_HOST_V6 | STORE_HOST_V6


@dataclass(frozen=True, slots=True)
class RecordHeads:
    """One row a record. Positions count from the beginning of the data.

    `tables` are the heads by layout: which rows, and their fields. Nearly always there is one
    table and it has all rows.
    """

    octets: Octets
    starts: Longs
    sizes: Longs
    sys_flags: Ints
    tables: tuple[tuple[npt.NDArray[np.intp], npt.NDArray[np.void]], ...]
    body_starts: Longs
    body_ends: Longs
    topic_starts: Longs
    topic_ends: Longs
    properties_starts: Longs

    @property
    def count(self) -> int:
        """How many records."""
        return len(self.starts)

    @property
    def ends(self) -> Longs:
        """Where each record, and its property text, ends."""
        return self.starts + self.sizes

    @property
    def is_uniform(self) -> bool:
        """Whether all records have the same layout."""
        return len(self.tables) == 1

    def longs(self, name: str) -> Longs:
        """A field of all records as 64-bit numbers of this machine."""
        if self.is_uniform:
            return self.tables[0][1][name].astype(np.int64)
        return self._scattered(name)

    def ints(self, name: str) -> Ints:
        """A field of all records as 32-bit numbers of this machine."""
        if self.is_uniform:
            return self.tables[0][1][name].astype(np.int32)
        return self._scattered(name).astype(np.int32)

    def _scattered(self, name: str) -> Longs:
        column = np.empty(self.count, np.int64)
        for rows, table in self.tables:
            column[rows] = table[name]
        return column


def record_starts(data: Data) -> Longs:
    """Where the records of some data start; they stand end to end and the last one is whole."""
    starts: list[int] = []
    append = starts.append
    position, end = 0, len(data)
    try:
        while position < end:
            append(position)
            size = _read_size(data, position)[0]
            if size < RECORD_BYTES_MIN:
                raise RemoteProtocolError(f"record at {position} claims {size} bytes")
            position += size
    except struct_error:
        position = end + 1
    if position != end:
        raise RemoteProtocolError(f"{end} bytes of records end within the one at {starts[-1]}")
    return np.array(starts, np.int64)


def read_heads(data: Data, starts: Longs) -> RecordHeads:
    """The heads of the records that start there, checked; `RemoteProtocolError` names a bad one."""
    octets = np.frombuffer(data, np.uint8)
    _check_room(octets, starts, HEAD_V4.size)
    common = _gathered(octets, starts, _COMMON)
    sys_flags = common["sys_flag"].astype(np.int32)
    sizes = common["size"].astype(np.int64)
    magics = common["magic"]
    is_v2 = magics == MAGIC_V2
    _check(starts, (magics == MAGIC_V1) | is_v2, "no record, its magic is another one")
    _check(starts, starts + sizes <= len(octets), "the record claims more bytes than there are")
    layouts = (sys_flags & _V6_BITS) >> 4
    tables = _tables(octets, starts, common, layouts)
    body_bytes = np.empty(len(starts), np.int64)
    head_bytes = np.empty(len(starts), np.int64)
    for rows, table in tables:
        body_bytes[rows] = table["body_bytes"]
        head_bytes[rows] = table.dtype.itemsize
    body_starts = starts + head_bytes
    body_ends = body_starts + body_bytes
    ends = starts + sizes
    _check(starts, (body_bytes >= 0) & (body_ends + 3 + is_v2 <= ends), "its body does not fit")
    topic_starts = body_ends + 1 + is_v2
    topic_bytes = octets[body_ends].astype(np.int64)
    if is_v2.any():
        wide = topic_bytes * 256 + octets[body_ends + 1]
        topic_bytes = np.where(is_v2, wide, topic_bytes)
    topic_ends = topic_starts + topic_bytes
    _check(starts, topic_ends + 2 <= ends, "its topic does not fit")
    properties_bytes = octets[topic_ends].astype(np.int64) * 256 + octets[topic_ends + 1]
    properties_starts = topic_ends + 2
    _check(
        starts, properties_starts + properties_bytes == ends, "its size is not the sum of its parts"
    )
    return RecordHeads(
        octets, starts, sizes, sys_flags, tables,
        body_starts, body_ends, topic_starts, topic_ends, properties_starts,
    )  # fmt: skip


def _tables(
    octets: Octets, starts: Longs, common: npt.NDArray[np.void], layouts: Ints
) -> tuple[tuple[npt.NDArray[np.intp], npt.NDArray[np.void]], ...]:
    every = np.arange(len(starts), dtype=np.intp)
    if not layouts.any():
        # The common part has the length of the shortest head, so this one is complete.
        return ((every, common.view(_LAYOUTS[0])),)
    tables = []
    for bits in np.unique(layouts).tolist():
        rows = np.flatnonzero(layouts == bits)
        layout = _LAYOUTS[bits]
        _check_room(octets, starts[rows], layout.itemsize)
        tables.append((rows, _gathered(octets, starts[rows], layout)))
    return tuple(tables)


def _gathered(octets: Octets, starts: Longs, layout: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """A table of what stands at these places: one copy of `itemsize` bytes a row."""
    places = len(octets) - layout.itemsize + 1
    if places <= 0:
        return np.empty(0, layout)
    windows = np.ndarray((places,), f"V{layout.itemsize}", octets, strides=(1,))
    return windows[starts].view(layout)


def _check_room(octets: Octets, starts: Longs, head_bytes: int) -> None:
    _check(starts, starts + head_bytes <= len(octets), "too few bytes are left for its head")


def _check(starts: Longs, is_sound: npt.NDArray[np.bool_], what: str) -> None:
    if not is_sound.all():
        at = int(starts[int(np.argmin(is_sound))])
        raise RemoteProtocolError(f"record at {at}: {what}")
