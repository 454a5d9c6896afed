"""The Spark that a pipeline runs on: its own, or one that is there."""

import os
import sys

from pyspark.sql import SparkSession

from downrange.spark import register
from downrange.spark.pipelines.definition import Pipeline

DEFAULT_MASTER = "local[*]"


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
        **pipeline.spark.conf,
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    return session
