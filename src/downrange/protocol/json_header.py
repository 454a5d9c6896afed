"""The header of a command as JSON text, which all but the benchmark tools of RocketMQ send.

    {"code":310,"extFields":{"a":"group","b":"topic"},"flag":0,"language":"JAVA","opaque":7,
     "remark":"...","serializeTypeCurrentRPC":"JSON","version":513}

Java writes the members in this order and leaves out `remark` and `extFields` when they are null;
so do we, byte for byte. Reading takes any order and ignores members it does not know.
"""

from typing import Final

import msgspec

from downrange.protocol.command import Command, Serialization
from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError
from downrange.protocol.integers import INT32_MAX, INT32_MIN, Int32
from downrange.protocol.languages import LanguageCode, language_of_name, language_of_number
from downrange.protocol.loose_json import (
    LOOSE_BYTES_MAX,
    JsonKey,
    JsonValue,
    ObjectKey,
    read_json,
)


class _Header(msgspec.Struct, frozen=True):
    """What a header holds when it is written as Java and Go write it."""

    code: Int32 = 0
    language: str = LanguageCode.JAVA.name
    version: Int32 = 0
    opaque: Int32 = 0
    flag: Int32 = 0
    remark: str | None = None
    extFields: dict[str, str] | None = None  # noqa: N815 - the wire name, so msgspec need not rename


_decode: Final = msgspec.json.Decoder(_Header, strict=False).decode
_encode: Final = msgspec.json.Encoder().encode
_LANGUAGE_TEXTS: Final = {language: language.name.encode() for language in LanguageCode}


def decode_json_header(header: bytes, body: bytes | None) -> Command:
    """Read a JSON header; members may be missing, null, or numbers written as text."""
    try:
        known = _decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        known = _decode_loosely(header)
    return Command(
        code=known.code,
        language=language_of_name(known.language),
        version=known.version,
        opaque=known.opaque,
        flag=known.flag,
        remark=known.remark,
        ext_fields=known.extFields,
        body=body,
        serialization=Serialization.JSON,
    )


def encode_json_header(command: Command) -> bytes:
    """Write a JSON header with the bytes Java would write."""
    fields = command.ext_fields
    remark = command.remark
    try:
        return b'{"code":%d%b,"flag":%d,"language":"%b","opaque":%d%b%b%d}' % (
            command.code,
            b"" if fields is None else b',"extFields":' + _encode(fields),
            command.flag,
            _LANGUAGE_TEXTS[command.language],
            command.opaque,
            b"" if remark is None else b',"remark":' + _encode(remark),
            b',"serializeTypeCurrentRPC":"JSON","version":',
            command.version,
        )
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"a field of the header has no UTF-8 form: {error}") from None


def _decode_loosely(header: bytes) -> _Header:
    members = read_json(header, loose_bytes_max=LOOSE_BYTES_MAX)
    if not isinstance(members, dict):
        raise RemoteProtocolError("the JSON header is not an object")
    return _Header(
        code=_number(members, "code"),
        language=_language(members.get("language", LanguageCode.JAVA.name)),
        version=_number(members, "version"),
        opaque=_number(members, "opaque"),
        flag=_number(members, "flag"),
        remark=_text(members.get("remark")),
        extFields=_fields(members.get("extFields")),
    )


def _number(members: dict[JsonKey, JsonValue], name: str) -> int:
    """Read what Java would see: 0 for null and empty text, the whole part of a fraction."""
    value = members.get(name)
    try:
        number = int(value or 0) if not isinstance(value, list | dict) else None
    except (ValueError, OverflowError):
        number = None
    if number is None or not INT32_MIN <= number <= INT32_MAX:
        raise RemoteProtocolError(
            f"JSON header: {name} is {str(value)[:40]!r}, not a 32-bit number"
        )
    return number


def _language(value: JsonValue) -> str:
    return language_of_number(value).name if isinstance(value, int) else str(value)


def _text(value: JsonValue) -> str | None:
    return value if value is None or isinstance(value, str) else _encode(value).decode()


def _fields(value: JsonValue) -> dict[str, str] | None:
    if not value:
        return {} if isinstance(value, dict) else None
    if not isinstance(value, dict):
        raise RemoteProtocolError("JSON header: extFields is not an object")
    fields: dict[str, str] = {}
    for name, field in value.items():
        if isinstance(name, ObjectKey) or isinstance(field, list | dict):
            raise RemoteProtocolError(f"JSON header: extFields has {str(name)[:40]!r}, not as text")
        text = _text(field)
        if text is not None:  # Java keeps the null, and whoever asks for it finds nothing
            fields[name] = text
    return fields
