"""A driver that writes each batch to a file of its own and may kill itself right after.

usage: killed_driver.py NAME_SERVERS TOPIC FOLDER KILL_AT

KILL_AT is the batch after which the driver, JVM and all, dies before Spark can commit it; -1 for
none.
"""

import json
import os
import signal
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from downrange.spark import register

QUERY_S_MAX = 300


def main() -> None:
    name_servers, topic, folder, kill_at = sys.argv[1:]
    out = Path(folder) / "out"
    out.mkdir(parents=True, exist_ok=True)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.python.authenticate.socketTimeout", "240s")
        .getOrCreate()
    )
    register(spark)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    jvm_process = int(jvm.java.lang.ProcessHandle.current().pid())

    def write(frame: DataFrame, batch_id: int) -> None:
        rows = [(row.queueId, row.queueOffset, row.body.hex()) for row in frame.collect()]
        place = out / f"{batch_id}.json"
        place.with_suffix(".new").write_text(json.dumps(rows))
        place.with_suffix(".new").replace(place)
        if batch_id == int(kill_at):
            os.kill(jvm_process, signal.SIGKILL)
            os._exit(9)

    query = (
        spark.readStream.format("rocketmq")
        .option("nameServers", name_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "37")
        .load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(Path(folder) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_S_MAX)
    spark.stop()


if __name__ == "__main__":
    main()
