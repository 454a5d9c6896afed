"""Pieces of one run of bytes as an Arrow column, without a Python object a piece.

Arrow's binary array has one offset between two neighbours, so pieces with gaps between them do not
fit. But the bounds of pieces and gaps alternate: taken as an array of pieces and gaps, which costs
nothing, its every second value is a piece, and Arrow copies those in one call.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from downrange.protocol.java_text import decode_utf8

Longs = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]


def sliced(
    content: pa.Buffer,
    starts: Longs,
    ends: Longs,
    *,
    rows: Rows | None = None,
    count: int | None = None,
) -> pa.Array:
    """The pieces from `starts` to `ends`, ascending and apart, as a binary column.

    With `rows` they go to these rows of `count`, and the others are null.
    """
    pieces = len(starts)
    total = pieces if count is None else count
    if not pieces:
        return pa.nulls(total, pa.binary())
    bounds = np.empty(2 * pieces, np.int32)
    bounds[0::2] = starts
    bounds[1::2] = ends
    both = pa.Array.from_buffers(pa.binary(), 2 * pieces - 1, [None, pa.py_buffer(bounds), content])
    chosen = np.arange(0, 2 * pieces, 2, dtype=np.int32)
    if rows is None or pieces == total:
        return both.take(pa.array(chosen))
    places = np.zeros(total, np.int32)
    places[rows] = chosen
    is_null = np.ones(total, np.bool_)
    is_null[rows] = False
    return both.take(pa.array(places, mask=is_null))


def texts(values: pa.Array) -> pa.Array:
    """Bytes as strings; what is no UTF-8 becomes what Java makes of it."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        decoded = [None if value is None else decode_utf8(value) for value in values.to_pylist()]
        return pa.array(decoded, pa.string())


def fixed(content: npt.NDArray[np.uint8], width: int) -> pa.Array:
    """Strings of equal length that stand end to end."""
    count = len(content) // width
    bounds = np.arange(0, width * (count + 1), width, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(content)]
    )
