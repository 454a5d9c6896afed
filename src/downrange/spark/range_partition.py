"""What the driver hands to a task: ranges of queues. Small and picklable, without an address.

A task finds the brokers by itself: until it runs, a broker may have moved.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from downrange.spark.fetch import RangeReader
from downrange.spark.planning import QueueRange
from downrange.spark.read_options import ReadOptions


class RangePartition(InputPartition):
    """The ranges of one task."""

    def __init__(self, ranges: Sequence[QueueRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)

    def __repr__(self) -> str:
        return f"RangePartition({self.ranges!r})"


def read_partition(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The messages of a task; nothing for the partition that stands for "no partitions"."""
    if not isinstance(partition, RangePartition):
        return
    reader = RangeReader(options)
    try:
        yield from reader.read(partition.ranges)
    finally:
        reader.close()
