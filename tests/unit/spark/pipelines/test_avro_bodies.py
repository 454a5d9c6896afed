"""Schemas of Avro bodies: what is refused, and the bytes of a record of nulls."""

import json

import pytest

from downrange.spark.pipelines.avro_bodies import AvroBodies


def record(*types: object) -> str:
    fields = [{"name": f"f{place}", "type": one} for place, one in enumerate(types)]
    return json.dumps({"type": "record", "name": "r", "fields": fields})


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("{", "the schema is no JSON"),
        ('"string"', "no Avro record"),
        ('{"type": "enum", "symbols": []}', "no Avro record"),
        ('{"type": "record", "name": "r", "fields": []}', "without fields"),
        ('{"type": "record", "name": "r", "fields": [1]}', "without a name or a type"),
    ],
)
def test_what_is_no_record_is_refused(schema: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        AvroBodies.of(schema)


@pytest.mark.parametrize(
    ("types", "nothing"),
    [
        (("long",), None),
        ((["null", "long"], "string"), None),
        ((["null", "long"], ["string", "null"]), b"\x00\x02"),
        (("null", ["long", "string", "null"]), b"\x04"),
    ],
)
def test_a_record_of_nulls_has_known_bytes(
    types: tuple[object, ...], nothing: bytes | None
) -> None:
    bodies = AvroBodies.of(record(*types))
    assert bodies.nothing == nothing
    assert bodies.names == tuple(f"f{place}" for place in range(len(types)))
