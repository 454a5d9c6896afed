"""Frames that nobody should send: captured ones with something wrong in them, and plain noise."""

import random
import struct
from collections.abc import Callable
from functools import cache

import msgspec
from golden import captured

from downrange.protocol.command import ONE_WAY_FLAG, RESPONSE_FLAG, Command, Serialization
from downrange.protocol.command_codec import decode_command, encode_command
from downrange.protocol.errors import ProtocolError
from downrange.protocol.frame import FrameDecoder
from downrange.protocol.request_codes import RequestCode

FENCE_CODE = 65_000  # no such request: its answer says that all before it was read
NASTY_TEXTS = (
    "",
    " ",
    "null",
    "-1",
    "0",
    "1",
    "7",
    "2147483647",
    "-2147483648",
    "2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    "9" * 40,
    "1e9",
    "0x10",
    "true",
    "NaN",
    "%RETRY%",
    "%DLQ%g",
    "../../etc",
    "a/b",
    "a\0b",
    "*",
    "a||",
    "\x01\x02\x01",
    "KEYS\x01k\x02DELAY\x0199\x02",
    "DELAY\x01-5\x02TRAN_MSG\x01true\x02PGROUP\x01g\x02",
    "DELAY\x01\u0663\x02WAIT\x01false",
    "TIMER_DELIVER_MS\x01abc\x02",
    "INNER_NUM\x01x\x02TAGS\x01\x02",
    "é\u4e2d\U0001f600",
    "x" * 300,
    "y" * 70_000,
)
NASTY_BODIES = (
    b"",
    b"{}",
    b"[]",
    b"null",
    b"0",
    b'"text"',
    b"{",
    b'{"clientID":null}',
    b"[" * 100_000,
    b'{"a":' * 5_000,
    b"\xff" * 64,
    b"\0" * 64,
    b"brokerPermission=x\nno such key=1\n=\n",
)


@cache
def requests_to(server: str) -> tuple[tuple[bytes, Command], ...]:
    """Every captured request to brokers ("broker") or to name servers ("nameserver")."""
    found = {
        frame.frame: _command(frame.frame)
        for frame in captured.frames()
        if frame.link.endswith(f"-{server}") and frame.sender == "client"
    }
    return tuple((frame, command) for frame, command in found.items() if not command.is_response)


def bad_frame(rng: random.Random, server: str) -> bytes:
    """One frame, most likely wrong; sometimes the one that it was made of."""
    frame, command = rng.choice(requests_to(server))
    kind = rng.random()
    if kind < 0.04:
        return frame
    if kind < 0.09:
        return rng.randbytes(rng.randrange(1, 200))
    if kind < 0.2:
        return _with_wrong_bytes(rng, frame)
    if kind < 0.25:
        return _with_wrong_lengths(rng, frame)
    command = msgspec.structs.replace(command, opaque=rng.randrange(1 << 20))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        command = rng.choice(_CHANGES)(rng, command)
    try:
        return encode_command(command)
    except ProtocolError:
        return frame  # this form of header cannot carry it


def can_be_read(frame: bytes) -> bool:
    """Whether a server reads on behind this frame, whatever it answers to it."""
    decoder = FrameDecoder()
    decoder.feed(frame)
    try:
        whole = decoder.next_frame()
        if whole is not None:
            decode_command(whole)
    except ProtocolError:
        return False
    return whole is not None and not decoder.buffered_bytes


def _command(frame: bytes) -> Command:
    decoder = FrameDecoder()
    decoder.feed(frame)
    whole = decoder.next_frame()
    assert whole is not None
    return decode_command(whole)


def _with_wrong_bytes(rng: random.Random, frame: bytes) -> bytes:
    changed = bytearray(frame)
    for _ in range(rng.choice((1, 1, 2, 8))):
        # The lengths stay, so that the frame is read.
        changed[rng.randrange(min(8, len(frame) - 1), len(frame))] = rng.randrange(256)
    return bytes(changed)


def _with_wrong_lengths(rng: random.Random, frame: bytes) -> bytes:
    length, word = struct.unpack_from(">iI", frame)
    wrong = rng.choice((0, 3, 4, length - 1, length + 1, length // 2, 1 << 24, (1 << 31) - 1, -5))
    if rng.random() < 0.5:
        return struct.pack(">iI", wrong, word) + frame[8:]
    return struct.pack(">iI", length, rng.choice((wrong & 0xFFFFFF, 2 << 24))) + frame[8:]


def _other_code(rng: random.Random, command: Command) -> Command:
    code = rng.choice((*RequestCode, rng.randrange(-5, 1_000)))
    return msgspec.structs.replace(command, code=int(code))


def _other_flag(rng: random.Random, command: Command) -> Command:
    flag = rng.choice((RESPONSE_FLAG, ONE_WAY_FLAG, 3, -1, 1 << 20))
    return msgspec.structs.replace(command, flag=flag)


def _other_field(rng: random.Random, command: Command) -> Command:
    fields = dict(command.ext_fields or {"topic": "t"})
    name = rng.choice(tuple(fields))
    fields[name] = rng.choice((*NASTY_TEXTS, *fields.values()))
    return msgspec.structs.replace(command, ext_fields=fields)


def _fields_of_another(rng: random.Random, command: Command) -> Command:
    server = rng.choice(("broker", "nameserver"))
    _, other = rng.choice(requests_to(server))
    return msgspec.structs.replace(command, ext_fields=other.ext_fields)


def _without_field(rng: random.Random, command: Command) -> Command:
    fields = dict(command.ext_fields or {})
    for name in rng.sample(sorted(fields), min(len(fields), rng.choice((1, 1, 2, 99)))):
        del fields[name]
    return msgspec.structs.replace(command, ext_fields=fields or None)


def _other_body(rng: random.Random, command: Command) -> Command:
    body = command.body or b""
    bodies = [
        *NASTY_BODIES,
        rng.randbytes(rng.randrange(400)),
        body[: rng.randrange(len(body) + 1)],
    ]
    return msgspec.structs.replace(command, body=rng.choice(bodies))


def _damaged_body(rng: random.Random, command: Command) -> Command:
    if not command.body:
        return command
    changed = bytearray(command.body)
    for _ in range(rng.choice((1, 2, 8))):
        changed[rng.randrange(len(changed))] = rng.choice((0, 1, 34, 44, 45, 57, 91, 123, 255))
    return msgspec.structs.replace(command, body=bytes(changed))


def _other_form(rng: random.Random, command: Command) -> Command:
    return msgspec.structs.replace(command, serialization=rng.choice(tuple(Serialization)))


_CHANGES: tuple[Callable[[random.Random, Command], Command], ...] = (
    _other_code,
    _other_code,
    _other_flag,
    _other_field,
    _other_field,
    _other_field,
    _fields_of_another,
    _without_field,
    _other_body,
    _damaged_body,
    _other_form,
)
