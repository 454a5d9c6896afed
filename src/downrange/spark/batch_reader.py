"""The batch source: everything between two positions, which are fixed when the read is planned."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from downrange.spark.cluster import Cluster
from downrange.spark.planning import QueueRange, ranges, split
from downrange.spark.positions import Bounds, find_queues
from downrange.spark.range_partition import RangePartition, read_partition
from downrange.spark.read_options import ReadOptions


class RocketMQBatchReader(DataSourceReader):
    """Plans on the driver, reads in the tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """The ranges of the tasks; asked once, so all tasks agree where the read ends."""
        options = self._options
        with Cluster(options.connecting) as cluster:
            whole = self._planned(cluster)
        if options.drop_duplicates:
            # Repeats are recognised within a queue, so a queue is read by one task.
            return [RangePartition([one]) for one in whole]
        parts = split(
            whole,
            partitions_min=options.min_partitions,
            records_max=options.partition_records_max,
        )
        return [RangePartition([part]) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task."""
        return read_partition(self._options, partition)

    def _planned(self, cluster: Cluster) -> list[QueueRange]:
        options = self._options
        bounds = Bounds(cluster, find_queues(cluster, options))
        fails = options.fail_on_data_loss
        start = bounds.checked_start(bounds.at(options.start), fails=fails)
        end = bounds.checked_end(bounds.at(options.end), fails=fails)
        return ranges(start, end)
