"""Pipelines for tests: small files, run in the session of the tests or as processes."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from spark.rocketmq_cluster import RocketMQCluster

from downrange.spark.pipelines.runner import Run, run_on
from downrange.spark.pipelines.toml_file import parse

Row = tuple[str, str, int, int, bytes]


def run_text(spark: SparkSession, text: str, *, dry_run: bool = False) -> list[str]:
    """Run the pipeline of a text once; returns what it said."""
    said: list[str] = []
    run_on(spark, parse(text, {}), Run(once=True, dry_run=dry_run, say=said.append))
    return [line for line in said if not line.startswith("Spark could not start")]


def head(kind: str, cluster: RocketMQCluster, folder: Path, name: str) -> str:
    """The keys that files begin with."""
    return (
        f'kind = "{kind}"\nname = "{name}"\nname_servers = "{cluster.names.address}"\n'
        f'checkpoint = "{folder}/checkpoint"\n'
    )


def rows_of(frame: DataFrame) -> list[Row]:
    """What identifies a message, and its body, sorted."""
    found = frame.select("topic", "brokerName", "queueId", "queueOffset", "body").collect()
    return sorted((row[0], row[1], row[2], row[3], bytes(row[4])) for row in found)


def load(spark: SparkSession, cluster: RocketMQCluster, topics: str, **more: str) -> DataFrame:
    """Topics as a table."""
    options = cluster.options(topics, **more)
    return spark.read.format("rocketmq").options(**options).load()
