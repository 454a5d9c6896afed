"""Holds rows back so that no more than so many pass in a second."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from pyspark.sql import Row

SLICES_PER_S: Final = 10
T = TypeVar("T")


def slice_rows(rate: int) -> int:
    """How many rows pass at once: a tenth of a second's, so that they come evenly."""
    return max(rate // SLICES_PER_S, 1)


def pace(
    rows: Iterable[T], rate: int, now_s: Callable[[], float], sleep: Callable[[float], None]
) -> Iterator[T]:
    """The same rows, each not before its time."""
    start_s = now_s()
    step = slice_rows(rate)
    for number, row in enumerate(rows):
        if number % step == 0:
            wait_s = start_s + number / rate - now_s()
            if wait_s > 0:
                sleep(wait_s)
        yield row


def paced(rate: int) -> Callable[[Iterable[Row]], Iterable[Row]]:
    """For `mapPartitions`, in one task."""

    def hold(rows: Iterable[Row]) -> Iterator[Row]:
        return pace(rows, rate, time.monotonic, time.sleep)

    return hold
