"""Message traces as tables: sends, deliveries and what consumers made of them.

Bodies in RMQ_SYS_TRACE_TOPIC hold lines that end with 0x02, of fields that end with 0x01; which
field is what, `client/trace` says. Old clients leave out the last fields.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

_FIELDS: Final = "fields"


def trace_lines(messages: DataFrame) -> DataFrame:
    """One row a line, with its fields; lines that came twice are there once."""
    lines = F.explode(F.split(F.col("body").cast("string"), "\x02")).alias("line")
    cut = messages.select(lines).where(F.length("line") > 0).distinct()
    return cut.select(F.split("line", "\x01").alias(_FIELDS))


def sends(lines: DataFrame) -> DataFrame:
    """What producers sent: topic, group, id, keys, when, how long it took, whether it was stored.

    The last field tells success; it is the 13th or 14th, as the offset id is not always there.
    """
    success = F.when(F.size(_FIELDS) > 13, _field(13)).otherwise(_field(12))  # noqa: PLR2004
    return _of(lines, "Pub").select(
        _field(4).alias("topic"),
        _field(3).alias("producer"),
        _field(5).alias("id"),
        _field(7).alias("keys"),
        _number(1).alias("sent_ms"),
        _number(10).alias("cost_ms"),
        (F.lower(success) == "true").alias("is_ok"),
    )


def consumptions(lines: DataFrame) -> DataFrame:
    """What consumers got and how long they took; those that are not done have no cost."""
    before = _of(lines, "SubBefore").select(
        _number(1).alias("got_ms"),
        _field(3).alias("group"),
        _field(4).alias("request"),
        _field(5).alias("id"),
    )
    after = _of(lines, "SubAfter").select(
        _field(1).alias("request"),
        _field(2).alias("id"),
        _number(3).alias("cost_ms"),
        (F.lower(_field(4)) == "true").alias("is_ok"),
    )
    return before.join(after, ["request", "id"], "left")


def _of(lines: DataFrame, kind: str) -> DataFrame:
    return lines.where(_field(0) == kind)


def _field(number: int) -> Column:
    return F.get(_FIELDS, F.lit(number))


def _number(number: int) -> Column:
    return _field(number).try_cast("bigint")
