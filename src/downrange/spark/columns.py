"""The columns of a message, once for Arrow and once for Spark; both must say exactly the same.

Spark refuses a batch whose types differ in any detail (milliseconds instead of microseconds, a
large_binary), and it checks the first batch only. So there is one table, and both schemas come
from it.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
PROPERTY_MAP: Final = pa.map_(pa.string(), pa.string())

_COLUMNS: Final[dict[str, tuple[pa.DataType, DataType]]] = {
    "topic": (pa.string(), StringType()),
    "brokerName": (pa.string(), StringType()),
    "queueId": (pa.int32(), IntegerType()),
    "queueOffset": (pa.int64(), LongType()),
    "keys": (pa.string(), StringType()),
    "tags": (pa.string(), StringType()),
    "body": (pa.binary(), BinaryType()),
    "bornTimestamp": (TIMESTAMP, TimestampType()),
    "storeTimestamp": (TIMESTAMP, TimestampType()),
    "msgId": (pa.string(), StringType()),
    "uniqueKey": (pa.string(), StringType()),
    "reconsumeTimes": (pa.int32(), IntegerType()),
    "bornHost": (pa.string(), StringType()),
    "sysFlag": (pa.int32(), IntegerType()),
    "properties": (PROPERTY_MAP, MapType(StringType(), StringType())),
}
SINK_ID: Final = "sinkId"
"""Given only when it is named in `fields`: what our sink stamped, queryId:batchId:partition:row."""

INVALID_REASON: Final = "invalidReason"
"""Why a message cannot be decoded; null for those that can. With `invalidMessages` null only."""

_ON_DEMAND: Final[dict[str, tuple[pa.DataType, DataType]]] = {
    SINK_ID: (pa.string(), StringType()),
    INVALID_REASON: (pa.string(), StringType()),
}
_KNOWN: Final = _COLUMNS | _ON_DEMAND

ALL_COLUMNS: Final = tuple(_COLUMNS)
KNOWN_COLUMNS: Final = tuple(_KNOWN)


def arrow_schema(fields: Sequence[str] = ALL_COLUMNS) -> pa.Schema:
    """What a decoded batch looks like; every column may be null, as Spark is told too."""
    return pa.schema([pa.field(name, _KNOWN[name][0]) for name in fields])


def spark_schema(fields: Sequence[str] = ALL_COLUMNS) -> StructType:
    """What Spark is told of these columns."""
    return StructType([StructField(name, _KNOWN[name][1]) for name in fields])
