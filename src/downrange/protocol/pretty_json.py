"""Writes JSON as the configuration files of RocketMQ 5.5 have it: one member a line, tabs.

    {
        "offsetTable":{
                "TopicTest@group":{
                        0:123
                }
        }
    }

The fields of a bean come in alphabetical order, map keys that are numbers stand unquoted, members
that are null are left out and an empty map is {}. The library (fastjson 2) writes a list of numbers
on one line and any other list one element a line, where an empty one has an empty line in it: here
a tuple is the former and a list the latter.
"""

from functools import cache

import msgspec

from downrange.protocol.errors import LocalProtocolError

_encode_scalar = msgspec.json.Encoder().encode


def write_pretty_json(value: object) -> bytes:
    """The text of a file, without a line end after the last line, as RocketMQ leaves it."""
    parts: list[bytes] = []
    try:
        _write(value, b"\n", parts)
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"text has no UTF-8 form: {error}") from None
    return b"".join(parts)


def _write(value: object, line: bytes, parts: list[bytes]) -> None:
    """`line` is a line end with the indentation of the value itself."""
    inner = line + b"\t"
    match value:
        case list():
            parts += (b"[", inner)
            for item in value:
                _write(item, inner, parts)
                parts += (b",", inner)
            if value:
                del parts[-2:]
            parts += (line, b"]")
        case tuple():
            parts.append(b"[%b]" % b",".join(b"%d" % number for number in value))
        case msgspec.Struct():
            members: dict[object, object] = {
                name: getattr(value, attribute) for name, attribute in _names(type(value))
            }
            _write_members(members, line, parts)
        case dict():
            _write_members(value, line, parts)
        case None | bool() | int() | str():
            parts.append(_encode_scalar(value))
        case _:
            raise LocalProtocolError(f"no JSON form for {type(value).__name__}")


def _write_members(members: dict[object, object], line: bytes, parts: list[bytes]) -> None:
    inner = line + b"\t"
    parts.append(b"{")
    for key, member in members.items():
        if type(member) is int and type(key) is int:  # offsets by queue, most of the largest file
            parts += (inner, b"%d:%d" % (key, member), b",")
        elif member is not None:
            parts.append(inner)
            if isinstance(key, msgspec.Struct):  # a queue, in a consumer's file of offsets
                _write(key, inner, parts)
            elif isinstance(key, str | int):
                parts.append(_encode_scalar(key))
            else:
                raise LocalProtocolError(f"no JSON key can be made of {key!r}")
            parts.append(b":")
            _write(member, inner, parts)
            parts.append(b",")
    parts[-1] = b"{}" if parts[-1] == b"{" else line + b"}"


@cache
def _names(bean: type[msgspec.Struct]) -> list[tuple[str, str]]:
    return sorted(zip(bean.__struct_encode_fields__, bean.__struct_fields__, strict=True))
