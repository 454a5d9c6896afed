"""Holds rows back so that no more than so many pass in a second."""

import time
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

SLICES_PER_S: Final = 10


def slice_rows(rate: int) -> int:
    """How many rows pass at once: a tenth of a second's, so that they come evenly."""
    return max(rate // SLICES_PER_S, 1)


def pace(
    batches: Iterator[pa.RecordBatch],
    rate: int,
    now_s: Callable[[], float],
    sleep: Callable[[float], None],
) -> Iterator[pa.RecordBatch]:
    """The same rows, each not before its time."""
    start_s = now_s()
    passed = 0
    step = slice_rows(rate)
    for batch in batches:
        for at in range(0, batch.num_rows, step):
            piece = batch.slice(at, step)
            wait_s = start_s + passed / rate - now_s()
            if wait_s > 0:
                sleep(wait_s)
            passed += piece.num_rows
            yield piece


def paced(rate: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`, in one task."""

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return pace(batches, rate, time.monotonic, time.sleep)

    return hold
