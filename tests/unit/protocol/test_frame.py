"""Frames: every split of a stream gives the same frames, and nonsense is named as what it is."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError
from downrange.protocol.frame import (
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
    Frame,
    FrameDecoder,
    encode_frame,
    encode_frame_start,
)

FRAMES = [Frame(0, b'{"code":1}', b"body"), Frame(1, b"", None), Frame(7, b"h", b"\x00")]
STREAM = b"".join(encode_frame(frame) for frame in FRAMES)


def frames_of(decoder: FrameDecoder, *pieces: bytes) -> list[Frame]:
    frames = []
    for piece in pieces:
        decoder.feed(piece)
        while (frame := decoder.next_frame()) is not None:
            frames.append(frame)
    return frames


def error_of(data: bytes, frame_bytes_max: int = FRAME_BYTES_MAX) -> str:
    decoder = FrameDecoder(frame_bytes_max)
    decoder.feed(data)
    with pytest.raises(RemoteProtocolError) as first:
        decoder.next_frame()
    with pytest.raises(RemoteProtocolError) as second:
        decoder.next_frame()
    assert str(first.value) == str(second.value), "a broken stream stays broken"
    return str(first.value)


def test_a_frame_has_the_layout_of_the_drawing() -> None:
    assert encode_frame(Frame(1, b"head", b"body")) == b"\0\0\0\x0c\x01\0\0\x04headbody"


def test_every_pair_of_cuts_gives_the_same_frames() -> None:
    for first in range(len(STREAM) + 1):
        for second in range(first, len(STREAM) + 1):
            decoder = FrameDecoder()
            pieces = STREAM[:first], STREAM[first:second], STREAM[second:]
            assert frames_of(decoder, *pieces) == FRAMES, (first, second)
            assert decoder.buffered_bytes == 0


def test_single_bytes_give_the_same_frames() -> None:
    assert frames_of(FrameDecoder(), *(bytes([byte]) for byte in STREAM)) == FRAMES


def test_bytes_fed_before_earlier_frames_are_taken_are_kept() -> None:
    decoder = FrameDecoder()
    for cut in range(0, len(STREAM), 5):
        decoder.feed(STREAM[cut : cut + 5])
    assert frames_of(decoder, STREAM) == FRAMES * 2


@given(
    st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40), st.binary(max_size=40))),
    st.lists(st.integers(1, 60)),
)
def test_any_frames_survive_any_split(
    parts: list[tuple[int, bytes, bytes]], cuts: list[int]
) -> None:
    frames = [Frame(encoding, header, body or None) for encoding, header, body in parts]
    stream = b"".join(encode_frame(frame) for frame in frames)
    pieces = []
    for cut in cuts:
        pieces.append(stream[:cut])
        stream = stream[cut:]
    assert frames_of(FrameDecoder(), *pieces, stream) == frames


def test_no_body_and_an_empty_body_look_alike() -> None:
    assert encode_frame(Frame(0, b"h", b"")) == encode_frame(Frame(0, b"h", None))
    assert frames_of(FrameDecoder(), encode_frame(Frame(0, b"h", b"")))[0].body is None


def test_the_limit_counts_the_length_field() -> None:
    data = encode_frame(Frame(0, b"h" * 10, b"b" * 10))
    assert frames_of(FrameDecoder(len(data)), data)
    assert error_of(data, len(data) - 1) == "frame of 28 bytes is over the limit of 27"


def test_a_refused_length_is_refused_before_its_frame_arrives() -> None:
    assert "over the limit" in error_of(b"\x01\x00\x00\x00")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff\xff\xff\xff", "negative frame length -1"),
        (b"\x00\x00\x00\x03abc", "leaves no room for a header"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x01", "header of 1 bytes in a frame that has only 0"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "TLS"),
        (b"GET / HTTP/1.1\r\n", "speaks HTTP;"),
        (b"POST /x HTTP/1.1\r\n", "speaks HTTP;"),
        (b"PRI * HTTP/2.0\r\n", "HTTP/2"),
        (b"PROXY TCP4 1.2.3.4 ", "PROXY protocol (v1)"),
        (b"\r\n\r\n\x00\r\nQUIT\n", "PROXY protocol (v2)"),
    ],
)
def test_nonsense_is_named(data: bytes, words: str) -> None:
    assert words in error_of(data)


def test_good_frames_before_nonsense_are_still_given_out() -> None:
    decoder = FrameDecoder()
    decoder.feed(STREAM + b"\xff\xff\xff\xff")
    for frame in FRAMES:
        assert decoder.next_frame() == frame
    with pytest.raises(RemoteProtocolError):
        decoder.next_frame()


def test_frames_are_given_together_up_to_a_number() -> None:
    decoder = FrameDecoder()
    decoder.feed(STREAM + STREAM[:5])
    taken = [(decoder.next_frames(2), decoder.has_more) for _ in range(3)]
    # What is left then is no whole frame, which shows only when it is asked for.
    assert taken == [(FRAMES[:2], True), (FRAMES[2:], True), ([], False)]
    decoder.feed(STREAM[5:])
    assert decoder.has_more
    assert [(decoder.next_frames(9), decoder.has_more)] == [(FRAMES, False)]


def test_frames_before_nonsense_are_given_together_and_then_it_is_named() -> None:
    for nonsense in (b"\xff\xff\xff\xff", b"\x00\x00\x00\x04\x00\x00\x00\x01"):
        decoder = FrameDecoder()
        decoder.feed(STREAM + nonsense)
        assert decoder.next_frames(9) == FRAMES
        assert decoder.has_more
        with pytest.raises(RemoteProtocolError):
            decoder.next_frames(9)


def test_a_large_frame_in_small_reads_costs_its_size_not_its_square() -> None:
    frame = Frame(0, b"h", b"x" * (2 * 1024 * 1024))
    data = encode_frame(frame)
    decoder = FrameDecoder()
    taken = None
    tracemalloc.start()
    for start in range(0, len(data), 97):
        decoder.feed(data[start : start + 97])
        taken = decoder.next_frame()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken == frame
    # The collected bytes, their copy and the body, plus the room a growing buffer takes ahead.
    assert peak_bytes < 4 * len(data)


def test_an_idle_decoder_holds_nothing() -> None:
    decoder = FrameDecoder()
    frames_of(decoder, STREAM)
    assert decoder._chunk == b""
    assert decoder.buffered_bytes == 0


def test_what_has_no_frame_is_our_own_fault() -> None:
    with pytest.raises(LocalProtocolError, match="header of 16777216 bytes"):
        encode_frame_start(0, bytes(HEADER_BYTES_MAX + 1), 0)
    with pytest.raises(LocalProtocolError, match="length field ends"):
        encode_frame_start(0, b"", 1 << 31)
