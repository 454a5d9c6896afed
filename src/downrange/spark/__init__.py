"""RocketMQ topics as PySpark tables and streams: `spark.read.format("rocketmq")`.

from downrange.spark import register
register(spark)

Needs the extra `downrange[spark]`. Nothing of Spark is imported before a name is asked for, so
that an executor which only decodes records loads no more than it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from downrange.spark.group_progress import GroupProgressListener
    from downrange.spark.source import RocketMQDataSource, register

__all__ = ["GroupProgressListener", "RocketMQDataSource", "register"]

_PLACES: Final = {
    "GroupProgressListener": "downrange.spark.group_progress",
    "RocketMQDataSource": "downrange.spark.source",
    "register": "downrange.spark.source",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_PLACES[name]), name)
    return found
