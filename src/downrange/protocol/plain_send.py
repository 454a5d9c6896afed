"""The header of a send as producers mostly write it, read in one step.

A broker reads this header once for every message. Here its fields go straight from the bytes of the
frame into one tuple; what is written in any other way gives None and is read by `command_codec` and
`headers.send`, which take everything.

In the binary encoding the fields stand in the order of their letters. Those before the born time
(group, topic, queue, …) and those behind the property text come again and again from the same
producer, so what they say is remembered.
"""

import struct
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from downrange.protocol.binary_header import decode_fields
from downrange.protocol.command import ONE_WAY_FLAG, RESPONSE_FLAG, Serialization
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.integers import INT32_MAX, INT32_MIN, Int32, Int64
from downrange.protocol.request_codes import RequestCode

T = TypeVar("T")
# Opaque, topic, queue id, system flag, born time, flag, reconsume times, property text, whether the
# body is a batch.
PlainSend = tuple[int, str, int, int, int, int, int, bytes, bool]


class _Fields(msgspec.Struct, gc=False):
    # What nobody asks for is read, too: a send with nonsense in it is refused the long way.
    b: str
    d: Int32
    e: Int32
    f: Int32
    g: Int64
    h: Int32
    i: str
    j: Int32 = 0
    k: bool = False
    l: Int32 | None = None  # noqa: E741 - the wire name
    m: bool = False


class _Header(msgspec.Struct, gc=False):
    flag: int
    opaque: Int32
    extFields: _Fields  # noqa: N815 - the wire name, so msgspec need not rename


_JSON: Final = int(Serialization.JSON)
_BINARY: Final = int(Serialization.ROCKETMQ)
_NO_REQUEST: Final = RESPONSE_FLAG | ONE_WAY_FLAG  # or none that wants an answer
_ONE: Final = int(RequestCode.SEND_MESSAGE_V2)
_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_JSON_STARTS: Final = {b'{"code":%d,' % _ONE: False, b'{"code":%d,' % _BATCH: True}
_JSON_START_BYTES: Final = len(b'{"code":310,')
_decode_json: Final = msgspec.json.Decoder(_Header, strict=False).decode

_BINARY_STARTS: Final = {struct.pack(">h", _ONE): False, struct.pack(">h", _BATCH): True}
_FIXED: Final = struct.Struct(">hbhiiii")  # code to remark length, and the length of the fields
_LENGTH: Final = struct.Struct(">i")
_BORN_FIELD: Final = b"\x00\x01g\x00\x00\x00\x0d"  # a time in milliseconds has 13 digits
_BORN_BYTES: Final = len(_BORN_FIELD) + 13
_TEXT_FIELD: Final = b"\x00\x01i"
_FLAG_BYTES_MAX: Final = 7 + len(str(INT32_MIN))
_FLAG_NAME: Final = frozenset("h")
_NAMES_BEFORE: Final = frozenset("abcdef")
_NAMES_BEHIND: Final = frozenset("jklmn")
_SWITCHES: Final = ("false", "true")
_REMEMBERED_MAX: Final = 4096


class PlainSendReader:
    """Reads headers; owned by one broker, because it remembers what producers repeat."""

    def __init__(self) -> None:
        self._before: dict[bytes, tuple[str, int, int]] = {}
        self._flags: dict[bytes, int] = {}
        self._behind: dict[bytes, tuple[int, bool]] = {}

    def read(self, encoding: int, header: bytes) -> PlainSend | None:
        """The fields of a send that wants an answer; None for anything else."""
        if encoding == _JSON:
            is_batch = _JSON_STARTS.get(header[:_JSON_START_BYTES])
            if is_batch is None:
                return None
            try:
                read = _decode_json(header)
                fields = read.extFields
                text = fields.i.encode()
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                return None
            if read.flag & _NO_REQUEST or fields.m is not is_batch:
                return None
            return (
                read.opaque, fields.b, fields.e, fields.f, fields.g, fields.h, fields.j, text,
                is_batch,
            )  # fmt: skip
        is_batch = _BINARY_STARTS.get(header[:2])
        if is_batch is None or encoding != _BINARY:
            return None
        try:
            return self._read_binary(header, is_batch)
        except (struct.error, ValueError, KeyError, RemoteProtocolError):
            return None

    def _read_binary(self, header: bytes, is_batch: bool) -> PlainSend | None:
        """Raises or gives None where the header is not as it mostly is."""
        _, _, _, opaque, flag, remark_bytes, fields_bytes = _FIXED.unpack_from(header)
        born_at = header.index(_BORN_FIELD, _FIXED.size)
        born_end = born_at + _BORN_BYTES
        text_at = header.index(_TEXT_FIELD, born_end, born_end + _FLAG_BYTES_MAX + 3)
        (text_bytes,) = _LENGTH.unpack_from(header, text_at + 3)
        text_end = text_at + 7 + text_bytes
        text = header[text_at + 7 : text_end]
        if (
            flag & _NO_REQUEST
            or remark_bytes
            or fields_bytes != len(header) - _FIXED.size
            or not 0 <= text_bytes == len(text)
            or not text.isascii()
        ):
            return None
        area = header[_FIXED.size : born_at]
        before = self._before.get(area) or _remember(self._before, area, _read_before)
        area = header[born_end:text_at]
        message_flag = self._flags.get(area)
        if message_flag is None:
            message_flag = _remember(self._flags, area, _read_flag)
        area = header[text_end:]
        behind = self._behind.get(area) or _remember(self._behind, area, _read_behind)
        topic, queue_id, sys_flag = before
        reconsume_times, says_batch = behind
        born = header[born_at + len(_BORN_FIELD) : born_end]
        if not born.isdigit() or says_batch is not is_batch:
            return None
        return (
            opaque, topic, queue_id, sys_flag, int(born), message_flag, reconsume_times, text,
            is_batch,
        )  # fmt: skip


def _remember(known: dict[bytes, T], area: bytes, read: Callable[[bytes], T]) -> T:
    if len(known) >= _REMEMBERED_MAX:
        known.clear()
    known[area] = read(area)
    return known[area]


def _read_before(area: bytes) -> tuple[str, int, int]:
    """Topic, queue id and system flag."""
    fields = _checked(area, _NAMES_BEFORE)
    _int32(fields["d"])
    return fields["b"], _int32(fields["e"]), _int32(fields["f"])


def _read_flag(area: bytes) -> int:
    return _int32(_checked(area, _FLAG_NAME)["h"])


def _read_behind(area: bytes) -> tuple[int, bool]:
    """Reconsume times, and whether it is a batch."""
    fields = _checked(area, _NAMES_BEHIND)
    batch = fields.get("m", "false")
    if batch not in _SWITCHES or fields.get("k", "false") not in _SWITCHES:
        raise ValueError("neither true nor false")
    _int32(fields.get("l", "0"))
    return _int32(fields.get("j", "0")), batch == "true"


def _checked(area: bytes, names: frozenset[str]) -> dict[str, str]:
    fields = decode_fields(area)
    if not names.issuperset(fields):
        raise ValueError("fields in another order, or more of them")
    return fields


def _int32(text: str) -> int:
    number = int(text) if text.isascii() and text.removeprefix("-").isdigit() else INT32_MAX + 1
    if not INT32_MIN <= number <= INT32_MAX:
        raise ValueError(text)
    return number
