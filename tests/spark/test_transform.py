"""Transforms in a local Spark: decoded rows through SQL, and dead letters with their reason."""

import json
from pathlib import Path

from pyspark.sql import SparkSession
from spark.pipeline_files import head, load, run_text
from spark.rocketmq_cluster import BROKER, RocketMQCluster

SCHEMA = "id BIGINT NOT NULL, state STRING, at TIMESTAMP, items ARRAY<INT>"


def order(number: int) -> bytes:
    return json.dumps(
        {
            "id": number,
            "state": "new" if number % 2 else "old",
            "at": f"2026-01-01T00:0{number}:00Z",
        }
    ).encode()


BAD = {
    b"no json": "the body is no JSON",
    b'{"id": "x"}': "field 'id' is no BIGINT",
    b'{"id": 1, "items": ["x"]}': "field 'items' is no ARRAY<INT>",
    b'{"state": "new"}': "field 'id' is missing or null",
    b"[1, 2]": "the body is no JSON object but ARRAY<BIGINT>",
    b"\xff\xfe": "the body is no UTF-8",
    b"null": "the body is no JSON object but VOID",
}


def test_rows_go_through_sql_to_a_topic_and_a_table_and_bad_rows_are_told(
    spark: SparkSession, cluster: RocketMQCluster, tmp_path: Path
) -> None:
    (queue,) = cluster.create("shaped", 1)
    cluster.create("shaped-out", 2)
    cluster.create("shaped-bad", 1)
    cluster.send(queue, [*(order(number) for number in range(6)), *BAD], tag="t", keys="k1 k2")
    spark.createDataFrame(
        [("new", "N"), ("old", "O")], "state STRING, letter STRING"
    ).write.parquet(f"{tmp_path}/states")
    text = (
        head("transform", cluster, tmp_path, "shape")
        + f"""
[[source]]
name = "orders"
topics = ["shaped"]
schema = "{SCHEMA}"
[[table]]
name = "states"
path = "{tmp_path}/states"
[[step]]
name = "lettered"
sql = "SELECT id, letter, at, _message.queueOffset AS place FROM orders JOIN states USING (state)"
[[sink]]
from = "lettered"
topic = "shaped-out"
keys = "id"
tags = "letter"
[[sink]]
from = "orders"
path = "{tmp_path}/table"
[dead_letters]
topic = "shaped-bad"
"""
    )
    said = run_text(spark, text)
    assert any(" bad=7 " in line and " rows=13 " in line for line in said), said
    out = load(spark, cluster, "shaped-out").select("body", "keys", "tags").collect()
    assert sorted((json.loads(row.body)["id"], row["keys"], row.tags) for row in out) == [
        (number, str(number), "N" if number % 2 else "O") for number in range(6)
    ]
    assert json.loads(out[0].body).keys() == {"id", "letter", "at", "place"}
    table = spark.read.parquet(f"{tmp_path}/table").select("id", "_message.queueOffset", "at")
    assert sorted((row[0], row[1], row[2].minute) for row in table.collect()) == [
        (number, number, number) for number in range(6)
    ]
    letters = load(spark, cluster, "shaped-bad").collect()
    assert {bytes(row.body): row.properties["deadLetterReason"] for row in letters} == BAD
    assert len(letters) == len(BAD)
    assert {(row.tags, row["keys"]) for row in letters} == {("t", "k1 k2")}
    assert sorted(row.properties["deadLetterOrigin"] for row in letters) == sorted(
        f"shaped@{BROKER}@0@{6 + number}" for number in range(len(BAD))
    )
    assert [line for line in run_text(spark, text) if " rows=0 " not in line] == []


def test_windows_with_a_watermark_go_to_a_topic_when_they_are_over(
    spark: SparkSession, cluster: RocketMQCluster, tmp_path: Path
) -> None:
    (queue,) = cluster.create("timed-in", 1)
    cluster.create("timed-out", 1)
    minutes = (0, 1, 1, 2, 9)
    cluster.send(queue, [order(number) for number in minutes] + [b"nonsense"])
    text = (
        head("transform", cluster, tmp_path, "windows")
        + """
[[source]]
name = "orders"
topics = ["timed-in"]
schema = "id BIGINT, at TIMESTAMP"
bad_rows = "drop"
watermark = { column = "at", delay = "1 minute" }
[[step]]
name = "minutes"
sql = '''
SELECT window.start AS minute, count(*) AS orders FROM orders GROUP BY window(at, '1 minute')
'''
[[sink]]
from = "minutes"
topic = "timed-out"
"""
    )
    run_text(spark, text)
    found = [json.loads(row.body) for row in load(spark, cluster, "timed-out").collect()]
    counts = {row["minute"]: row["orders"] for row in found}
    assert counts == {
        "2026-01-01T00:00:00.000Z": 1,
        "2026-01-01T00:01:00.000Z": 2,
        "2026-01-01T00:02:00.000Z": 1,
    }
    assert len(found) == 3
