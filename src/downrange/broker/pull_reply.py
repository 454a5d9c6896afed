"""The answer to a pull, written without a detour: one goes out for every few messages."""

from struct import Struct

from downrange.protocol.command import RESPONSE_FLAG, Command, Serialization, response
from downrange.protocol.command_codec import encode_command_start
from downrange.protocol.languages import LanguageCode
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.versions import CURRENT_VERSION
from downrange.store.reader import ReadResult, ReadStatus

_LENGTH_BYTES = 4
_pack_json_start = Struct(">iI").pack  # the frame's length, 0 for JSON and the header's length
_JSON_FOUND = (
    b'{"code":0,"extFields":{"suggestWhichBrokerId":"0","nextBeginOffset":"%d","minOffset":"%d",'
    b'"maxOffset":"%d","topicSysFlag":"%d","groupSysFlag":"%d"},"flag":1,"language":"PYTHON",'
    b'"opaque":%d,"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":'
    + str(CURRENT_VERSION).encode()
    + b"}"
)
_BINARY_MARK = int(Serialization.ROCKETMQ) << 24
# Length, encoding and header length; code, language, version, opaque, flag, remark, fields' length.
_BINARY_START = Struct(">iIHbHiii5si")
_pack_binary_start = _BINARY_START.pack
_BINARY_HEADER_BYTES = _BINARY_START.size - 2 * _LENGTH_BYTES
_LANGUAGE = int(LanguageCode.PYTHON)
_VERSION = CURRENT_VERSION & 0xFFFF
_FOUND = int(ResponseCode.SUCCESS)
_REMARK = b"FOUND"
# A field's length stands before it, so the numbers come with their lengths as pieces of their own.
_BINARY_FIELDS = (
    b"%b\0\x14suggestWhichBrokerId\0\0\0\x010\0\x0fnextBeginOffset%b%b\0\x09minOffset%b%b"
    b"\0\x09maxOffset%b%b\0\x0ctopicSysFlag%b%b\0\x0cgroupSysFlag%b%b"
)
_LENGTHS = [length.to_bytes(_LENGTH_BYTES, "big") for length in range(len(str(-(1 << 63))) + 1)]
_BINARY_FIELDS_BYTES = len(_BINARY_FIELDS.replace(b"%b", b"")) + 5 * _LENGTH_BYTES


def pull_reply(
    request: Command, code: int, result: ReadResult, topic_sys_flag: int, group_sys_flag: int
) -> bytes:
    """The frame up to its body, which the caller sends after it."""
    status, _, _, size, next_offset, min_offset, max_offset, _, _ = result
    if status is ReadStatus.FOUND:
        numbers = (next_offset, min_offset, max_offset, topic_sys_flag, group_sys_flag)
        if request.serialization is Serialization.JSON:
            header = _JSON_FOUND % (*numbers, request.opaque)
            length = len(header)
            return _pack_json_start(_LENGTH_BYTES + length + size, length) + header
        return _binary_found(request.opaque, size, numbers)
    fields = {
        "suggestWhichBrokerId": "0",  # the master's
        "nextBeginOffset": str(next_offset),
        "minOffset": str(min_offset),
        "maxOffset": str(max_offset),
        "topicSysFlag": str(topic_sys_flag),
        "groupSysFlag": str(group_sys_flag),
    }
    head = response(request, code, remark=status.name, ext_fields=fields)
    return encode_command_start(head, size)


def _binary_found(opaque: int, body_bytes: int, numbers: tuple[int, int, int, int, int]) -> bytes:
    next_, min_, max_, topic, group = [b"%d" % number for number in numbers]
    fields_bytes = (
        _BINARY_FIELDS_BYTES + len(next_) + len(min_) + len(max_) + len(topic) + len(group)
    )
    header_bytes = _BINARY_HEADER_BYTES + fields_bytes
    start = _pack_binary_start(
        _LENGTH_BYTES + header_bytes + body_bytes, _BINARY_MARK | header_bytes, _FOUND, _LANGUAGE,
        _VERSION, opaque, RESPONSE_FLAG, len(_REMARK), _REMARK, fields_bytes,
    )  # fmt: skip
    return _BINARY_FIELDS % (
        start,
        _LENGTHS[len(next_)], next_,
        _LENGTHS[len(min_)], min_,
        _LENGTHS[len(max_)], max_,
        _LENGTHS[len(topic)], topic,
        _LENGTHS[len(group)], group,
    )  # fmt: skip
