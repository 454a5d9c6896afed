"""Writes JSON as RocketMQ peers expect it, in one of two forms.

The loose form is what fastjson writes by default: keys that are numbers stand unquoted and an
object may be a key. The strict form is what the name server gives to peers that ask for standard
JSON: every key quoted, every map sorted. In both, the fields of a bean come in alphabetical order
and fields that are null are left out. Text is UTF-8 with the escapes of fastjson 2, the library of
RocketMQ 5.5; older releases escape a few control characters more, which reads the same.
"""

import math
from functools import cache
from typing import Final

import msgspec

from downrange.protocol.errors import LocalProtocolError

_encode_plain: Final = msgspec.json.Encoder().encode


def write_json(value: object, *, strict: bool = False) -> bytes:
    """Write a body, a list, a map or a plain value."""
    parts: list[bytes] = []
    try:
        _write(value, parts, strict)
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"text has no UTF-8 form: {error}") from None
    return b"".join(parts)


def _write(value: object, parts: list[bytes], strict: bool) -> None:
    match value:
        case msgspec.Struct():
            _write_bean(value, parts, strict)
        case dict():
            _write_map(value, parts, strict)
        case list() | tuple():
            parts.append(b"[")
            for item in value:
                _write(item, parts, strict)
                parts.append(b",")
            _close(parts, b"]")
        case float() if not math.isfinite(value):
            parts.append(b"null")
        case None | bool() | int() | float() | str():
            parts.append(_encode_plain(value))
        case _:
            raise LocalProtocolError(f"no JSON form for {type(value).__name__}")


def _write_bean(bean: msgspec.Struct, parts: list[bytes], strict: bool) -> None:
    parts.append(b"{")
    for label, attribute in _labels(type(bean)):
        value: object = getattr(bean, attribute)
        if value is not None:
            parts.append(label)
            _write(value, parts, strict)
            parts.append(b",")
    _close(parts, b"}")


def _write_map(members: dict[object, object], parts: list[bytes], strict: bool) -> None:
    parts.append(b"{")
    for key in _sorted_keys(members) if strict else members:
        value = members[key]
        if value is None:
            continue
        if isinstance(key, str) or (not strict and isinstance(key, int | msgspec.Struct)):
            _write(key, parts, strict)
        elif isinstance(key, int):
            parts.append(b'"%d"' % key)
        else:
            raise LocalProtocolError(f"no JSON key can be made of {key!r}")
        parts.append(b":")
        _write(value, parts, strict)
        parts.append(b",")
    _close(parts, b"}")


def _close(parts: list[bytes], bracket: bytes) -> None:
    if parts[-1] == b",":
        parts[-1] = bracket
    else:
        parts.append(bracket)


def _sorted_keys(members: dict[object, object]) -> list[object]:
    numbers = sorted(key for key in members if isinstance(key, int))
    texts = sorted(key for key in members if isinstance(key, str))
    others = [key for key in members if not isinstance(key, int | str)]
    return [*numbers, *texts, *others]


@cache
def _labels(bean: type[msgspec.Struct]) -> tuple[tuple[bytes, str], ...]:
    names = zip(bean.__struct_encode_fields__, bean.__struct_fields__, strict=True)
    return tuple((b'"%b":' % name.encode(), attribute) for name, attribute in sorted(names))
