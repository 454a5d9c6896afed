"""Feeds broken bytes to every decoder and checks that each one stays honest.

    python scripts/fuzz.py --seconds 60 [--seed 7] [--target frame]

Rules: a decoder raises nothing but ProtocolError, takes at most `INPUT_SECONDS_MAX` for an input,
and needs memory in proportion to it. A failure prints the seed and the input; the same seed feeds
the same inputs again. To cover another decoder, add an entry to `TARGETS`: what to call, and
examples of good input to break.
"""

import argparse
import faulthandler
import random
import secrets
import sys
import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from downrange.protocol.bodies.batch_ack import BatchAckRequest
from downrange.protocol.bodies.consumer import RunningInfo
from downrange.protocol.bodies.heartbeat import Heartbeat, decode_heartbeat
from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.bodies.registration import Registration
from downrange.protocol.bodies.route import TopicRoute
from downrange.protocol.command import Command, Serialization
from downrange.protocol.command_codec import decode_command, encode_command
from downrange.protocol.errors import LocalProtocolError, ProtocolError
from downrange.protocol.frame import Frame, FrameDecoder
from downrange.protocol.headers.fields import decode_header, encode_header
from downrange.protocol.headers.table import REQUEST_HEADERS, RESPONSE_HEADERS
from downrange.protocol.json_text import write_json
from downrange.protocol.loose_json import read_json
from downrange.protocol.record import MAGIC_V2, Record, decode_records, encode_record, record_size
from downrange.protocol.record_crc import append_record_crc, check_record_crc

INPUT_BYTES_MAX: Final = 64 * 1024
INPUT_SECONDS_MAX: Final = 1.0  # a hundred times what the largest input takes on a slow machine
HANG_SECONDS: Final = 20.0
STDERR: Final = 2  # the descriptor itself, since a test may have replaced sys.stderr
MEMORY_CHECK_EVERY: Final = 50  # tracing memory makes a run several times slower
MEMORY_FACTOR: Final = 400  # one byte of JSON may become an empty list, of binary a field
MEMORY_BYTES_FREE: Final = 1024 * 1024  # caches, tables and the error itself

FIELDS: Final = {
    "a": "group",
    "b": "topic",
    "queueId": "3",
    "i": "KEYS\x01k\x02TAGS\x01é",
    "m": "true",
}
COMMANDS: Final = tuple(
    encode_command(Command(code=310, remark="r", ext_fields=FIELDS, serialization=serialization))
    for serialization in Serialization
)
LOOSE_TEXTS: Final = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"1.2.3.4:10911"},"brokerName":"b"}],"queueDatas":[]}',
    b'{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T"}:9}}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":1,'
    b'"subscriptionDataSet":[{"topic":"T","tagsSet":["\\u00e9"],"subVersion":1.5e3}]}]}',
    b"{name:'it\\'s \\ud83d\\ude00',list:[1,true,null,],-1:-0.5,}",
    b'{"acks":[{"b":"AQIA","c":"g","it":6,"pt":5,"q":3,"r":"0","rq":4,"so":100,"t":"T"}]}',
)
RECORDS: Final = tuple(
    encode_record(
        Record(
            queue_id=3,
            flag=7,
            queue_offset=42,
            physical_offset=1000,
            sys_flag=flag,
            born_timestamp=1,
            born_host=bytes(20 if flag & 16 else 8),
            store_timestamp=2,
            store_host=bytes(20 if flag & 32 else 8),
            reconsume_times=1,
            prepared_offset=0,
            body=b"hello",
            topic=b"T" * 200,
            properties=b"A\x01bc\x02",
            magic=MAGIC_V2,
        )
    )
    for flag in (0, 16, 32, 48)
)
# What parsers trip over, put in at random places.
TOKENS: Final = (
    *(b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00", b"\x00\x00\x00\x00"),
    *(b"{", b"}", b"[", b"]", b":", b",", b'"', b"'", b"\\", b"\\u", b"\\ud800", b"null", b"true"),
    *(b"-", b"1e999", b"0" * 500, b"[" * 300, b"{{", b"}:", b"\xc3\x28", b"\xed\xa0\x80", b"$ref"),
)


@dataclass(frozen=True)
class Target:
    """A decoder under test: called with broken input made from the examples."""

    run: Callable[[bytes], None]
    examples: tuple[bytes, ...]


@dataclass(frozen=True)
class Failure:
    """A broken rule, with what is needed to see it again."""

    rule: str
    case: int
    data: bytes


def run_frame(data: bytes) -> None:
    """Cut the input at a place it names itself, then into frames."""
    cut = data[0] if data else 0
    decoder = FrameDecoder(frame_bytes_max=INPUT_BYTES_MAX)
    for piece in (data[:cut], data[cut:]):
        decoder.feed(piece)
        while (frame := decoder.next_frame()) is not None:
            with suppress(ProtocolError):
                decode_command(frame)


def run_header(data: bytes) -> None:
    """Read one header, its encoding first; what was read must be writable, and then read alike."""
    command = decode_command(Frame(data[0] & 1 if data else 0, data[1:], None))
    try:
        written = encode_command(command)
    except LocalProtocolError as error:
        raise AssertionError(f"read but not writable: {error}") from error
    decoder = FrameDecoder()
    decoder.feed(written)
    frame = decoder.next_frame()
    assert frame is not None
    repeated = decode_command(frame)
    # A binary header has no empty fields: there None and {} are one.
    if command.serialization is Serialization.JSON or command.ext_fields:
        assert repeated == command, (command, repeated)


def run_loose_json(data: bytes) -> None:
    """Read JSON, then every typed body from it."""
    value = read_json(data)
    for body_type in (TopicRoute, RunningInfo, BatchAckRequest, Registration, Heartbeat):
        with suppress(ProtocolError):
            write_json(decode_body(body_type, data))
    with suppress(ProtocolError):
        decode_heartbeat(data)
    with suppress(ProtocolError):
        write_json(value)


def run_headers(data: bytes) -> None:
    """Read every typed header from fields of the input's making."""
    texts = data.decode("utf-8", "replace").split("\n")
    types = {*REQUEST_HEADERS.values(), *RESPONSE_HEADERS.values()}
    for header_type in sorted(types, key=lambda kind: kind.__name__):
        names = header_type.__struct_encode_fields__
        fields = {name: texts[index % len(texts)] for index, name in enumerate(names)}
        with suppress(ProtocolError):
            header = decode_header(header_type, fields)
            assert decode_header(header_type, encode_header(header)) == header


def run_record(data: bytes) -> None:
    """Read records end to end; one that was read is written as it stood."""
    start = 0
    for record in decode_records(data):
        end = start + record_size(data, start)
        # The checksum of an empty body is not looked at, so it may be anything.
        if record.body:
            assert encode_record(record) == data[start:end], record
        start = end


def run_record_crc(data: bytes) -> None:
    """Look for the checksum of a record, and of what the input is if it gets one."""
    check_record_crc(data)
    for record in decode_records(data, check_crc=False):
        sound = append_record_crc(encode_record(record), len(record.properties))
        assert check_record_crc(sound)


TARGETS: Final[dict[str, Target]] = {
    "frame": Target(run_frame, (b"".join(COMMANDS), COMMANDS[0] * 3, b"")),
    "header": Target(run_header, tuple(frame[4:5] + frame[8:] for frame in COMMANDS)),
    "loose_json": Target(
        run_loose_json, (*LOOSE_TEXTS, msgspec.json.encode({"list": list(range(20))}))
    ),
    "headers": Target(
        run_headers, (b"1\ntrue\nnull\n\n-5\ntext", b"+7\nFALSE\n9223372036854775807")
    ),
    "record": Target(run_record, (*RECORDS, b"".join(RECORDS))),
    "record_crc": Target(
        run_record_crc, (*RECORDS, *(append_record_crc(data, 5) for data in RECORDS))
    ),
}


def inputs(target: Target, generator: random.Random) -> Iterator[bytes]:
    """Give the examples, then endless mutations of them."""
    yield from target.examples
    while True:
        data = bytearray(generator.choice(target.examples))
        for _ in range(generator.choice((1, 1, 1, 2, 4, 16))):
            mutate(data, target.examples, generator)
        yield bytes(data[:INPUT_BYTES_MAX])


def mutate(data: bytearray, examples: tuple[bytes, ...], generator: random.Random) -> None:
    """Break the data in one place."""
    position = generator.randrange(len(data) + 1)
    end = min(len(data), position + generator.choice((1, 1, 2, 4, 8, 64)))
    match generator.randrange(7):
        case 0 if position < len(data):
            data[position] ^= 1 << generator.randrange(8)
        case 1 if position < len(data):
            data[position] = generator.randrange(256)
        case 2:
            del data[position:end]
        case 3:
            data[position:position] = data[position:end] * generator.choice((1, 2, 100))
        case 4:
            other = generator.choice(examples)
            data[position:] = other[generator.randrange(len(other) + 1) :]
        case 5:
            data[position:end] = generator.choice(TOKENS)
        case _:
            data[position:position] = generator.choice(TOKENS)


def broken_rule(target: Target, data: bytes, *, trace_memory: bool) -> str | None:
    """Run one input; give the rule it broke, if any."""
    if trace_memory:
        tracemalloc.start()
    began = time.perf_counter()
    try:
        target.run(data)
    except ProtocolError:
        pass
    except Exception:  # noqa: BLE001 - any other exception is what is looked for
        return traceback.format_exc()
    finally:
        elapsed_s = time.perf_counter() - began
        peak_bytes = tracemalloc.get_traced_memory()[1] if trace_memory else 0
        tracemalloc.stop()
    if elapsed_s > INPUT_SECONDS_MAX and not trace_memory:
        return f"took {elapsed_s:.1f} s for {len(data)} bytes"
    if peak_bytes > MEMORY_BYTES_FREE + MEMORY_FACTOR * len(data):
        return f"took {peak_bytes} bytes of memory for {len(data)} bytes"
    return None


def fuzz(target: Target, generator: random.Random, seconds: float) -> tuple[int, Failure | None]:
    """Feed inputs until time is up or a rule is broken; give how many were fed."""
    deadline = time.perf_counter() + seconds
    watched = 0.0
    case = 0
    for case, data in enumerate(inputs(target, generator), start=1):
        if time.perf_counter() > watched:
            watched = time.perf_counter() + 1.0
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True, file=STDERR)
        rule = broken_rule(target, data, trace_memory=case % MEMORY_CHECK_EVERY == 0)
        if rule is not None:
            faulthandler.cancel_dump_traceback_later()
            return case, Failure(rule, case, data)
        if time.perf_counter() > deadline:
            break
    faulthandler.cancel_dump_traceback_later()
    return case, None


def main(arguments: list[str]) -> int:
    """Run the chosen targets and print a verdict for each; 1 means a rule was broken."""
    parser = argparse.ArgumentParser(description="Feed broken bytes to every decoder.")
    parser.add_argument("--seconds", type=float, default=60.0, help="time for all targets together")
    parser.add_argument("--seed", type=int, default=None, help="repeat an earlier run")
    parser.add_argument("--target", choices=sorted(TARGETS), default=None, help="only this one")
    options = parser.parse_args(arguments)
    seed: int = secrets.randbits(32) if options.seed is None else options.seed
    names = [options.target] if options.target else list(TARGETS)
    print(f"seed {seed}")
    failures = 0
    for name in names:
        generator = random.Random(f"{seed}/{name}")
        count, failure = fuzz(TARGETS[name], generator, options.seconds / len(names))
        if failure is None:
            print(f"{name}: ok, {count} inputs")
            continue
        failures += 1
        print(f"{name}: FAILED at input {failure.case}: {failure.rule}")
        print(f"input: {failure.data!r}")
        print(f"again: python scripts/fuzz.py --target {name} --seed {seed}")
    print("verdict: failed" if failures else "verdict: ok")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
