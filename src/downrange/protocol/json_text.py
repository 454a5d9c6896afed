"""Writes JSON as RocketMQ peers expect it, in one of two forms.

The loose form is what fastjson writes by default: keys that are numbers stand unquoted and an
object may be a key. The strict form is what the name server gives to peers that ask for standard
JSON: every key quoted, every map sorted. In both, the fields of a bean come in alphabetical order
and fields that are null are left out. Text is UTF-8 with the escapes of fastjson 2, the library of
RocketMQ 5.5; older releases escape a few control characters more, which reads the same.
"""

import math
from collections.abc import Generator
from functools import cache
from typing import Final

import msgspec

from downrange.protocol.errors import LocalProtocolError

_PARTS_MAX: Final = 4_000
_LARGE: Final = (msgspec.Struct, dict, list, tuple)
_encode_plain: Final = msgspec.json.Encoder().encode


def write_json(value: object, *, strict: bool = False) -> bytes:
    """Write a body, a list, a map or a plain value."""
    parts: list[bytes] = []
    try:
        _write(value, parts, strict)
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"text has no UTF-8 form: {error}") from None
    return b"".join(parts)


def write_json_steps(value: object) -> Generator[None, None, bytes]:
    """The loose form of a large body, made in steps: a pause after each member of a map or list."""
    parts: list[bytes] = []
    text = bytearray()
    try:
        for _ in _write_steps(value, parts):
            if len(parts) > _PARTS_MAX:
                # Joining a million parts at the end would be one long step.
                text += b"".join(parts[:-1])
                del parts[:-1]  # what closes a map or list looks at the last one
            yield
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"text has no UTF-8 form: {error}") from None
    text += b"".join(parts)
    return bytes(text)


def _write_steps(value: object, parts: list[bytes]) -> Generator[None, None, None]:
    """What `_write` does; values without members are written at once."""
    if isinstance(value, msgspec.Struct):
        parts.append(b"{")
        for label, attribute in _labels(type(value)):
            member: object = getattr(value, attribute)
            if member is not None:
                parts.append(label)
                if isinstance(member, _LARGE):
                    yield from _write_steps(member, parts)
                else:
                    _write(member, parts, strict=False)
                parts.append(b",")
        _close(parts, b"}")
    elif isinstance(value, dict):
        parts.append(b"{")
        for key, member in value.items():
            if member is None:
                continue
            if not isinstance(key, str | int | msgspec.Struct):
                raise LocalProtocolError(f"no JSON key can be made of {key!r}")
            _write(key, parts, strict=False)
            parts.append(b":")
            yield from _write_steps(member, parts)
            parts.append(b",")
            yield
        _close(parts, b"}")
    elif isinstance(value, list | tuple):
        parts.append(b"[")
        for item in value:
            yield from _write_steps(item, parts)
            parts.append(b",")
            yield
        _close(parts, b"]")
    else:
        _write(value, parts, strict=False)


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
