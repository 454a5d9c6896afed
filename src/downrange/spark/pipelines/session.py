"""The Spark that a pipeline runs on: its own, or one that is there."""

import os
import sys
from typing import Final

from pyspark.sql import SparkSession

from downrange.spark import register
from downrange.spark.pipelines.definition import MIB, Pipeline, Transform

DEFAULT_MASTER: Final = "local[*]"
# What is no Avro may say that a string of gigabytes follows, and Avro would make room for it.
_AVRO_LIMITS: Final = " ".join(
    f"-Dorg.apache.avro.limits.{what}.maxLength={64 * MIB}"
    for what in ("bytes", "string", "collectionItems")
)


def open_session(pipeline: Pipeline) -> SparkSession:
    """A session as the file says; the caller stops it.

    Times are UTC whatever the machine says, so that dates of an archive do not depend on it.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"downrange-{pipeline.name}")
    if pipeline.spark.master or "SPARK_REMOTE" not in os.environ:
        builder = builder.master(pipeline.spark.master or DEFAULT_MASTER)
    conf = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        **_decoding_conf(pipeline),
        **pipeline.spark.conf,
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    return session


def _decoding_conf(pipeline: Pipeline) -> dict[str, str]:
    if not isinstance(pipeline, Transform):
        return {}
    if all(source.encoding != "avro" for source in pipeline.source):
        return {}
    return {f"spark.{who}.extraJavaOptions": _AVRO_LIMITS for who in ("driver", "executor")}
