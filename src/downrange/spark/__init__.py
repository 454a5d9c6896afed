"""RocketMQ topics as PySpark tables and streams: `spark.read.format("rocketmq")`.

from downrange.spark import register
register(spark)

Needs the extra `downrange[spark]`. Nothing of Spark is imported before a name is asked for, so
that an executor which only decodes records loads no more than it needs.
"""
