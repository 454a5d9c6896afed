"""Frames of the real RocketMQ: read and written again they are the same bytes."""

from collections import defaultdict
from collections.abc import Iterator

import pytest
from golden.captured import CapturedFrame, frames

from downrange.protocol.batch import decode_batch, encode_batch
from downrange.protocol.command import Command
from downrange.protocol.command_codec import decode_command, encode_command
from downrange.protocol.frame import Frame, FrameDecoder, encode_frame
from downrange.protocol.headers.fields import decode_header, encode_header
from downrange.protocol.headers.table import REQUEST_HEADERS, RESPONSE_HEADERS
from downrange.protocol.record import decode_records, encode_record
from downrange.protocol.request_codes import RequestCode

# Fields that any request may carry and no header class names; ReqT marks lite pull consumers.
BASE_FIELDS = {"ns", "nsd", "bname", "oway", "lo", "ReqT"}
# Escaped by fastjson 1, the library of RocketMQ 4.9; by fastjson 2 in 5.5 they are not.
ESCAPED_BY_4_9 = (b"\\u007F", b"\\u0085", b"\\u2028")
CHUNK_BYTES = (1, 7, 4096)
RESPONSES_OF_RECORDS = {
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.QUERY_MESSAGE,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.POP_MESSAGE,
}


def cut(frame: bytes) -> Frame:
    decoder = FrameDecoder()
    decoder.feed(frame)
    found = decoder.next_frame()
    assert found is not None
    assert decoder.buffered_bytes == 0
    return found


def commands() -> Iterator[tuple[CapturedFrame, Command, int]]:
    """Frame, command and the request code it is about; the code of the request for responses."""
    asked: dict[tuple[str, str, int, str, int], int] = {}
    for captured in frames():
        command = decode_command(cut(captured.frame))
        other = "server" if captured.sender == "client" else "client"
        place = (captured.capture, captured.session, captured.connection)
        if not command.is_response:
            asked[*place, captured.sender, command.opaque] = command.code
            yield captured, command, command.code
        else:
            yield captured, command, asked[*place, other, command.opaque]


def test_the_capture_holds_both_encodings_of_both_releases() -> None:
    seen = {(f.is_from_4_9, f.frame[4]) for f in frames()}
    assert seen == {(False, 0), (False, 1), (True, 0), (True, 1)}


def test_a_frame_written_again_has_the_same_bytes() -> None:
    for captured in frames():
        assert encode_frame(cut(captured.frame)) == captured.frame


@pytest.mark.parametrize("chunk_bytes", CHUNK_BYTES)
def test_a_connection_read_in_pieces_gives_the_same_frames(chunk_bytes: int) -> None:
    streams: dict[tuple[str, str, int, str], list[bytes]] = defaultdict(list)
    for captured in frames():
        key = (captured.capture, captured.session, captured.connection, captured.sender)
        streams[key].append(captured.frame)
    for expected in streams.values():
        stream = b"".join(expected)
        decoder = FrameDecoder()
        found = []
        for start in range(0, len(stream), chunk_bytes):
            decoder.feed(stream[start : start + chunk_bytes])
            while (frame := decoder.next_frame()) is not None:
                found.append(encode_frame(frame))
        assert found == expected


def test_a_command_written_again_has_the_same_bytes() -> None:
    for captured in frames():
        command = decode_command(cut(captured.frame))
        again = encode_command(command)
        if captured.is_from_4_9 and any(text in captured.frame for text in ESCAPED_BY_4_9):
            assert decode_command(cut(again)) == command
        else:
            assert again == captured.frame


def test_a_typed_header_written_again_has_the_same_fields() -> None:
    seen = set()
    for captured, command, code in commands():
        table = RESPONSE_HEADERS if command.is_response else REQUEST_HEADERS
        header_type = table.get(RequestCode(code))
        if header_type is None or not command.ext_fields:
            continue
        expected = {k: v for k, v in command.ext_fields.items() if k not in BASE_FIELDS}
        written = encode_header(decode_header(header_type, command.ext_fields))
        # What the sender left out may come out as its default, but nothing may change or vanish.
        assert {name: written.get(name) for name in expected} == expected, (captured, command)
        seen.add((code, command.is_response))
    assert len(seen) > 40


def test_a_batch_written_again_has_the_same_bytes() -> None:
    bodies = [
        command.body
        for _, command, code in commands()
        if code == RequestCode.SEND_BATCH_MESSAGE and not command.is_response
    ]
    assert len(bodies) > 5
    for body in bodies:
        assert body is not None
        assert encode_batch(decode_batch(body)) == body


def test_records_in_an_answer_written_again_have_the_same_bytes() -> None:
    count = 0
    for _, command, code in commands():
        if command.is_response and code in RESPONSES_OF_RECORDS and command.body:
            records = list(decode_records(command.body))
            assert b"".join(map(encode_record, records)) == command.body
            count += len(records)
    assert count > 300
