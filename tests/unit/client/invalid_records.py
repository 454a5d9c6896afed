"""Messages that no consumer can decode: sent so, or damaged in the log of a broker."""

import mmap
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from unit.broker.one_broker import pass_time
from unit.client.consuming import Seen, Site, until

from downrange.client.errors import BrokerUnreachableError
from downrange.client.message import Message, ReceivedMessage
from downrange.protocol.compression import compress
from downrange.protocol.sys_flag import (
    COMPRESSED,
    COMPRESSION_SHIFT,
    INNER_BATCH,
    NEED_UNWRAP,
    CompressionType,
    with_compression,
)

BOMB_BYTES = 65 * 1024 * 1024
Damage = Callable[[bytearray, int], None]
"""Damages the record that starts at a position of the log."""


class Sent(NamedTuple):
    """What a producer may send that cannot be decoded."""

    body: bytes
    sys_flag: int


def _cut(kind: CompressionType) -> Sent:
    packed = compress(b"many times the same " * 500, kind)
    return Sent(packed[: len(packed) // 2], with_compression(0, kind))


SENT = {
    "compressed by flag only": Sent(b"plain text", COMPRESSED),
    "zlib flag, lz4 body": Sent(
        compress(b"x" * 100, CompressionType.LZ4), with_compression(0, CompressionType.ZLIB)
    ),
    "zstd flag, zlib body": Sent(
        compress(b"x" * 100, CompressionType.ZLIB), with_compression(0, CompressionType.ZSTD)
    ),
    "unknown compression": Sent(b"plain text", COMPRESSED | 7 << COMPRESSION_SHIFT),
    "cut zlib": _cut(CompressionType.ZLIB),
    "cut lz4": _cut(CompressionType.LZ4),
    "cut zstd": _cut(CompressionType.ZSTD),
    "bomb": Sent(zlib.compress(bytes(BOMB_BYTES)), with_compression(0, CompressionType.ZLIB)),
    "no inner batch": Sent(b"not a batch", INNER_BATCH | NEED_UNWRAP),
}


def _flip_body(log: bytearray, start: int) -> None:
    log[start + 88] ^= 1


def _unknown_magic(log: bytearray, start: int) -> None:
    log[start + 4 : start + 8] = b"\x01\x02\x03\x04"


def _long_body(log: bytearray, start: int) -> None:
    log[start + 84 : start + 88] = b"\x7f\xff\xff\xff"


def _negative_body(log: bytearray, start: int) -> None:
    log[start + 84 : start + 88] = b"\xff\xff\xff\xff"


DAMAGES: dict[str, Damage] = {
    "wrong checksum": _flip_body,
    "unknown magic": _unknown_magic,
    "body longer than the record": _long_body,
    "negative length": _negative_body,
}


def damage_record(root: Path, body: bytes, damage: Damage) -> None:
    """Damage the one record of the broker's log that has this body."""
    (path,) = root.rglob("commitlog/00000000000000000000")
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        log = bytearray(mapped[: 1 << 20])
        at = log.index(body)
        assert log.find(body, at + 1) < 0, "a body that is there once"
        start = at - 88
        damage(log, start)
        mapped[: 1 << 20] = bytes(log)


async def send_invalid(site: Site, root: Path, variant: str, topic: str = "orders") -> bytes:
    """Put one message into a queue that cannot be decoded; returns its body as it was sent."""
    if variant in SENT:
        sent = SENT[variant]
        await site.send(topic, sent.body, sys_flag=sent.sys_flag, properties="colour\x01red\x02")
        return sent.body
    body = b"the damaged one " + variant.encode()
    await site.send(topic, body, properties="colour\x01red\x02")
    damage_record(root, body, DAMAGES[variant])
    return body


async def dead_letters(site: Site, count: int, group: str = "g") -> Sequence[ReceivedMessage]:
    reader, seen = site.consumer("undertaker"), Seen()
    reader.subscribe(f"%DLQ%{group}")
    reader.listen(seen)
    await reader.start()
    await until(lambda: len(seen.messages) == count)
    await pass_time(1)
    assert len(seen.messages) == count
    await reader.shutdown()
    return seen.messages


async def three_around_one(site: Site, root: Path, variant: str) -> bytes:
    await site.create("orders")
    await site.send("orders", b"first")
    body = await send_invalid(site, root, variant)
    await site.send("orders", b"second")
    await site.send("orders", b"third")
    return body


class Post:
    """Takes dead letters, after it has refused some."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.tries = 0
        self.letters: list[Message] = []

    async def send(self, letter: Message) -> None:
        self.tries += 1
        if self.tries <= self.failures:
            raise BrokerUnreachableError("no broker takes it")
        self.letters.append(letter)
