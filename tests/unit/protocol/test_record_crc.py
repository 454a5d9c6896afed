"""The checksum over a whole record; the golden records come from a RocketMQ 5.5.0 commit log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError
from downrange.protocol.record import MAGIC_V2, Record, decode_record, encode_record
from downrange.protocol.record_crc import RECORD_CRC_BYTES, append_record_crc, check_record_crc

# Properties that end in 0x02, that do not (one was inserted), that are empty; then a record of the
# second version with an IPv6 born host.
JAVA_RECORDS = tuple(
    bytes.fromhex(text)
    for text in (
        "00000093daa320a77036e9920000000100000000000000000000000000000000000000000000000000000"
        "18bcfe568010a0102030000c351000001a1e11b7f660a01020300002a9f00000000000000000000000000"
        "00000668656c6c6f3009546f7069635465737400294b455953016b31206b3202544147530154616741025"
        "f5f435243333223013636343830333734333102",
        "00000086daa320a70731d9040000000100000000000000000000000100000000000000930000000000000"
        "18bcfe568010a0102030000c351000001a1e11b7f840a01020300002a9f00000000000000000000000000"
        "00000668656c6c6f3109546f70696354657374001c4b455953016b31025f5f43524333322301363839353"
        "3303937353002",
        "00000078daa320a7000000000000000100000000000000000000000200000000000001190000000000000"
        "18bcfe568010a0102030000c351000001a1e11b7f850a01020300002a9f00000000000000000000000000"
        "00000009546f7069635465737400145f5f435243333223013631333632323331333102",
        "0000012edaa320ab693fb8280000000100000000000000000000000000000000000001910000001000000"
        "18bcfe5680120010db80000000000000000000000070000c351000001a1e11b7f860a01020300002a9f00"
        "00000000000000000000000000000668656c6c6f330082" + b"%RETRY%".hex() + "67" * 123 + "003e"
        "554e49515f4b4559013041303130323033303030303030303030303030303030303030303030304646025"
        "f5f435243333223013632353039393037373002",
    )
)
# What stood in the properties before the broker added the checksum.
SENT_PROPERTIES = (
    b"KEYS\x01k1 k2\x02TAGS\x01TagA\x02",
    b"KEYS\x01k1",
    b"",
    b"UNIQ_KEY\x010A0102030000000000000000000000FF\x02",
)
RECORD = Record(1, 0, 2, 3, 0, 4, bytes(8), 5, bytes(8), 0, 0, b"body", b"T", b"A\x01b\x02")


@pytest.mark.parametrize(("data", "sent"), list(zip(JAVA_RECORDS, SENT_PROPERTIES, strict=True)))
def test_checksum_is_that_of_java(data: bytes, sent: bytes) -> None:
    assert check_record_crc(data) is True
    record = decode_record(data, check_whole=True)
    assert encode_record(record) == data
    plain = encode_record(record._replace(properties=sent))
    assert append_record_crc(plain, len(sent)) == data


def test_golden_records_are_of_both_versions() -> None:
    assert decode_record(JAVA_RECORDS[3]).magic == MAGIC_V2


def test_record_without_checksum_says_nothing() -> None:
    assert check_record_crc(encode_record(RECORD)) is None
    assert check_record_crc(b"") is None


def test_checksum_that_is_not_the_last_property_is_not_the_records_own() -> None:
    sent_again = RECORD._replace(properties=b"__CRC32#\x016648037431\x02A\x01b\x02")
    assert check_record_crc(encode_record(sent_again)) is None


@pytest.mark.parametrize(
    "text", [b"__CRC32#\x01664803743x\x02", b"__CRC32#\x016648037431\x03", b"__crc32#\x01" * 2]
)
def test_what_only_looks_like_a_checksum_is_none(text: bytes) -> None:
    assert check_record_crc(encode_record(RECORD._replace(properties=text))) is None


@pytest.mark.parametrize("data", JAVA_RECORDS)
def test_every_damaged_byte_is_noticed(data: bytes) -> None:
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x01
        # Damage to name and end of the property itself makes it another property.
        assert check_record_crc(bytes(damaged)) is not True, position
        if position < len(data) - RECORD_CRC_BYTES:
            assert check_record_crc(bytes(damaged)) is False, position
            with pytest.raises(RemoteProtocolError):
                decode_record(bytes(damaged), check_whole=True)


def test_wrong_checksum_is_no_damage_unless_asked_for() -> None:
    # RocketMQ stores messages that are sent again with the checksum of their former record.
    stale = RECORD._replace(properties=b"__CRC32#\x016648037431\x02")
    data = encode_record(stale)
    assert decode_record(data) == stale
    with pytest.raises(RemoteProtocolError, match="checksum that its last property says"):
        decode_record(data, check_whole=True)


def test_properties_without_room_for_a_checksum_are_refused() -> None:
    fits = RECORD._replace(properties=b"p" * (32_767 - RECORD_CRC_BYTES - 1))
    assert check_record_crc(append_record_crc(encode_record(fits), len(fits.properties)))
    too_long = RECORD._replace(properties=fits.properties + b"p")
    with pytest.raises(LocalProtocolError, match="no room for a checksum"):
        append_record_crc(encode_record(too_long), len(too_long.properties))


def test_other_length_of_the_properties_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="does not end in 3 property bytes"):
        append_record_crc(encode_record(RECORD), 3)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_appended_checksum_is_right(body: bytes, properties: bytes) -> None:
    record = RECORD._replace(body=body, properties=properties)
    data = append_record_crc(encode_record(record), len(properties))
    assert check_record_crc(data) is True
    assert check_record_crc(memoryview(data)) is True
    decoded = decode_record(data, check_whole=True)
    assert decoded.properties.startswith(properties)
    assert decoded._replace(properties=b"") == record._replace(properties=b"")
