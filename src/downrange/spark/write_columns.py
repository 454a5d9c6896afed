"""Which columns a DataFrame may have that is written to RocketMQ, checked on the driver."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

_TEXT: Final = (StringType,)
_BYTES: Final = (BinaryType, StringType)
_NUMBER: Final = (ByteType, ShortType, IntegerType, LongType)

TOPIC: Final = "topic"
BODY: Final = "body"
VALUE: Final = "value"
KEYS: Final = "keys"
TAGS: Final = "tags"
PROPERTIES: Final = "properties"
DELAY_LEVEL: Final = "delayLevel"
DELAY_TIME_MS: Final = "delayTimeMs"
ORDERING_KEY: Final = "orderingKey"
QUEUE_ID: Final = "queueId"
BROKER_NAME: Final = "brokerName"

_TYPES: Final[Mapping[str, tuple[type[DataType], ...]]] = {
    TOPIC: _TEXT,
    BODY: _BYTES,
    VALUE: _BYTES,
    KEYS: _TEXT,
    TAGS: _TEXT,
    PROPERTIES: (MapType,),
    DELAY_LEVEL: _NUMBER,
    DELAY_TIME_MS: _NUMBER,
    ORDERING_KEY: _TEXT,
    QUEUE_ID: _NUMBER,
    BROKER_NAME: _TEXT,
}
_PROPERTIES_TEXT: Final = "map<string,string>"


class SinkColumnError(ValueError):
    """A column that is unknown, missing or of the wrong type; the text names it."""


def check_write_columns(schema: StructType, topic: str | None) -> None:
    """Whether a DataFrame of this schema can be written; `topic` is the option, if given."""
    names = set(schema.fieldNames())
    for field in schema.fields:
        _check_field(field.name, field.dataType)
    if len(names) != len(schema.fields):
        raise SinkColumnError(f"a column is there twice: {', '.join(schema.fieldNames())}")
    if (BODY in names) == (VALUE in names):
        found = "both are there" if BODY in names else f"there are {', '.join(sorted(names))}"
        raise SinkColumnError(f"one column 'body' (or 'value', the same) is needed; {found}")
    if TOPIC not in names and topic is None:
        raise SinkColumnError("no column 'topic' and no option 'topic': where shall the rows go?")
    if TOPIC in names and topic is not None:
        raise SinkColumnError("column 'topic' and option 'topic' are both there; drop one of them")
    if BROKER_NAME in names and QUEUE_ID not in names:
        raise SinkColumnError("column 'brokerName' names a queue only together with 'queueId'")
    if ORDERING_KEY in names and QUEUE_ID in names:
        raise SinkColumnError("columns 'orderingKey' and 'queueId' both choose the queue; drop one")


def _check_field(name: str, found: DataType) -> None:
    wanted = _TYPES.get(name)
    if wanted is None:
        meant = next((known for known in _TYPES if known.lower() == name.lower()), None)
        hint = f"; is {meant!r} meant?" if meant else ""
        raise SinkColumnError(
            f"column {name!r} cannot be written to rocketmq{hint}; there are "
            f"{', '.join(_TYPES)}; select or rename before writing"
        )
    is_right = isinstance(found, wanted)
    if isinstance(found, MapType) and is_right:
        is_right = isinstance(found.keyType, StringType) and isinstance(found.valueType, StringType)
    if not is_right:
        texts = [one().simpleString() for one in wanted if one is not MapType]
        texts = texts or [_PROPERTIES_TEXT]
        raise SinkColumnError(
            f"column {name!r} is {found.simpleString()}, not {' or '.join(texts)}; cast it"
        )
