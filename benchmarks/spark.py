"""Our Spark source, stream, sink and store files beside Spark's Kafka connector, in one session.

usage: spark.py [--runs 3] [--small 2000000] [--large 300000] [--write-small 1000000]
                [--result FILE]

local[2], both brokers on the same processors, one warm-up and then the runs, ours and theirs in
turns; medians of rows a second. Both sides read bodies with `sum(length(body))`. Ours is read with
the columns that Kafka's has, and once with all. Needs Java 17 and Maven, ten minutes.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from contenders import Contender, downrange
from kafka_peer import CONNECTOR, Kafka, connector_jars, kafka
from machine import facts
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it
from spark_cost import Cost, ProcessTimes, stages

from downrange.client.settings import ClientSettings
from downrange.spark import register
from downrange.sync.consumers import PullConsumer

QUERY_S_MAX = 300
VISIBLE_S_MAX = 120.0
COLUMNS = "topic,queueId,queueOffset,keys,body,storeTimestamp"
GOALS = {"read": 0.8, "stream": 0.6, "write": 0.3, "store": 1.0}


@dataclass(slots=True)
class Measure:
    """One kind of work for bodies of one size; rates of ours and theirs, run by run."""

    name: str
    goal: float | None
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    our_cost: Cost = field(default_factory=Cost)
    their_cost: Cost = field(default_factory=Cost)

    def row(self) -> str:
        """A line of the table."""
        ours, theirs = statistics.median(self.ours), statistics.median(self.theirs)
        ratio = ours / theirs
        verdict = (
            "" if self.goal is None else f">= {self.goal}: {'yes' if ratio >= self.goal else 'NO'}"
        )
        return (
            f"| {self.name} | {ours:,.0f} ({min(self.ours):,.0f}..{max(self.ours):,.0f}) "
            f"| {theirs:,.0f} ({min(self.theirs):,.0f}..{max(self.theirs):,.0f}) "
            f"| {ratio:.2f} | {verdict} |"
        )

    def cost_row(self) -> str:
        """Where the processor time went, in microseconds a row."""
        return f"| {self.name} | {self.our_cost.text()} | {self.their_cost.text()} |"


class Comparison:
    """One session, two brokers; `store` is where ours keeps its files."""

    def __init__(
        self, spark: SparkSession, ours: Contender, store: Path, theirs: Kafka, folder: Path
    ) -> None:
        self._spark = spark
        self._ours = ours
        self._store_path = store
        self._theirs = theirs
        self._folder = folder
        self._our_times = ProcessTimes.of(spark, ours.pid)
        self._their_times = ProcessTimes.of(spark, theirs.process.pid)

    def prepare(self, size: int, count: int) -> None:
        """The same number of rows in a topic of each."""
        self._theirs.load(f"read-{size}", count, size)
        self._write_ours(f"read-{size}", size, count)
        self._await_visible(f"read-{size}", count)

    def _await_visible(self, topic: str, count: int) -> None:
        """What a broker has stored is seen by consumers a little later."""
        client = ClientSettings(name_servers=self._ours.name_server)
        deadline_s = time.monotonic() + VISIBLE_S_MAX
        with PullConsumer("benchmarks", client=client) as consumer:
            queues = consumer.fetch_queues(topic)
            while sum(map(consumer.max_offset, queues)) < count:
                assert time.monotonic() < deadline_s, f"not all {count} rows became visible"
                time.sleep(0.2)

    def run(self, size: int, count: int, write_count: int, runs: int) -> Iterator[Measure]:
        """All measures for bodies of one size."""
        read, topic = f"{size} B", f"read-{size}"
        work: list[tuple[Measure, int, Callable[[], None], Callable[[], None]]] = [
            (
                Measure(f"batch read, {read}", GOALS["read"]), count,
                lambda: self._sum(self._read_ours(topic, COLUMNS), size, count),
                lambda: self._sum(self._read_theirs(topic), size, count),
            ),
            (
                Measure(f"batch read, all columns, {read}", None), count,
                lambda: self._sum(self._read_ours(topic, ""), size, count),
                lambda: self._sum(self._read_theirs(topic), size, count),
            ),
            (
                Measure(f"stream, AvailableNow, {read}", GOALS["stream"]), count,
                lambda: self._stream(self._stream_ours(topic), size, count),
                lambda: self._stream(self._stream_theirs(topic), size, count),
            ),
            (
                Measure(f"store files, {read}", GOALS["store"]), count,
                lambda: self._sum(self._store(topic), size, count),
                lambda: self._sum(self._read_theirs(topic), size, count),
            ),
            (
                Measure(f"write, {read}", GOALS["write"]), write_count,
                lambda: self._write_ours(f"write-{size}", size, write_count),
                lambda: self._write_theirs(f"write-{size}", size, write_count),
            ),
        ]  # fmt: skip
        for measure, rows, ours, theirs in work:
            for turn in range(runs + 1):
                our_rate, our_cost = self._timed(ours, rows, self._our_times)
                their_rate, their_cost = self._timed(theirs, rows, self._their_times)
                if turn:  # the first one warms up
                    measure.ours.append(our_rate)
                    measure.theirs.append(their_rate)
                    measure.our_cost = measure.our_cost.plus(our_cost)
                    measure.their_cost = measure.their_cost.plus(their_cost)
            print(measure.row(), flush=True)
            yield measure

    def _timed(
        self, work: Callable[[], None], rows: int, times: ProcessTimes
    ) -> tuple[float, Cost]:
        before = times.now()
        begin_s = time.perf_counter()
        work()
        taken_s = time.perf_counter() - begin_s
        return rows / taken_s, times.now().minus(before, rows)

    # --- reading ---------------------------------------------------------------------------

    def _read_ours(self, topic: str, fields: str) -> DataFrame:
        options = {"nameServers": self._ours.name_server, "subscribe": topic}
        options |= {"fields": fields} if fields else {}
        return self._spark.read.format("rocketmq").options(**options).load()

    def _read_theirs(self, topic: str) -> DataFrame:
        reading = self._spark.read.format("kafka").options(**self._kafka_options(topic))
        return reading.load().withColumnRenamed("value", "body")

    def _store(self, topic: str) -> DataFrame:
        options = {
            "path": str(self._store_path), "subscribe": topic, "fields": COLUMNS,
        }  # fmt: skip
        return self._spark.read.format("rocketmq-store").options(**options).load()

    def _kafka_options(self, topic: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self._theirs.address,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }

    @staticmethod
    def _sum(frame: DataFrame, size: int, count: int) -> None:
        (found,) = frame.agg(F.sum(F.length("body")), F.count("*")).collect()
        assert tuple(found) == (size * count, count), found

    def _stream_ours(self, topic: str) -> DataFrame:
        options = {
            "nameServers": self._ours.name_server, "subscribe": topic,
            "startingOffsets": "earliest", "fields": COLUMNS,
        }  # fmt: skip
        return self._spark.readStream.format("rocketmq").options(**options).load()

    def _stream_theirs(self, topic: str) -> DataFrame:
        reading = self._spark.readStream.format("kafka").options(**self._kafka_options(topic))
        return reading.load().withColumnRenamed("value", "body")

    def _stream(self, frame: DataFrame, size: int, count: int) -> None:
        sums: list[int] = []

        def take(batch: DataFrame, _number: int) -> None:
            (found,) = batch.agg(F.sum(F.length("body"))).collect()
            sums.append(found[0] or 0)

        checkpoint = tempfile.mkdtemp(dir=self._folder)
        writing = frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
        query = writing.trigger(availableNow=True).start()
        assert query.awaitTermination(QUERY_S_MAX)
        shutil.rmtree(checkpoint)
        assert sum(sums) == size * count, sums

    # --- writing ---------------------------------------------------------------------------

    def _rows(self, size: int, count: int) -> DataFrame:
        body = F.expr(f"cast(repeat('x', {size}) as binary) as value")
        return self._spark.range(0, count, 1, 2).select(body)

    def _write_ours(self, topic: str, size: int, count: int) -> None:
        writing = self._rows(size, count).write.format("rocketmq").mode("append")
        writing.options(nameServers=self._ours.name_server, topic=topic).save()

    def _write_theirs(self, topic: str, size: int, count: int) -> None:
        writing = self._rows(size, count).write.format("kafka")
        writing.options(topic=topic, **{"kafka.bootstrap.servers": self._theirs.address}).save()


def session(folder: Path) -> SparkSession:
    """A local Spark with both connectors."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.jars": connector_jars(),
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    builder = SparkSession.builder.master("local[2]").appName("benchmarks")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def report(
    measures: Sequence[Measure], spark_version: str, begin: str, runs: int, counts: str
) -> str:
    """What is written down."""
    return "\n".join(
        [
            "# Spark: downrange beside the Kafka connector\n",
            f"Written by `make bench-spark`: Spark {spark_version}, local[2], "
            f"{runs} runs after one warm-up, medians (least..most) in rows a second. The peer is "
            f"{CONNECTOR}. Brokers, Spark and its workers share the processors. {counts}\n",
            f"{begin}\n",
            "| work | downrange | Kafka connector | ratio | to reach |",
            "| --- | --- | --- | --- | --- |",
            *(measure.row() for measure in measures),
            "",
            f"Columns of ours: {COLUMNS}; Kafka's has key, value, topic, partition, offset, "
            "timestamp. Store files are compared with Kafka's batch read.\n",
            "## Where the time goes\n",
            "Processor time in microseconds a row: the broker, the JVM (Spark itself; for Kafka "
            "its client too), the Python workers (fetch, decode or encode, Arrow).\n",
            "| work | downrange: broker, JVM, Python | Kafka: broker, JVM, Python |",
            "| --- | --- | --- |",
            *(measure.cost_row() for measure in measures),
            "",
            "### Steps of the Python workers, one core, without Spark\n",
            *stages(),
            "",
        ]
    )


def main() -> None:
    """Measure, print, write down."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--small", type=int, default=2_000_000)
    parser.add_argument("--large", type=int, default=300_000)
    parser.add_argument("--write-small", type=int, default=1_000_000)
    results = Path(__file__).resolve().parent / "results"
    parser.add_argument("--result", type=Path, default=results / "spark.md")
    options = parser.parse_args()
    begin = facts()
    print(begin, flush=True)
    measures: list[Measure] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = session(folder)
        for size, count, write_count in (
            (100, options.small, options.write_small),
            (1_024, options.large, options.large),
        ):
            # A store of its own for each size: store files are read whole.
            ours_folder = folder / f"ours-{size}"
            with downrange(ours_folder) as ours, kafka(folder / f"kafka-{size}") as theirs:
                store = ours_folder / "broker" / "store"
                comparison = Comparison(spark, ours, store, theirs, folder)
                comparison.prepare(size, count)
                measures.extend(comparison.run(size, count, write_count, options.runs))
        version = spark.version
        spark.stop()
    counts = (
        f"{options.small:,} rows of 100 B ({options.write_small:,} written), "
        f"{options.large:,} of 1 KiB."
    )
    text = report(measures, version, begin, options.runs, counts)
    options.result.parent.mkdir(parents=True, exist_ok=True)
    options.result.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
