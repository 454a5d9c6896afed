"""`format("rocketmq-store")`: the messages of a broker's store, read from its commit-log files.

For back-fill, audit and forensics: no broker is asked, and none has to run. The files are read in
parallel, each in parts, which may be cut anywhere.
"""

import itertools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from downrange.protocol.errors import ProtocolError
from downrange.spark.arrow_records import RecordDecoder
from downrange.spark.arrow_slices import sliced
from downrange.spark.columns import spark_schema
from downrange.spark.invalid_records import OPTION
from downrange.spark.log_files import LogFile, LogFolder
from downrange.spark.log_walk import LogDamage, LogWalk, SoundRecords
from downrange.spark.record_heads import read_heads
from downrange.spark.store_options import TIME_MS_MAX, StoreOptions, store_options

_log = logging.getLogger(__name__)
_TAGS = "tags"
Flags = npt.NDArray[np.bool_]


class StoreDamageError(Exception):
    """A store that is not what it should be; the text says where, and how to read past it."""


class RocketMQStoreDataSource(DataSource):
    """Store files as a table."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)

    @classmethod
    def name(cls) -> str:
        """What stands in `format`."""
        return "rocketmq-store"

    def schema(self) -> StructType:
        """The columns of a message; wrong options are found here already."""
        return spark_schema(store_options(self.options).fields)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        """A batch read."""
        return StoreReader(store_options(self.options))


@dataclass(frozen=True, slots=True)
class LogPart(InputPartition):
    """A part of a file: the records that start in it are read by one task."""

    path: str
    base_offset: int
    size: int
    start: int
    end: int

    @property
    def file(self) -> LogFile:
        """The file."""
        return LogFile(self.path, self.base_offset, self.size)


class StoreReader(DataSourceReader):
    """Plans the parts on the driver and reads one in each task."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """The files in parts of the size that the options ask for."""
        files = LogFolder(self._options.path).files()
        self._check_chain(files)
        parts: list[InputPartition] = []
        for file in files:
            for start in range(0, max(file.size, 1), self._options.split_bytes):
                end = min(start + self._options.split_bytes, file.size)
                parts.append(LogPart(file.path, file.base_offset, file.size, start, end))
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one part."""
        assert isinstance(partition, LogPart)
        options = self._options
        folder = LogFolder(options.path)
        damages: list[LogDamage] = []
        walk = LogWalk(
            partition.path,
            folder.open(partition.file),
            partition.base_offset,
            on_damage=lambda damage: self._on_damage(damage, damages),
            goes_on_behind=lambda: self._goes_on(folder, partition),
            check_crc=options.check_crc,
        )
        chooser = _Chooser(options)
        for records in walk.walk(partition.start, partition.end):
            for batch in self._decoded(records, chooser, partition.path, damages):
                if batch.num_rows:
                    yield batch
        if damages:
            _log.warning(
                "%s: damages=%d bytes=%d were skipped",
                partition.path,
                len(damages),
                sum(damage.size for damage in damages),
            )

    def _decoded(
        self, records: SoundRecords, chooser: "_Chooser", path: str, damages: list[LogDamage]
    ) -> Iterator[pa.RecordBatch]:
        """The messages; a body that cannot be unpacked is damage too, which no checksum shows.

        With `invalidMessages` null it is a row with a null body instead.
        """
        try:
            yield from chooser.batches(records)
        except ProtocolError:
            for index, start in enumerate(records.heads.starts.tolist()):
                one = records.heads.starts[index : index + 1]
                single = SoundRecords(records.position, records.data, read_heads(records.data, one))
                try:
                    yield from chooser.batches(single)
                except ProtocolError as error:
                    size = int(records.heads.sizes[index])
                    place = records.position + start
                    reason = f"{error} (to read it with a null body, set {OPTION} to null)"
                    self._on_damage(LogDamage(path, place, size, reason), damages)

    def _check_chain(self, files: list[LogFile]) -> None:
        for before, after in itertools.pairwise(files):
            end = before.base_offset + before.size
            if after.base_offset != end:
                text = (
                    f"{after.path} does not follow on {before.path}, which ends at {end}: a file "
                    f"is missing or cut"
                )
                if not self._options.skips_damage:
                    raise StoreDamageError(f"{text}; read past it with the option onDamage=skip")
                _log.warning("%s", text)

    def _on_damage(self, damage: LogDamage, damages: list[LogDamage]) -> None:
        if not self._options.skips_damage:
            raise StoreDamageError(f"{damage}; read past it with the option onDamage=skip")
        _log.warning("skipped %s", damage)
        damages.append(damage)

    @staticmethod
    def _goes_on(folder: LogFolder, part: LogPart) -> bool:
        """Whether a file behind this one has a record."""
        for file in folder.files():
            if file.base_offset <= part.base_offset:
                continue
            walk = LogWalk(
                file.path,
                folder.open(file),
                file.base_offset,
                on_damage=lambda _: None,
                goes_on_behind=lambda: False,
                check_crc=False,
            )
            if walk.has_records():
                return True
        return False


class _Chooser:
    """Decodes the records that were asked for, and no others."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = options
        fields = options.fields
        # Tags stand in the properties, so rows are chosen by them after decoding.
        self._adds_tags = bool(options.tags) and _TAGS not in fields
        wanted = (*fields, _TAGS) if self._adds_tags else fields
        self._decoder = RecordDecoder(
            wanted,
            include_properties=options.include_properties,
            invalid=options.invalid_messages,
        )
        self._topics = pa.array([topic.encode() for topic in options.topics], pa.binary())
        self._tags = pa.array(options.tags, pa.string())

    def batches(self, records: SoundRecords) -> Iterator[pa.RecordBatch]:
        heads = records.heads
        kept = self._kept(records)
        if kept is not None:
            heads = read_heads(records.data, heads.starts[kept])
        name = self._options.broker_name
        # All of them or none: a caller that meets an error decodes the records one by one.
        for batch in list(self._decoder.batches(records.data, heads, broker_name=name)):
            yield self._with_tags(batch)

    def _with_tags(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._options.tags:
            batch = batch.filter(pc.is_in(batch.column(_TAGS), self._tags))
            if self._adds_tags:
                batch = batch.select(list(self._options.fields))
        return batch

    def _kept(self, records: SoundRecords) -> Flags | None:
        """Which records to decode; None for all."""
        options, heads = self._options, records.heads
        kept: Flags = np.ones(heads.count, np.bool_)
        if options.topics:
            topics = sliced(pa.py_buffer(records.data), heads.topic_starts, heads.topic_ends)
            kept &= pc.is_in(topics, self._topics).to_numpy(zero_copy_only=False)
        if options.start_ms >= 0 or options.end_ms < TIME_MS_MAX:
            stored_ms = heads.longs("store_ms")
            kept &= (stored_ms >= options.start_ms) & (stored_ms < options.end_ms)
        return None if kept.all() else kept
