"""How the bodies of a source become typed rows."""

from pathlib import Path
from typing import Protocol

from pyspark.sql import Column

from downrange.spark.pipelines.avro_bodies import AvroBodies
from downrange.spark.pipelines.definition import SourcePart
from downrange.spark.pipelines.json_bodies import JsonBodies
from downrange.spark.pipelines.watching import PipelineFailedError


class Bodies(Protocol):
    """Bodies in one encoding, with one schema."""

    def value(self, body: str) -> Column:
        """The column `body` as a struct of the schema."""
        ...

    def fault(self, body: str, value: str) -> Column:
        """Why a body is no row of the schema; null if it is one."""
        ...


def bodies_of(source: SourcePart) -> Bodies | None:
    """What a source says of its bodies; None if they stay bytes."""
    text = source.schema
    if source.schema_file:
        text = Path(source.schema_file).read_text(encoding="utf-8")
    if not text:
        return None
    if source.encoding == "json":
        return JsonBodies.of(text)
    try:
        return AvroBodies.of(text)
    except ValueError as error:
        raise PipelineFailedError(f"source {source.name!r}: {error}") from None
