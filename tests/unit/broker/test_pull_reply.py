"""The answer to a pull: what is written by hand is what the codec writes."""

import pytest

from downrange.broker.pull_reply import pull_reply
from downrange.protocol.command import Command, Serialization, response
from downrange.protocol.command_codec import decode_command, encode_command
from downrange.protocol.frame import FrameDecoder
from downrange.protocol.response_codes import ResponseCode
from downrange.store.reader import ReadResult, ReadStatus

BODY = b"records"
FOUND = ReadResult(ReadStatus.FOUND, [memoryview(BODY)], 3, len(BODY), 7, 2, 1 << 40, False, 0)
NOTHING = ReadResult(ReadStatus.OFFSET_OVERFLOW_ONE, [], 0, 0, 5, 0, 5, False, 0)


@pytest.mark.parametrize("serialization", Serialization)
@pytest.mark.parametrize(
    ("code", "result"),
    [(ResponseCode.SUCCESS, FOUND), (ResponseCode.PULL_NOT_FOUND, NOTHING)],
    ids=["found", "nothing"],
)
@pytest.mark.parametrize("opaque", [0, -1, 1 << 30])
def test_answer_is_what_the_codec_writes(
    serialization: Serialization, code: int, result: ReadResult, opaque: int
) -> None:
    request = Command(code=11, opaque=opaque, serialization=serialization)
    fields = {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(result.next_offset),
        "minOffset": str(result.min_offset),
        "maxOffset": str(result.max_offset),
        "topicSysFlag": "4",
        "groupSysFlag": "1",
    }
    body = b"".join(result.views) or None
    expected = response(request, code, remark=result.status.name, ext_fields=fields, body=body)
    frame = b"".join((pull_reply(request, code, result, 4, 1), *result.views))
    assert frame == encode_command(expected)
    decoder = FrameDecoder()
    decoder.feed(frame)
    read = decoder.next_frame()
    assert read is not None
    assert decode_command(read) == expected
