"""The system flag of a message: 32 bits that say how the rest of the record is to be read.

bit  0      body is compressed
bit  1      several tags
bits 2-3    transaction: 0 none, 1 prepared, 2 commit, 3 rollback
bit  4      born host is IPv6
bit  5      store host is IPv6
bit  6      the reader has to unwrap an inner batch
bit  7      inner batch
bits 8-10   compression: 1 lz4, 2 zstd, 3 zlib, 0 zlib (clients before 5.0 knew no other)
"""

from enum import IntEnum

from downrange.protocol.errors import RemoteProtocolError

COMPRESSED = 1
MULTI_TAGS = 1 << 1
TRANSACTION_NONE = 0
TRANSACTION_PREPARED = 1 << 2
TRANSACTION_COMMIT = 2 << 2
TRANSACTION_ROLLBACK = 3 << 2
TRANSACTION_MASK = 3 << 2
BORN_HOST_V6 = 1 << 4
STORE_HOST_V6 = 1 << 5
NEED_UNWRAP = 1 << 6
INNER_BATCH = 1 << 7
COMPRESSION_MASK = 7 << 8
COMPRESSION_SHIFT = 8


class CompressionType(IntEnum):
    """How a compressed body is packed, by its number in the system flag."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def transaction_type(sys_flag: int) -> int:
    """One of the TRANSACTION_ constants."""
    return sys_flag & TRANSACTION_MASK


def with_transaction_type(sys_flag: int, transaction: int) -> int:
    """The flag with its transaction bits replaced."""
    return (sys_flag & ~TRANSACTION_MASK) | transaction


def compression_type(sys_flag: int) -> CompressionType:
    """How the body is packed if it is compressed at all; 0 means zlib."""
    number = (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT
    try:
        return CompressionType(number or CompressionType.ZLIB)
    except ValueError:
        raise RemoteProtocolError(f"system flag {sys_flag:#x} names no known compression") from None


def with_compression(sys_flag: int, compression: CompressionType) -> int:
    """The flag of a body that was compressed this way."""
    return (sys_flag & ~COMPRESSION_MASK) | (compression << COMPRESSION_SHIFT) | COMPRESSED


def without_compressed_bit(sys_flag: int) -> int:
    """The flag of a decompressed body; the type bits stay, as RocketMQ leaves them."""
    return sys_flag & ~COMPRESSED
