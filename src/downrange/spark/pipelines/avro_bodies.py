"""Avro bodies as typed rows by a schema, with the `from_avro` of Spark's own Avro package.

`from_avro` makes a row of nulls of what it cannot read and says no more. Such a row is right only
for a record whose fields may all be null, and then its bytes are known.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.avro.functions import from_avro


@dataclass(frozen=True, slots=True)
class AvroBodies:
    """Records in Avro's binary encoding, without the header of a file."""

    schema: str
    names: tuple[str, ...]
    nothing: bytes | None

    @classmethod
    def of(cls, text: str) -> "AvroBodies":
        """By a schema in Avro's JSON form, which must be a record."""
        try:
            schema = json.loads(text)
        except ValueError as error:
            raise ValueError(f"the schema is no JSON: {error}") from None
        if not isinstance(schema, Mapping) or schema.get("type") != "record":
            raise ValueError('the schema is no Avro record: {"type": "record", "fields": [...]}')
        fields = schema.get("fields")
        if not isinstance(fields, Sequence) or not fields:
            raise ValueError("the schema is a record without fields")
        if not all(
            isinstance(field, Mapping) and {"name", "type"} <= set(field) for field in fields
        ):
            raise ValueError("the schema has a field without a name or a type")
        names = tuple(str(field["name"]) for field in fields)
        return cls(text, names, _nothing([field["type"] for field in fields]))

    def value(self, body: str) -> Column:
        """The body as a struct; all its fields are null if it cannot be read."""
        return from_avro(F.col(body), self.schema, {"mode": "PERMISSIVE"})

    def fault(self, body: str, value: str) -> Column:
        """Why a body is no record of the schema; null if it is one."""
        is_nothing = reduce(and_, (F.col(value).getField(name).isNull() for name in self.names))
        if self.nothing is not None:
            is_nothing &= F.col(body) != F.lit(bytearray(self.nothing))
        return F.when(F.col(body).isNull() | (F.length(body) == 0), "the body is empty").when(
            is_nothing, "the body is no Avro record of the schema"
        )


def _nothing(types: Sequence[object]) -> bytes | None:
    """The bytes of a record of nulls: of each field the place of null among its types."""
    places = []
    for one in types:
        if one == "null":
            continue  # takes no bytes at all
        if not isinstance(one, list) or "null" not in one:
            return None
        places.append(one.index("null") << 1)
    return bytes(places)
