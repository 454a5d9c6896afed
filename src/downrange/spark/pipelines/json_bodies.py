"""JSON bodies as typed rows by a schema, and for each body that is none the reason why."""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.types import StringType, StructField, StructType

CORRUPT: Final = "_corrupt"
_OPTIONS: Final = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}


@dataclass(frozen=True, slots=True)
class JsonBodies:
    """JSON objects with the fields of a schema."""

    schema: StructType

    @classmethod
    def of(cls, text: str) -> "JsonBodies":
        """By a schema such as "id BIGINT NOT NULL, at TIMESTAMP"."""
        schema = StructType.fromDDL(text)
        assert isinstance(schema, StructType), "a list of columns is a struct"
        return cls(schema)

    def value(self, body: str) -> Column:
        """The body as a struct, with a field more that says whether it is corrupt."""
        fields = [StructField(field.name, field.dataType) for field in self.schema.fields]
        with_corrupt = StructType([*fields, StructField(CORRUPT, StringType())])
        return F.from_json(_text(body), with_corrupt, _OPTIONS)

    def fault(self, body: str, value: str) -> Column:
        """Why a body is no row of the schema; null if it is one.

        Fields that the schema calls NOT NULL must be there.
        """
        text = _text(body)
        is_corrupt = F.col(value).isNull() | F.col(f"{value}.{CORRUPT}").isNotNull()
        fault = (
            F.when(F.col(body).isNull() | (F.length(body) == 0), "the body is empty")
            .when(~F.is_valid_utf8(text), "the body is no UTF-8")
            .when(is_corrupt, _explained(text, self.schema))
        )
        for field in self.schema.fields:
            if not field.nullable:
                is_missing = F.col(value).getField(field.name).isNull()
                fault = fault.when(is_missing, f"field {field.name!r} is missing or null")
        return fault


def _explained(text: Column, schema: StructType) -> Column:
    parsed = F.try_parse_json(text)
    shape = F.schema_of_variant(parsed)
    reason = F.when(parsed.isNull(), "the body is no JSON").when(
        ~shape.startswith("OBJECT"), F.concat(F.lit("the body is no JSON object but "), shape)
    )
    for field in schema.fields:
        alone = StructType(
            [StructField(field.name, field.dataType), StructField(CORRUPT, StringType())]
        )
        is_wrong = F.from_json(text, alone, _OPTIONS).getField(CORRUPT).isNotNull()
        wanted = field.dataType.simpleString().upper()
        reason = reason.when(is_wrong, f"field {field.name!r} is no {wanted}")
    return reason.otherwise("the body does not fit the schema")


def _text(body: str) -> Column:
    return F.col(body).cast("string")
