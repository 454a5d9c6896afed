"""Where a Spark job's processor time goes: by process, and by step of the Python workers."""

import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from spark_decode import records

from downrange.protocol.unique_id import UniqueIdGenerator
from downrange.runtime.clock import SystemClock
from downrange.spark.arrow_records import RecordDecoder
from downrange.spark.log_walk import LogWalk
from downrange.spark.parcels import cut_parcels
from downrange.spark.row_encoding import RowEncoder
from downrange.spark.row_lanes import LanePlanner

TICKS = os.sysconf("SC_CLK_TCK")
REPEATS = 7
ROWS = 10_000
BASE_OFFSET = 0
COLUMNS = ("topic", "queueId", "queueOffset", "keys", "body", "storeTimestamp")


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds a row, summed over some runs."""

    broker: float = 0.0
    jvm: float = 0.0
    python: float = 0.0
    runs: int = 0

    def plus(self, other: "Cost") -> "Cost":
        """Both together."""
        return Cost(
            self.broker + other.broker,
            self.jvm + other.jvm,
            self.python + other.python,
            self.runs + other.runs,
        )

    def text(self) -> str:
        """The mean of the runs."""
        runs = max(self.runs, 1)
        return f"{self.broker / runs:.2f}, {self.jvm / runs:.2f}, {self.python / runs:.2f}"


@dataclass(frozen=True, slots=True)
class Times:
    """Processor seconds so far."""

    broker_s: float
    jvm_s: float
    python_s: float

    def minus(self, before: "Times", rows: int) -> Cost:
        """What was used since, for so many rows."""
        return Cost(
            (self.broker_s - before.broker_s) / rows * 1e6,
            (self.jvm_s - before.jvm_s) / rows * 1e6,
            (self.python_s - before.python_s) / rows * 1e6,
            1,
        )


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """Watches a broker, the JVM of a local Spark, and the Python workers below it."""

    broker: int
    jvm: int

    @classmethod
    def of(cls, spark: SparkSession, broker: int) -> Self:
        """For a session."""
        handle = spark.sparkContext._jvm.java.lang.ProcessHandle.current()  # type: ignore[union-attr]  # noqa: SLF001
        return cls(broker, int(handle.pid()))

    def now(self) -> Times:
        """Processor time so far; of workers that have ended too, since their parent was told."""
        python_s = sum(_cpu_s(pid, with_ended=True) for pid in _below(self.jvm))
        return Times(_cpu_s(self.broker), _cpu_s(self.jvm), python_s)


def _cpu_s(pid: int, *, with_ended: bool = False) -> float:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    fields = text.rpartition(")")[2].split()
    ticks = [int(value) for value in fields[11:15]]
    return sum(ticks if with_ended else ticks[:2]) / TICKS


def _below(pid: int) -> Iterator[int]:
    """All processes that this one has started, and theirs."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text(encoding="ascii").split()
        except OSError:
            continue
        for child in children:
            yield int(child)
            yield from _below(int(child))


class _Bytes:
    """A log in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def view(self, start: int, end: int) -> memoryview:
        return memoryview(self._data)[start:end]

    def find(self, pattern: bytes, start: int, end: int) -> int:
        return self._data.find(pattern, start, end)


def stages() -> list[str]:
    """A table of the steps."""
    lines = ["| step | 100 B | 1 KiB |", "| --- | --- | --- |"]
    for name, make in (
        ("encode rows for a batch send", _encode),
        ("walk a log, without checksums", lambda size: _walk(size, check_crc=False)),
        ("walk a log, with checksums", lambda size: _walk(size, check_crc=True)),
        ("decode records, Kafka's columns", lambda size: _decode(size, COLUMNS)),
        ("decode records, all columns", lambda size: _decode(size, None)),
    ):
        rates = [_rate(make(size)) for size in (100, 1_024)]
        lines.append(f"| {name} | {rates[0]:,.0f} rows/s | {rates[1]:,.0f} rows/s |")
    return lines


def _rate(work: Callable[[], None]) -> float:
    work()
    taken_s = []
    for _ in range(REPEATS):
        begin_s = time.perf_counter()
        work()
        taken_s.append(time.perf_counter() - begin_s)
    return ROWS / statistics.median(taken_s)


def _encode(size: int) -> Callable[[], None]:
    chance = random.Random(1)
    ids = UniqueIdGenerator(ip="127.0.0.1", process_id=1, clock=SystemClock(), random=chance)
    encoder = RowEncoder(ids, stamp="0f8fad5b-d9cb-469f-a165-70867728950e:12:3:")
    planner = LanePlanner("orders", lambda _: (), 0)
    batch = pa.record_batch({"body": pa.array([bytes(size)] * ROWS)})
    rows = np.arange(ROWS)

    def work() -> None:
        ordered, numbers, runs = planner.plan(batch, rows)
        encoded = encoder.encode(ordered, numbers)
        for run in runs:
            for parcel in cut_parcels(encoded, run, batch_bytes=1 << 18, message_bytes_max=1 << 22):
                assert parcel.rows

    return work


def _walk(size: int, *, check_crc: bool) -> Callable[[], None]:
    content = _Bytes(records(ROWS, size))

    def work() -> None:
        walk = LogWalk(
            "memory", content, BASE_OFFSET,
            on_damage=_refuse, goes_on_behind=lambda: False, check_crc=check_crc,
        )  # fmt: skip
        assert sum(found.heads.count for found in walk.walk(0, content.size)) == ROWS

    return work


def _refuse(damage: object) -> None:
    raise AssertionError(damage)


def _decode(size: int, fields: tuple[str, ...] | None) -> Callable[[], None]:
    data = records(ROWS, size)
    decoder = RecordDecoder(fields) if fields else RecordDecoder()

    def work() -> None:
        assert decoder.decode(data).num_rows == ROWS

    return work
