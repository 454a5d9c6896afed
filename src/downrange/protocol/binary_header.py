"""The header of a command in the encoding RocketMQ calls ROCKETMQ.

    +------+----------+---------+--------+------+---------------+--------+------------+--------+
    | code | language | version | opaque | flag | remark length | remark | ext length | fields |
    | 2    | 1        | 2       | 4      | 4    | 4             |        | 4          |        |
    +------+----------+---------+--------+------+---------------+--------+------------+--------+

    field: key length 2, key, value length 4, value

Numbers are signed and big endian, text is UTF-8. There is no null: a text of length 0 reads as
null, and a field whose key or value is null is no field.

The code has 16 bits, and Java cuts a longer one without a word: POP_MESSAGE 200050 travels as 3442.
We write the same and restore the number of a request when we read one.
"""

import struct
from functools import lru_cache
from typing import Final

from downrange.protocol.command import RESPONSE_FLAG, Command, Serialization
from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError
from downrange.protocol.languages import language_of_number
from downrange.protocol.request_codes import WIDE_CODE_BY_LOW_HALF

_FIXED: Final = struct.Struct(">hbhiii")  # code to remark length
_FIXED_OUT: Final = struct.Struct(">HbHiiI")  # the same, with code and version already cut
_LENGTH: Final = struct.Struct(">i")
_KEY_LENGTH: Final = struct.Struct(">H")
_KEY_BYTES_MAX: Final = 0x7FFF


def decode_binary_header(header: bytes, body: bytes | None) -> Command:
    """Read a binary header; broken UTF-8 is replaced as in Java, broken lengths are refused."""
    try:
        code, language, version, opaque, flag, remark_bytes = _FIXED.unpack_from(header)
        remark_end = _FIXED.size + remark_bytes
        (fields_bytes,) = _LENGTH.unpack_from(header, remark_end)
    except struct.error:
        raise RemoteProtocolError(
            f"binary header of {len(header)} bytes ends inside its fixed part or its remark"
        ) from None
    fields_start = remark_end + _LENGTH.size
    if remark_bytes < 0 or not 0 <= fields_bytes <= len(header) - fields_start:
        raise RemoteProtocolError(
            f"binary header of {len(header)} bytes claims a remark of {remark_bytes} and "
            f"fields of {fields_bytes} bytes"
        )
    if not flag & RESPONSE_FLAG:
        code = WIDE_CODE_BY_LOW_HALF.get(code, code)
    remark = header[_FIXED.size : remark_end].decode("utf-8", "replace") if remark_bytes else None
    fields = None
    if fields_bytes:
        fields = decode_fields(header[fields_start : fields_start + fields_bytes])
    return Command(
        code=code,
        language=language_of_number(language),
        version=version,
        opaque=opaque,
        flag=flag,
        remark=remark,
        ext_fields=fields,
        body=body,
        serialization=Serialization.ROCKETMQ,
    )


def encode_binary_header(command: Command) -> bytes:
    """Write a binary header with the bytes Java would write; empty texts become null."""
    try:
        remark = command.remark.encode() if command.remark else b""
        fields = _encode_fields(command.ext_fields) if command.ext_fields else b""
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"a field of the header has no UTF-8 form: {error}") from None
    try:
        fixed = _FIXED_OUT.pack(
            command.code & 0xFFFF,
            command.language,
            command.version & 0xFFFF,
            command.opaque,
            command.flag,
            len(remark),
        )
    except struct.error as error:
        raise LocalProtocolError(f"a number of the header has more than 32 bits: {error}") from None
    return b"%b%b%b%b" % (fixed, remark, _LENGTH.pack(len(fields)), fields)


def decode_fields(area: bytes) -> dict[str, str]:
    """The fields of a header's area, or of a piece of it that ends between two fields."""
    # Lengths below 128 are ASCII too, so most areas are plain ASCII as a whole: then one decoding
    # serves all fields, and a field costs two slices.
    text = area.decode("ascii") if area.isascii() else None
    fields: dict[str, str] = {}
    position = 0
    end = len(area)
    try:
        while position < end:
            key_start = position + 2
            key_end = key_start + (area[position] << 8 | area[position + 1])
            (value_bytes,) = _LENGTH.unpack_from(area, key_end)
            value_start = key_end + 4
            position = value_start + value_bytes
            if value_bytes <= 0 or key_end == key_start:
                if value_bytes < 0:
                    raise RemoteProtocolError(f"field value of {value_bytes} bytes")
            elif text is not None:
                fields[text[key_start:key_end]] = text[value_start:position]
            else:
                key = area[key_start:key_end].decode("utf-8", "replace")
                fields[key] = area[value_start:position].decode("utf-8", "replace")
    except (struct.error, IndexError):
        position = end + 1
    if position != end:
        raise RemoteProtocolError("a field of the binary header reaches over the end of its area")
    return fields


def _encode_fields(fields: dict[str, str]) -> bytes:
    parts: list[bytes] = []
    for name, value in fields.items():
        data = value.encode()
        parts += (_encode_key(name), _LENGTH.pack(len(data)), data)
    return b"".join(parts)


@lru_cache(maxsize=1024)
def _encode_key(name: str) -> bytes:
    key = name.encode()
    if len(key) > _KEY_BYTES_MAX:
        raise LocalProtocolError(f"field name of {len(key)} bytes: {name[:40]!r}")
    return _KEY_LENGTH.pack(len(key)) + key
