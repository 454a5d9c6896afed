"""The checksum over a whole record, which RocketMQ writes if enabledAppendPropCRC is on.

It is the last property of the record and takes 20 bytes:

    "__CRC32#" 0x01 dddddddddd 0x02

with CRC32 & 0x7FFFFFFF of everything before these 20 bytes, the total size and the length of the
properties included, as ten decimal digits, least significant first. A property text that does not
end in 0x02 gets one before it.

A checksum that is wrong does not prove damage: with the switch off, RocketMQ stores the properties
of a message that is sent again as they are, a checksum of its former record among them. So it is
checked only if a setting says so (enabledAppendPropCRC or forceVerifyPropCRC).
"""

import re
from collections.abc import Iterable
from zlib import crc32

from downrange.protocol.errors import LocalProtocolError
from downrange.protocol.properties import PROPERTIES_BYTES_MAX, remove_property
from downrange.protocol.property_names import CRC32

RECORD_CRC_NAME = CRC32.encode() + b"\x01"
_DIGITS = 10
_PROPERTY = re.compile(re.escape(RECORD_CRC_NAME) + rb"([0-9]{%d})\x02" % _DIGITS)
RECORD_CRC_BYTES = len(RECORD_CRC_NAME) + _DIGITS + 1
_ROOM = RECORD_CRC_NAME + b"0" * _DIGITS + b"\x02"
_CRC_MASK = 0x7FFFFFFF
_SIZE_BYTES = 4
_LENGTH_BYTES = 2


def append_record_crc(record: bytes, properties_bytes: int) -> bytes:
    """A record, whose properties take so many bytes, with its checksum as the last property."""
    start = len(record) - properties_bytes - _LENGTH_BYTES
    if int.from_bytes(record[start : start + _LENGTH_BYTES], "big") != properties_bytes:
        raise LocalProtocolError(f"the record does not end in {properties_bytes} property bytes")
    separator = b"\x02" if properties_bytes and record[-1:] != b"\x02" else b""
    added = len(separator) + RECORD_CRC_BYTES
    if properties_bytes + added > PROPERTIES_BYTES_MAX:
        raise LocalProtocolError(
            f"a property text of {properties_bytes} bytes leaves no room for a checksum: with it "
            f"there would be more than {PROPERTIES_BYTES_MAX}"
        )
    covered = b"".join(
        (
            (len(record) + added).to_bytes(_SIZE_BYTES, "big"),
            record[_SIZE_BYTES:start],
            (properties_bytes + added).to_bytes(_LENGTH_BYTES, "big"),
            record[start + _LENGTH_BYTES :],
            separator,
        )
    )
    return b"%b%b%b\x02" % (covered, RECORD_CRC_NAME, _digits_of(crc32(covered) & _CRC_MASK))


def reserve_record_crc(properties: bytes) -> bytes:
    """A property text with room for the checksum of its record; one of a former record goes."""
    if RECORD_CRC_NAME in properties:
        properties = remove_property(properties, CRC32.encode())
    separator = b"\x02" if properties and properties[-1:] != b"\x02" else b""
    return properties + separator + _ROOM


def seal_record(head: bytes, rest: bytes) -> bytes:
    """The rest of a record whose text has room for the checksum, with the checksum in it."""
    checksum = crc32(rest[:-RECORD_CRC_BYTES], crc32(head)) & _CRC_MASK
    return b"%b%b\x02" % (rest[: -_DIGITS - 1], _digits_of(checksum))


def seal_records(records: bytes, sizes: Iterable[int]) -> bytes:
    """Records side by side, whose texts have room for their checksums, with these in them."""
    sealed = bytearray(records)
    end = 0
    with memoryview(records) as view:
        for size in sizes:
            start, end = end, end + size
            checksum = crc32(view[start : end - RECORD_CRC_BYTES]) & _CRC_MASK
            sealed[end - _DIGITS - 1 : end - 1] = _digits_of(checksum)
    return bytes(sealed)


def check_record_crc(record: bytes | memoryview) -> bool | None:
    """Whether a whole record has the checksum that it carries; None if it carries none."""
    found = _PROPERTY.fullmatch(record[-RECORD_CRC_BYTES:])
    if found is None:
        return None
    with memoryview(record) as view, view[:-RECORD_CRC_BYTES] as covered:
        return found[1] == _digits_of(crc32(covered) & _CRC_MASK)


def _digits_of(checksum: int) -> bytes:
    return f"{checksum:0{_DIGITS}d}"[::-1].encode()
