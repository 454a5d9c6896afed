"""Where messages were put: in memory, and as durable as the flush says."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias, overload

_Slice: TypeAlias = "slice[int | None, int | None, int | None]"


class Appended(NamedTuple):
    """Where a message was put."""

    physical_offset: int
    size: int
    queue_offset: int
    store_timestamp: int

    @property
    def end_offset(self) -> int:
        """Physical offset behind the record: what must be durable for a synchronous send."""
        return self.physical_offset + self.size


class AppendedBatch(Sequence[Appended]):
    """Where the messages of a batch were put; mostly only the first and the last are asked for."""

    __slots__ = ("_queue_offsets", "_sizes", "_store_timestamp", "physical_offsets")

    def __init__(
        self,
        physical_offsets: Sequence[int],
        sizes: Sequence[int],
        queue_offsets: Sequence[int],
        store_timestamp: int,
    ) -> None:
        self.physical_offsets = physical_offsets
        self._sizes = sizes
        self._queue_offsets = queue_offsets
        self._store_timestamp = store_timestamp

    @property
    def columns(self) -> tuple[Sequence[int], Sequence[int], Sequence[int], int]:
        """Physical offsets, sizes, queue offsets, and the time at which all were stored."""
        return self.physical_offsets, self._sizes, self._queue_offsets, self._store_timestamp

    def __len__(self) -> int:
        return len(self._sizes)

    @overload
    def __getitem__(self, index: int) -> Appended: ...
    @overload
    def __getitem__(self, index: _Slice) -> list[Appended]: ...
    def __getitem__(self, index: "int | _Slice") -> Appended | list[Appended]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        return Appended(
            self.physical_offsets[index],
            self._sizes[index],
            self._queue_offsets[index],
            self._store_timestamp,
        )


def join_batches(batches: Sequence[AppendedBatch]) -> AppendedBatch:
    """The slices of one batch as one; the time is that of the last."""
    physical_offsets, sizes, queue_offsets, times = zip(
        *(batch.columns for batch in batches), strict=True
    )
    return AppendedBatch(
        [*chain.from_iterable(physical_offsets)],
        [*chain.from_iterable(sizes)],
        [*chain.from_iterable(queue_offsets)],
        times[-1],
    )
