"""Property texts of many messages at once: single properties as columns, or all as a map.

The texts stand end to end in one run of bytes. Its separators are found in one pass, which gives
all entries of all messages; looking for a name means comparing the beginnings of entries. The
rules are those of protocol/properties.py: an entry without 0x01, without a name or without a value
is none, and the last of two equal names wins.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from downrange.spark.arrow_slices import sliced, texts
from downrange.spark.columns import PROPERTY_MAP
from downrange.spark.record_heads import Longs, Octets

_NAME_END: Final = 1
_VALUE_END: Final = 2
# Sums of so many powers of two stay below 2**63 for the longest property text there is.
_BITS_MAX: Final = 48


class PropertyColumns:
    """The property texts of some messages; `texts_of` is a binary column without nulls."""

    def __init__(self, texts_of: pa.Array) -> None:
        offsets, content = texts_of.buffers()[1:]
        count = len(texts_of)
        self._count = count
        bounds = np.frombuffer(offsets, np.int32)[texts_of.offset :][: count + 1]
        first, last = int(bounds[0]), int(bounds[-1])
        self._content = pa.py_buffer(b"") if content is None else content.slice(first, last - first)
        self._octets: Octets = np.frombuffer(self._content, np.uint8)
        self._bounds = bounds.astype(np.int64) - first
        self._starts, self._ends = self._entries()
        self._owners = np.searchsorted(self._bounds, self._starts, side="right") - 1

    def _entries(self) -> tuple[Longs, Longs]:
        """Where entries begin and end; an end of a message ends its last entry too."""
        length = len(self._octets)
        is_end = self._octets == _VALUE_END
        is_start = np.zeros(length + 1, np.bool_)
        is_start[1:] = is_end
        is_start[self._bounds] = True
        starts = np.flatnonzero(is_start[:length]).astype(np.int64)
        following = np.append(starts[1:], length)
        ends = following - (is_end[following - 1] if length else 0)
        return starts, ends

    def column(self, name: str) -> pa.Array:
        """The values of one property as strings, null where a message has none."""
        start = name.encode() + b"\x01"
        # Nothing of the name may be cut off, and a value has at least one byte.
        found = np.flatnonzero(self._ends - self._starts > len(start))
        for position, octet in enumerate(start):
            if not len(found):
                break
            found = found[self._octets[self._starts[found] + position] == octet]
        chosen = np.full(self._count, -1, np.int64)
        # Of several assignments to one place the last one stays, which is the rule for names.
        chosen[self._owners[found]] = found
        rows = np.flatnonzero(chosen >= 0)
        entries = chosen[rows]
        return texts(
            sliced(
                self._content,
                self._starts[entries] + len(start),
                self._ends[entries],
                rows=rows,
                count=self._count,
            )
        )

    def map(self) -> pa.Array:
        """All properties of each message."""
        name_ends, is_entry = self._name_ends()
        kept = np.flatnonzero(is_entry)
        names = self._texts(self._starts[kept], name_ends[kept])
        kept, names = self._without_repeats(kept, names)
        values = self._texts(name_ends[kept] + 1, self._ends[kept])
        offsets = np.searchsorted(self._owners[kept], np.arange(self._count + 1))
        return pa.MapArray.from_arrays(
            pa.array(offsets.astype(np.int32)), names, values, type=PROPERTY_MAP
        )

    def _name_ends(self) -> tuple[Longs, npt.NDArray[np.bool_]]:
        """Where the name of each entry ends, and whether it is an entry at all."""
        ones = np.append(np.flatnonzero(self._octets == _NAME_END), len(self._octets))
        name_ends = ones[np.searchsorted(ones, self._starts)].astype(np.int64)
        return name_ends, (name_ends > self._starts) & (name_ends + 1 < self._ends)

    def _without_repeats(
        self, kept: npt.NDArray[np.intp], names: pa.Array
    ) -> tuple[npt.NDArray[np.intp], pa.Array]:
        if not len(kept):
            return kept, names
        coded = names.dictionary_encode()
        codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        owners = self._owners[kept]
        if len(coded.dictionary) <= _BITS_MAX:
            bits = np.left_shift(np.int64(1), codes)
            firsts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
            # A sum of different powers of two is what or-ing them gives.
            if np.array_equal(np.add.reduceat(bits, firsts), np.bitwise_or.reduceat(bits, firsts)):
                return kept, names
        pairs = owners * len(coded.dictionary) + codes
        _, last_from_behind = np.unique(pairs[::-1], return_index=True)
        chosen = np.sort(len(pairs) - 1 - last_from_behind)
        return kept[chosen], names.take(pa.array(chosen))

    def _texts(self, starts: Longs, ends: Longs) -> pa.Array:
        return texts(sliced(self._content, starts, ends))
