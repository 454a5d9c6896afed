"""Typed bodies from JSON text and back.

A body class names its members as Java does (camel case) and may declare them in any order: they
are written alphabetically. What a peer leaves out gets the default of the class; what no body of
its kind can do without has none, and then its absence is the peer's fault.
"""

from typing import Final, TypeVar

import msgspec

from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.json_text import write_json
from downrange.protocol.loose_json import DEPTH_MAX, JsonValue, read_json


class Body(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What all bodies share; a subclass repeats `frozen=True, kw_only=True`."""


ITEMS_WITH_NULLS_MAX: Final = 50_000
"""As many as a list of 5,000 topics has; taking out nulls costs a microsecond each."""

B = TypeVar("B")


def decode_body(body_type: type[B], data: bytes | None) -> B:
    """Read a body; members may be unknown, null, or numbers written as text."""
    if not data:
        raise RemoteProtocolError(f"{_name(body_type)}: the body is missing")
    return convert_body(body_type, read_json(data))


def convert_body(body_type: type[B], value: JsonValue) -> B:
    """Give JSON that was already read its type."""
    try:
        return _convert(body_type, value)
    except msgspec.ValidationError:
        pass
    # Java leaves a member that is null as it was, which is as if it were missing.
    try:
        return _convert(body_type, _NullFilter().without_nulls(value, 0))
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(f"{_name(body_type)}: {error}") from None


def encode_body(body: msgspec.Struct, *, strict: bool = False) -> bytes:
    """Write a body, or a plain value of the model, as fastjson does; `strict` as `write_json`."""
    return write_json(body, strict=strict)


def _convert(body_type: type[B], value: JsonValue) -> B:
    return msgspec.convert(value, body_type, strict=False, str_keys=True)


class _NullFilter:
    """Takes the nulls out of one body; counts, because it is slow."""

    def __init__(self) -> None:
        self._room = ITEMS_WITH_NULLS_MAX

    def without_nulls(self, value: JsonValue, depth: int) -> JsonValue:
        """The same value; `RemoteProtocolError` if it is too large or nested too deeply."""
        if not isinstance(value, dict | list):
            return value
        self._room -= len(value)
        if depth > DEPTH_MAX or self._room < 0:
            raise RemoteProtocolError(
                f"JSON is nested too deeply, or has more than {ITEMS_WITH_NULLS_MAX} members and "
                "one that is null or missing"
            )
        if isinstance(value, list):
            return [self.without_nulls(item, depth + 1) for item in value if item is not None]
        return {
            name: self.without_nulls(member, depth + 1)
            for name, member in value.items()
            if member is not None
        }


def _name(body_type: type[B]) -> str:
    return getattr(body_type, "__name__", str(body_type))
