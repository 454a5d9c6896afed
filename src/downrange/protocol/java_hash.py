"""Java's `String.hashCode`, which RocketMQ writes to disk as tag codes and index keys.

    hash(c0 c1 … cn-1) = c0*31^(n-1) + c1*31^(n-2) + … + cn-1   (mod 2^32, signed)

over UTF-16 code units. The hash of `prefix + text` follows from the hash of the prefix, so a caller
keeps the hash of "topic#" and extends it by each key.

A sum of powers of 31 is a number written in base 31, and `int(digits, 31)` reads such numbers in C.
An ASCII code c is 31 * (c // 31) + c % 31, so two readings give the hash of any ASCII text; codes
"0" to "N" are less than 31 above 48, so one reading is enough for upper-case hexadecimal ids
(`id_hash_base`). For 32 characters that is a quarter of the time of `sum(map(mul, text, powers))`.
"""

import struct

from downrange.protocol.java_text import decode_utf8

INT_MASK = 0xFFFF_FFFF
INT_MAX = 0x7FFF_FFFF

# Longer texts go in pieces: reading a number is quadratic, and Python refuses 4,300 digits.
_PIECE_BYTES_MAX = 512
# Of the unique ids of RocketMQ clients with IPv4, the usual keys of messages.
ID_BYTES = 32

BASE = 31
_DIGITS = b"0123456789abcdefghijklmnopqrstu"
_NO_DIGIT = ord("!")
_ASCII_CODES = 128
_ID_FIRST_CODE = ord("0")

_REMAINDERS = bytes(
    _DIGITS[code % BASE] if code < _ASCII_CODES else _NO_DIGIT for code in range(256)
)
_QUOTIENTS = bytes(
    _DIGITS[code // BASE] if code < _ASCII_CODES else _NO_DIGIT for code in range(256)
)
# Gives an id's digits in base 31, and no digit for what is in no id.
ID_DIGITS = bytes(
    _DIGITS[code - _ID_FIRST_CODE] if 0 <= code - _ID_FIRST_CODE < BASE else _NO_DIGIT
    for code in range(256)
)
_POWERS = [pow(BASE, count, 1 << 32) for count in range(_PIECE_BYTES_MAX + 1)]
# What the codes of an id lost when 48 was taken from each: 48 * (31^0 + … + 31^(n-1)).
_ID_REST = _ID_FIRST_CODE * sum(_POWERS[:ID_BYTES])


def java_hash(text: str) -> int:
    """`text.hashCode()` as Java gives it, a signed 32-bit number."""
    if text.isascii():
        return signed_hash(extend_hash(0, text.encode("ascii")))
    return signed_hash(_extend_by_units(0, text))


def java_hash_bytes(text: bytes) -> int:
    """`hashCode()` of the Java string that these UTF-8 bytes decode to."""
    return signed_hash(extend_hash(0, text))


def extend_hash(prefix_hash: int, text: bytes) -> int:
    """Hash of prefix + text as an unsigned 32-bit number, from the hash of the prefix.

    `text` is UTF-8; ASCII is the fast way. Bytes that are not UTF-8 count as the replacement
    character, as in the string that Java makes of them.
    """
    length = len(text)
    if not text.isascii():
        return _extend_by_units(prefix_hash, decode_utf8(text))
    if not 0 < length <= _PIECE_BYTES_MAX:
        return _extend_by_pieces(prefix_hash, text)
    tail = int(text.translate(_REMAINDERS), BASE) + BASE * int(text.translate(_QUOTIENTS), BASE)
    return (prefix_hash * _POWERS[length] + tail) & INT_MASK


def id_hash_base(prefix_hash: int) -> int:
    """What is left to be added for the hash of prefix + id: `int(id.translate(ID_DIGITS), BASE)`.

    The sum, & INT_MASK, is what `extend_hash` gives. The key index adds it without a call: it does
    so for every message. The reading is a ValueError for what is no id.
    """
    return (prefix_hash * _POWERS[ID_BYTES] + _ID_REST) & INT_MASK


def signed_hash(unsigned_hash: int) -> int:
    """The Java int that has these 32 bits."""
    return unsigned_hash - (1 << 32) if unsigned_hash > INT_MAX else unsigned_hash


def index_key_hash(unsigned_hash: int) -> int:
    """The hash as the key index stores it: its absolute value, 0 for Integer.MIN_VALUE."""
    return unsigned_hash if unsigned_hash <= INT_MAX else -unsigned_hash & INT_MAX


def _extend_by_pieces(prefix_hash: int, text: bytes) -> int:
    for start in range(0, len(text), _PIECE_BYTES_MAX):
        prefix_hash = extend_hash(prefix_hash, text[start : start + _PIECE_BYTES_MAX])
    return prefix_hash


def _extend_by_units(prefix_hash: int, text: str) -> int:
    # A Java string may hold half a surrogate pair, and its hash counts it like any unit.
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        prefix_hash = (prefix_hash * BASE + unit) & INT_MASK
    return prefix_hash
