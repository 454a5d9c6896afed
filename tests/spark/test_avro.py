"""Transforms of Avro bodies, with Spark's own Avro package; run as a process, which gets it."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark.pipeline_files import head, load
from spark.pipeline_process import SPARK, Driver
from spark.rocketmq_cluster import RocketMQCluster

SCHEMA = """
{"type": "record", "name": "order", "fields": [
  {"name": "id", "type": "long"}, {"name": "state", "type": ["null", "string"]}]}
"""
AVRO = '"spark.jars.packages" = "org.apache.spark:spark-avro_2.13:4.1.1"\n'
# The second one says that two gigabytes of text follow.
BAD = {b"\xff": "no Avro record", b"\x02\x02\xfe\xff\xff\xff\x0fx": "no Avro record"}

pytestmark = pytest.mark.slow


def test_avro_bodies_become_rows_and_others_dead_letters(
    spark: SparkSession, cluster: RocketMQCluster, tmp_path: Path
) -> None:
    (queue,) = cluster.create("avro-in", 1)
    cluster.create("avro-out", 1)
    cluster.create("avro-bad", 1)
    cluster.send(queue, [b"\x02\x02\x06new", *BAD, b"\x04\x00"])
    (tmp_path / "order.avsc").write_text(SCHEMA)
    file = tmp_path / "transform.toml"
    file.write_text(
        head("transform", cluster, tmp_path, "orders")
        + "[[source]]\nname = 'orders'\ntopics = ['avro-in']\nencoding = 'avro'\n"
        + f"schema_file = '{tmp_path}/order.avsc'\n"
        + "[[sink]]\nfrom = 'orders_only'\ntopic = 'avro-out'\n"
        + "[[step]]\nname = 'orders_only'\nsql = 'SELECT id, state FROM orders'\n"
        + "[dead_letters]\ntopic = 'avro-bad'\n"
        + SPARK
        + AVRO
    )
    log = tmp_path / "driver.log"
    assert Driver(file, log, "--once").end() == 0, log.read_text()[-3000:]
    out = load(spark, cluster, "avro-out").collect()
    assert sorted(bytes(row.body) for row in out) == [b'{"id":1,"state":"new"}', b'{"id":2}']
    bad = load(spark, cluster, "avro-bad").collect()
    assert {bytes(row.body) for row in bad} == set(BAD)
    for row in bad:
        assert BAD[bytes(row.body)] in row.properties["deadLetterReason"]
