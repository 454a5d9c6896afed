"""Which bits of a Bloom filter belong to a group and a topic, as RocketMQ numbers them.

An Apache broker can mark in its queues which subscriptions a message matches, by bits that it
chooses from a hash of "group#topic". It keeps the bits with the subscription and forgets all
subscriptions whose bits are not of its filter's size, so those that it is to read need the right
ones. The hash is MurmurHash3 (x64, 128 bits, seed 0), of which the first 64 bits count.
"""

import math
from struct import unpack_from

ERROR_PERCENT = 20  # maxErrorRateOfBloomFilter
GROUPS_EXPECTED = 32  # expectConsumerNumUseFilter

_MASK = 0xFFFFFFFFFFFFFFFF
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_BLOCK_BYTES = 16


def _sizes(error_percent: int, groups_expected: int) -> tuple[int, int]:
    """Bits for one entry and bits in all; the latter fill whole bytes."""
    rate = error_percent / 100
    bits = math.ceil(groups_expected * math.log2(1 / rate) * math.log2(math.e))
    return math.ceil(math.log(rate, 0.5)), 8 * math.ceil(bits / 8)


BITS_PER_ENTRY, BITS = _sizes(ERROR_PERCENT, GROUPS_EXPECTED)


def bit_positions(group: str, topic: str) -> tuple[int, ...]:
    """The bits of a subscription."""
    value = murmur3_64(f"{group}#{topic}".encode())
    first, second = _int32(value), _int32(value >> 32)
    combined = (_int32(first + index * second) for index in range(1, BITS_PER_ENTRY + 1))
    return tuple((~one if one < 0 else one) % BITS for one in combined)


def murmur3_64(data: bytes) -> int:
    """The first 64 bits of MurmurHash3_x64_128, as a number."""
    h1 = h2 = 0
    whole_bytes = len(data) // _BLOCK_BYTES * _BLOCK_BYTES
    for offset in range(0, whole_bytes, _BLOCK_BYTES):
        k1, k2 = unpack_from("<QQ", data, offset)
        h1 ^= _mixed(k1, _C1, 31, _C2)
        h1 = (_rotated(h1, 27) + h2) * 5 + 0x52DCE729 & _MASK
        h2 ^= _mixed(k2, _C2, 33, _C1)
        h2 = (_rotated(h2, 31) + h1) * 5 + 0x38495AB5 & _MASK
    tail = data[whole_bytes:]
    if tail:
        k1, k2 = unpack_from("<QQ", tail.ljust(_BLOCK_BYTES, b"\0"))
        h2 ^= _mixed(k2, _C2, 33, _C1)
        h1 ^= _mixed(k1, _C1, 31, _C2)
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    return _finished(h1) + _finished(h2) & _MASK


def _mixed(block: int, first: int, turn: int, second: int) -> int:
    return _rotated(block * first & _MASK, turn) * second & _MASK


def _rotated(value: int, count: int) -> int:
    return (value << count | value >> 64 - count) & _MASK


def _finished(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


def _int32(value: int) -> int:
    """As Java cuts a number to an int."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
