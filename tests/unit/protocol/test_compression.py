"""Compressed bodies; the packed bytes come from RocketMQ's three compressors."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downrange.protocol.compression import compress, decompress, decompress_by_flag
from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError
from downrange.protocol.sys_flag import (
    COMPRESSED,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    CompressionType,
    compression_type,
    transaction_type,
    with_compression,
    with_transaction_type,
    without_compressed_bit,
)

BODY = b"hello hello hello hello hello hello hello hello"
JAVA_PACKED = {
    CompressionType.LZ4: "04224d18607073100000006f68656c6c6f200600115068656c6c6f00000000",
    CompressionType.ZSTD: "28b52ffd00586400003068656c6c6f200100029522010000",
    CompressionType.ZLIB: "785ecb48cdc9c957c820960400a3961181",
}
TYPES = st.sampled_from(CompressionType)


@pytest.mark.parametrize("compression", CompressionType)
def test_what_java_packed_is_unpacked(compression: CompressionType) -> None:
    packed = bytes.fromhex(JAVA_PACKED[compression])
    assert decompress(packed, compression) == BODY
    assert decompress(packed, compression, bytes_max=len(BODY)) == BODY
    assert decompress_by_flag(packed, with_compression(0, compression)) == BODY


def test_zlib_is_packed_to_the_bytes_of_java() -> None:
    assert compress(BODY, CompressionType.ZLIB).hex() == JAVA_PACKED[CompressionType.ZLIB]


def test_lz4_frames_have_independent_blocks_and_no_checksum_as_in_java() -> None:
    packed = compress(BODY, CompressionType.LZ4)
    java = bytes.fromhex(JAVA_PACKED[CompressionType.LZ4])
    assert packed[:5] == java[:5]
    assert packed[7:] == java[7:]  # bytes 5 and 6: block size, which shrinks to fit, and its check


@given(st.binary(max_size=5000), TYPES)
def test_body_survives_packing(body: bytes, compression: CompressionType) -> None:
    assert decompress(compress(body, compression), compression) == body


@pytest.mark.parametrize("compression", CompressionType)
@pytest.mark.parametrize("level", [1, 5, 9])
def test_every_level_can_be_unpacked(compression: CompressionType, level: int) -> None:
    assert decompress(compress(BODY, compression, level), compression) == BODY


def test_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(LocalProtocolError):
        compress(BODY, CompressionType.ZLIB, 10)


@pytest.mark.parametrize("compression", CompressionType)
def test_bomb_is_refused_at_the_bound(compression: CompressionType) -> None:
    bomb = compress(bytes(10_000_000), compression)
    assert len(bomb) < 50_000
    with pytest.raises(RemoteProtocolError, match="more than 1000000 bytes"):
        decompress(bomb, compression, bytes_max=1_000_000)
    with pytest.raises(RemoteProtocolError, match="more than 9999999 bytes"):
        decompress(bomb, compression, bytes_max=9_999_999)
    assert decompress(bomb, compression, bytes_max=10_000_000) == bytes(10_000_000)


@pytest.mark.parametrize("compression", CompressionType)
def test_every_cut_is_noticed(compression: CompressionType) -> None:
    packed = compress(BODY, compression)
    for cut in range(1, len(packed)):
        with pytest.raises(RemoteProtocolError):
            decompress(packed[:cut], compression)


@given(st.binary(min_size=1), TYPES)
def test_nonsense_is_the_peers_fault(data: bytes, compression: CompressionType) -> None:
    with suppress(RemoteProtocolError):
        decompress(data, compression, bytes_max=1000)


@pytest.mark.parametrize("compression", [CompressionType.LZ4, CompressionType.ZSTD])
def test_frames_that_follow_one_another_are_one_body_up_to_a_bound(
    compression: CompressionType,
) -> None:
    frame = compress(BODY, compression)
    assert decompress(2 * frame, compression) == 2 * BODY
    with pytest.raises(RemoteProtocolError, match="frames"):
        decompress(65 * frame, compression)


def test_bytes_behind_a_zlib_stream_are_ignored_as_in_java() -> None:
    assert decompress(compress(BODY, CompressionType.ZLIB) + b"rest", CompressionType.ZLIB) == BODY


def test_flag_without_a_type_means_zlib() -> None:
    assert compression_type(COMPRESSED) is CompressionType.ZLIB


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_unknown_type_is_the_peers_fault(number: int) -> None:
    with pytest.raises(RemoteProtocolError):
        compression_type(number << 8)


def test_flag_bits_do_not_disturb_each_other() -> None:
    sys_flag = with_compression(with_transaction_type(0xFFFF_F000, 4), CompressionType.LZ4)
    assert sys_flag == 0xFFFF_F000 | TRANSACTION_PREPARED | COMPRESSED | 1 << 8
    assert transaction_type(sys_flag) == TRANSACTION_PREPARED
    assert transaction_type(with_transaction_type(sys_flag, 8)) == TRANSACTION_COMMIT
    assert compression_type(without_compressed_bit(sys_flag)) is CompressionType.LZ4
