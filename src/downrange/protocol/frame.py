"""Cuts a byte stream into frames and builds frames; what a header means is not known here.

    +--------------+---------------+--------------+----------+--------+
    | length       | encoding      | header bytes | header   | body   |
    | 4 bytes, = n | 1 byte        | 3 bytes, = h | h bytes  | rest   |
    +--------------+---------------+--------------+----------+--------+
                   |<------------- n bytes = 4 + h + body ----------->|

Numbers are big endian. The encoding byte says how the header is written: 0 JSON, 1 binary. The
limit on a frame counts the length field itself, as RocketMQ's own limit does.
"""

import struct
from typing import Final

import msgspec

from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError

FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
"""RocketMQ's default limit; a peer with this limit drops the connection over a longer frame."""

HEADER_BYTES_MAX: Final = 0xFF_FFFF  # the header length has three bytes

_LENGTH: Final = struct.Struct(">i")
_PREFIX: Final = struct.Struct(">iI")  # length, then encoding and header length in one word
_LENGTH_BYTES: Final = 4
_WORD_BYTES: Final = 4
_PREFIX_BYTES: Final = _LENGTH_BYTES + _WORD_BYTES
_unpack_prefix: Final = _PREFIX.unpack_from
_LENGTH_MAX: Final = 0x7FFF_FFFF  # the length field is a signed number

# What users point at a RocketMQ port by mistake. Each of these, read as a length, is far beyond
# the limit, so they are looked for only once a length is refused.
_FOREIGN_STARTS: Final = (
    (b"\x16\x03", "a TLS handshake; switch TLS off at the peer, servers of downrange have none"),
    (b"\x15\x03", "a TLS alert: the peer expects TLS; switch it on here"),
    (b"PROX", "the PROXY protocol (v1), which is not switched on here"),
    (b"\r\n\r\n", "the PROXY protocol (v2), which is not switched on here"),
    (b"PRI ", "HTTP/2; a gRPC client must be given the port of the proxy"),
    *(
        (verb, "HTTP; this port speaks the RocketMQ remoting protocol")
        for verb in (
            b"GET ",
            b"POST",
            b"PUT ",
            b"HEAD",
            b"DELE",
            b"OPTI",
            b"CONN",
            b"PATC",
            b"HTTP",
        )
    ),
)


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One frame without its length field; `body` is None when no byte follows the header."""

    encoding: int
    header: bytes
    body: bytes | None


class FrameDecoder:
    """Turns the bytes of one connection into frames, however the network split them.

    Owned by one connection and not shared. Feed what was read, then take frames until none comes:
    then what is held back is less than one frame plus that read. After an error the stream has no
    known frame start any more, every later call fails alike and the connection must be closed.
    """

    __slots__ = ("_chunk", "_frame_bytes_max", "_partial", "_position", "has_more", "held_bytes")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._chunk = b""
        self._position = 0
        # A frame that spans reads collects here; growing it in place costs each byte once.
        self._partial = bytearray()
        self.has_more = False  # whether it is worth while to ask for frames
        self.held_bytes = 0  # fed and not yet given out, as of the last call for frames

    def feed(self, data: bytes) -> None:
        """Take what the connection has read."""
        self.has_more = True
        if self._partial:
            self._partial += data
        elif self._position == len(self._chunk):
            self._chunk = data
            self._position = 0
        else:
            self._partial += memoryview(self._chunk)[self._position :]
            self._partial += data
            self._chunk = b""
            self._position = 0

    def next_frame(self) -> Frame | None:
        """Give the next whole frame, or None until more bytes are fed."""
        frames = self.next_frames(1)
        return frames[0] if frames else None

    def next_frames(self, count_max: int) -> list[Frame]:
        """Give the next whole frames, none until more bytes are fed.

        Those before nonsense are given first; the call after that raises.
        """
        frames: list[Frame] = []
        if self._partial and not self._take_partial():
            self.has_more = False
            self.held_bytes = len(self._partial)
            return frames
        chunk, start = self._chunk, self._position
        chunk_bytes = len(chunk)
        length_max = self._frame_bytes_max - _LENGTH_BYTES
        while start + _PREFIX_BYTES <= chunk_bytes and len(frames) < count_max:
            length, word = _unpack_prefix(chunk, start)
            if not _WORD_BYTES <= length <= length_max:
                break
            end = start + _LENGTH_BYTES + length
            if end > chunk_bytes:
                self.has_more = False
                break
            header_start = start + _PREFIX_BYTES
            header_end = header_start + (word & HEADER_BYTES_MAX)
            if header_end > end:
                break
            body = chunk[header_end:end] if header_end != end else None
            frames.append(Frame(word >> 24, chunk[header_start:header_end], body))
            start = end
        if start == chunk_bytes:
            self._chunk = b""  # an idle connection must not hold on to its last read
            self._position = 0
            self.has_more = False
            self.held_bytes = 0
        else:
            self._position = start
            self.held_bytes = chunk_bytes - start
            if not frames:
                self._check_start(chunk, start)
                self.has_more = False
        return frames

    def _check_start(self, chunk: bytes, start: int) -> None:
        """Raise if what begins here, whole or not, can be no frame."""
        available = len(chunk) - start
        if available < _LENGTH_BYTES:
            return
        frame_bytes = self._checked_frame_bytes(chunk, start)
        if available < frame_bytes:
            return
        room = frame_bytes - _PREFIX_BYTES
        header_bytes = _unpack_prefix(chunk, start)[1] & HEADER_BYTES_MAX
        if header_bytes > room:
            raise RemoteProtocolError(
                f"header of {header_bytes} bytes in a frame that has only {room} bytes left for it"
            )

    @property
    def buffered_bytes(self) -> int:
        """How many bytes were fed and not yet given out; not 0 at the end means a torn frame."""
        return len(self._partial) + len(self._chunk) - self._position

    @property
    def missing_bytes(self) -> int:
        """How many bytes the next frame still lacks; 0 while its length is not known."""
        data, start = (self._partial, 0) if self._partial else (self._chunk, self._position)
        if len(data) - start < _LENGTH_BYTES:
            return 0
        (length,) = _LENGTH.unpack_from(data, start)
        assert isinstance(length, int)
        return max(length + _LENGTH_BYTES - (len(data) - start), 0)

    def _take_partial(self) -> bool:
        partial = self._partial
        if len(partial) < _LENGTH_BYTES:
            return False
        if len(partial) < self._checked_frame_bytes(partial, 0):
            return False
        self._chunk = bytes(partial)
        self._position = 0
        self._partial = bytearray()
        return True

    def _checked_frame_bytes(self, data: bytes | bytearray, start: int) -> int:
        (length,) = _LENGTH.unpack_from(data, start)
        assert isinstance(length, int)
        frame_bytes = length + _LENGTH_BYTES
        if _LENGTH_BYTES + _WORD_BYTES <= frame_bytes <= self._frame_bytes_max:
            return frame_bytes
        begin = bytes(data[start : start + _LENGTH_BYTES])
        for pattern, what in _FOREIGN_STARTS:
            if begin.startswith(pattern):
                raise RemoteProtocolError(f"the peer speaks {what}")
        if length < 0:
            raise RemoteProtocolError(f"negative frame length {length}")
        if length < _WORD_BYTES:
            raise RemoteProtocolError(f"frame length {length} leaves no room for a header")
        raise RemoteProtocolError(
            f"frame of {frame_bytes} bytes is over the limit of {self._frame_bytes_max}"
        )


def encode_frame_start(encoding: int, header: bytes, body_bytes: int) -> bytes:
    """Build all of a frame but its body, for a body that is written from elsewhere."""
    if len(header) > HEADER_BYTES_MAX:
        raise LocalProtocolError(
            f"header of {len(header)} bytes; the length field ends at {HEADER_BYTES_MAX}"
        )
    length = _WORD_BYTES + len(header) + body_bytes
    if length > _LENGTH_MAX:
        raise LocalProtocolError(f"frame of {length} bytes; the length field ends at {_LENGTH_MAX}")
    return _PREFIX.pack(length, encoding << 24 | len(header)) + header


def encode_frame(frame: Frame) -> bytes:
    """Build the bytes of a frame; None and an empty body look alike on the wire."""
    if frame.body is None:
        return encode_frame_start(frame.encoding, frame.header, 0)
    return encode_frame_start(frame.encoding, frame.header, len(frame.body)) + frame.body
