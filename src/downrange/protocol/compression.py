"""Bodies that a producer compressed, in the three ways that the system flag can name.

zlib is a zlib stream (RFC 1950, not gzip), lz4 the frame format, zstd its own. RocketMQ writes lz4
frames with independent blocks of up to 4 MiB and without checksums, whatever level is asked for;
zlib and zstd take the level as it is.

A few compressed kilobytes can unpack to gigabytes, so unpacking stops at a bound.
"""

import sys
import zlib

import lz4.frame

from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError
from downrange.protocol.sys_flag import CompressionType, compression_type

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

DEFAULT_LEVEL = 5
# Four times the largest frame a peer accepts by default. A producer bounds its bodies before it
# compresses them (4 MiB unless configured), so what is larger is no message.
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
# Java reads frames that follow one another, although it writes one; thousands of empty ones would
# cost more than they are worth.
_FRAMES_MAX = 64

_LEVELS = {
    CompressionType.LZ4: range(-(1 << 31), 1 << 31),  # not looked at
    CompressionType.ZSTD: range(-(1 << 17), 23),
    CompressionType.ZLIB: range(-1, 10),
}


def compress(body: bytes, compression: CompressionType, level: int = DEFAULT_LEVEL) -> bytes:
    """The packed body; the caller sets the bits of `sys_flag.with_compression`."""
    if level not in _LEVELS[compression]:
        raise LocalProtocolError(f"{compression.name} has no level {level}")
    if compression is CompressionType.ZLIB:
        return zlib.compress(body, level)
    if compression is CompressionType.ZSTD:
        return zstd.compress(body, level)
    packed: bytes = lz4.frame.compress(
        body, block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False, store_size=False
    )
    return packed


def decompress(
    body: bytes, compression: CompressionType, *, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> bytes:
    """The unpacked body; `RemoteProtocolError` if it is damaged or has more than `bytes_max`."""
    if not body:
        return b""  # an empty body is not compressed, whatever its flag says
    try:
        if compression is CompressionType.ZLIB:
            return _unpack_zlib(body, bytes_max)
        if compression is CompressionType.ZSTD:
            return _unpack_zstd(body, bytes_max)
        return _unpack_lz4(body, bytes_max)
    # lz4 has no error of its own: RuntimeError for damage, EOFError behind the end of a frame.
    except (zlib.error, zstd.ZstdError, RuntimeError, EOFError) as error:
        raise RemoteProtocolError(f"{compression.name} body is damaged: {error}") from error


def decompress_by_flag(
    body: bytes, sys_flag: int, *, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> bytes:
    """The unpacked body of a message whose system flag says that it is compressed."""
    return decompress(body, compression_type(sys_flag), bytes_max=bytes_max)


def _unpack_zlib(body: bytes, bytes_max: int) -> bytes:
    # What follows the stream is ignored, as in Java.
    unpacker = zlib.decompressobj()
    unpacked = unpacker.decompress(body, bytes_max + 1)
    return _checked(unpacked, bytes_max, whole=unpacker.eof)


def _unpack_zstd(body: bytes, bytes_max: int) -> bytes:
    unpacked = b""
    for _ in range(_FRAMES_MAX):
        unpacker = zstd.ZstdDecompressor()
        unpacked += unpacker.decompress(body, max_length=bytes_max + 1 - len(unpacked))
        _checked(unpacked, bytes_max, whole=unpacker.eof)
        body = unpacker.unused_data
        if not body:
            return unpacked
    raise RemoteProtocolError(f"compressed body has more than {_FRAMES_MAX} frames")


def _unpack_lz4(body: bytes, bytes_max: int) -> bytes:
    unpacked: bytes = b""
    for _ in range(_FRAMES_MAX):
        unpacker = lz4.frame.LZ4FrameDecompressor()
        unpacked += unpacker.decompress(body, max_length=bytes_max + 1 - len(unpacked))
        _checked(unpacked, bytes_max, whole=unpacker.eof)
        body = unpacker.unused_data or b""
        if not body:
            return unpacked
    raise RemoteProtocolError(f"compressed body has more than {_FRAMES_MAX} frames")


def _checked(unpacked: bytes, bytes_max: int, *, whole: bool) -> bytes:
    if len(unpacked) > bytes_max:
        raise RemoteProtocolError(f"compressed body has more than {bytes_max} bytes")
    if not whole:
        raise RemoteProtocolError("compressed body is cut off")
    return unpacked
