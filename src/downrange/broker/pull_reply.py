"""The answer to a pull, written without a detour: one goes out for every few messages."""

from struct import Struct

from downrange.protocol.command import Command, Serialization, response
from downrange.protocol.command_codec import encode_command_start
from downrange.protocol.versions import CURRENT_VERSION
from downrange.store.reader import ReadResult, ReadStatus

_pack_frame_start = Struct(">iI").pack  # the encoding of a JSON header is 0
_JSON_FOUND = (
    b'{"code":0,"extFields":{"suggestWhichBrokerId":"0","nextBeginOffset":"%d","minOffset":"%d",'
    b'"maxOffset":"%d","topicSysFlag":"%d","groupSysFlag":"%d"},"flag":1,"language":"PYTHON",'
    b'"opaque":%d,"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":'
    + str(CURRENT_VERSION).encode()
    + b"}"
)
_LENGTH_BYTES = 4


def pull_reply(
    request: Command, code: int, result: ReadResult, topic_sys_flag: int, group_sys_flag: int
) -> bytes:
    """The frame up to its body, which the caller sends after it."""
    status, _, _, size, next_offset, min_offset, max_offset, _, _ = result
    if status is ReadStatus.FOUND and request.serialization is Serialization.JSON:
        header = _JSON_FOUND % (
            next_offset, min_offset, max_offset, topic_sys_flag, group_sys_flag, request.opaque,
        )  # fmt: skip
        length = len(header)
        return _pack_frame_start(_LENGTH_BYTES + length + size, length) + header
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
