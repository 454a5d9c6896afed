"""What a user would submit to a cluster: writes a topic, reads it back, as a table and a stream,
and runs a pipeline over it.

usage: spark-submit --py-files downrange-….zip cluster_job.py NAME_SERVER TOPIC TARGET STORE FOLDER

Prints one line of JSON; the test compares it.
"""

import json
import os
import sys

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

ROWS = 20_000
PIPELINE = """
kind = "transform"
name = "numbers"
name_servers = "{name_server}"
checkpoint = "{folder}/pipeline"
[[source]]
name = "rows"
topics = ["{topic}"]
[[step]]
name = "numbers"
sql = "SELECT CAST(substr(CAST(body AS STRING), 5) AS BIGINT) AS number FROM rows"
[[sink]]
from = "numbers"
topic = "{target}"
[[sink]]
from = "numbers"
path = "{folder}/numbers"
"""
QUERY_S_MAX = 120


def place(_number: int) -> tuple[str, int, str]:
    """Where a task finds the package, and who runs it."""
    import downrange  # noqa: PLC0415 - on the executor

    context = TaskContext.get()
    assert context is not None
    return str(downrange.__file__), os.getppid(), str(context.partitionId())


def main() -> None:
    """Run the job."""
    name_server, topic, target, store, folder = sys.argv[1:]
    spark = SparkSession.builder.appName("cluster-job").getOrCreate()
    from downrange.spark import register  # noqa: PLC0415 - shipped with the job
    from downrange.spark.pipelines.runner import Run, run_on  # noqa: PLC0415
    from downrange.spark.pipelines.toml_file import parse  # noqa: PLC0415

    register(spark)
    rows = spark.range(0, ROWS, 1, 4).selectExpr("concat('row-', id) as body", "'t' as tags")
    writing = rows.write.format("rocketmq").options(nameServers=name_server, topic=topic)
    writing.mode("append").save()
    options = {"nameServers": name_server, "subscribe": topic}
    table = spark.read.format("rocketmq").options(**options).load()
    distinct, total = table.selectExpr("count(distinct body) as d", "count(*) as n").collect()[0]
    files = spark.read.format("rocketmq-store").options(path=store, subscribe=topic).load()
    seen: list[int] = []

    def take(batch: DataFrame, _number: int) -> None:
        seen.append(batch.count())

    stream = spark.readStream.format("rocketmq").options(startingOffsets="earliest", **options)
    query = (
        stream.load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_S_MAX)
    text = PIPELINE.format(name_server=name_server, topic=topic, target=target, folder=folder)
    run_on(spark, parse(text, {}), Run(once=True, say=lambda _: None))
    sent = spark.read.format("rocketmq").options(nameServers=name_server, subscribe=target).load()
    kept = spark.read.parquet(f"{folder}/numbers")
    places = spark.sparkContext.parallelize(range(8), 8).map(place).collect()
    figures = {
        "distinct": distinct,
        "total": total,
        "store": files.count(),
        "stream": sum(seen),
        "sent": sent.select("body").distinct().count(),
        "kept": kept.agg({"number": "sum"}).collect()[0][0],
        "packages": sorted({package for package, _, _ in places}),
        "executors": len({parent for _, parent, _ in places}),
        "driver": os.getpid(),
    }
    print(json.dumps(figures))  # noqa: T201 - the answer
    spark.stop()


if __name__ == "__main__":
    main()
