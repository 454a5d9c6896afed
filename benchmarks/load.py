"""Load for any RocketMQ broker: frames made beforehand, kept in flight, answers counted.

usage: load.py HOST:PORT TOPIC [--connections 4] [--window 16] [--body 128] [--batch 1]
               [--seconds 10] [--pid BROKER]

One thread and no client library, so that the broker is the limit. Only the pairing number of a
frame is not looked at: an answer is an answer, the first ones and every 997th are read.
"""

import argparse
import os
import select
import socket
import struct
import time
from collections import deque
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

from downrange.protocol.batch import encode_batch
from downrange.protocol.command import Command, Serialization
from downrange.protocol.command_codec import decode_command, encode_command
from downrange.protocol.frame import FrameDecoder
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.headers.pull import PullRequest
from downrange.protocol.headers.send import SendRequestV2
from downrange.protocol.request_codes import RequestCode
from downrange.runtime.clock import SystemClock

QUEUES = 8
FRAMES = 64  # distinct frames of a connection
READ_BYTES = 1 << 16
FIRST_ANSWERS = 64
EVERY = 997
WAIT_S = 10.0
_LENGTH = struct.Struct(">i")


class LoadError(Exception):
    """The broker refused, closed the connection or did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is sent: `connections` times `window` requests in flight, each of `batch` messages."""

    connections: int = 4
    window: int = 16
    body: int = 128
    batch: int = 1
    binary: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of it; times of single requests are of the first of each read."""

    messages: int
    seconds: float
    p50_ms: float
    p99_ms: float
    broker_cpu_us: float  # a message
    own_cpu_us: float

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    def __str__(self) -> str:
        return (
            f"{self.rate:9,.0f}/s  p50 {self.p50_ms:6.2f} ms  p99 {self.p99_ms:6.2f} ms  "
            f"broker {self.broker_cpu_us:5.1f} us a message (load itself {self.own_cpu_us:.1f})"
        )


def send_frame(topic: str, queue_id: int, number: int, load: Load) -> bytes:
    """A request as a Java producer sends it."""
    body = bytes(ord("a") + (number + at) % 26 for at in range(load.body))
    text = f"UNIQ_KEY\x01{unique_key(number)}\x02WAIT\x01true\x02"
    if load.batch > 1:
        body = encode_batch([(0, body, text.encode())] * load.batch)
    header = SendRequestV2(
        producer_group="load",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=QUEUES,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=SystemClock().wall_ms(),
        flag=0,
        properties=text,
        reconsume_times=0,
        batch=load.batch > 1,
    )
    code = RequestCode.SEND_BATCH_MESSAGE if load.batch > 1 else RequestCode.SEND_MESSAGE_V2
    serialization = Serialization.ROCKETMQ if load.binary else Serialization.JSON
    return encode_command(
        Command(
            code=code,
            opaque=number,
            ext_fields=encode_header(header),
            body=body,
            serialization=serialization,
        )
    )


def unique_key(number: int) -> str:
    """An id of the form that clients make."""
    return f"7F0000010001{os.getpid():08X}{number:012X}"


class _Flow:
    """One connection with its frames and the times at which requests went out.

    The program shares the machine with the broker that it measures, so it does as little as it
    can: a call to read and one to write for what is there.
    """

    __slots__ = ("_connection", "_frames", "_left", "_next", "_sent_at", "receive", "write")

    def __init__(self, connection: socket.socket, frames: list[bytes]) -> None:
        # With a time-out each call would ask the system first whether it may be made.
        connection.setblocking(False)
        self._connection = connection
        self._frames = frames * 2  # so that those of a window stand side by side
        self._next = 0
        self._left = b""
        self._sent_at: deque[float] = deque()
        self.receive = connection.recv
        self.write = connection.send

    def send(self, count: int, now_s: float) -> None:
        """Send the next requests."""
        start = self._next
        frames = self._frames
        data = frames[start] if count == 1 else b"".join(frames[start : start + count])
        self._next = (start + count) % FRAMES
        self._sent_at.extend(repeat(now_s, count))
        try:
            sent = self.write(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self._connection.settimeout(WAIT_S)
            self._connection.sendall(data[sent:])
            self._connection.setblocking(False)

    def count(self, data: bytes, answers: int) -> int:
        """How many answers are whole now; looks into some of them."""
        if self._left:
            data = self._left + data
        at = count = 0
        length = len(data)
        while length - at >= _LENGTH.size:
            end = at + _LENGTH.size + int.from_bytes(data[at : at + _LENGTH.size], "big")
            if end > length:
                break
            number = answers + count
            if number < FIRST_ANSWERS or number % EVERY == 0:
                _check(data[at:end])
            at = end
            count += 1
        self._left = data[at:]
        return count

    def answered(self, count: int) -> float:
        """When the oldest of so many requests went out, which are answered now."""
        sent_at = self._sent_at
        oldest_s = sent_at.popleft()
        for _ in range(count - 1):
            sent_at.popleft()
        return oldest_s

    def close(self) -> None:
        self._connection.close()


def run_load(
    address: str, topic: str, load: Load, seconds: float, *, pid: int, warm_s: float = 1.0
) -> Measured:
    """Keep the load up for some seconds; what happens in the first `warm_s` is not counted."""
    assert load.window <= FRAMES
    flows: dict[int, _Flow] = {}
    with select.epoll() as poll:
        try:
            for number in range(load.connections):
                frames = [
                    send_frame(topic, (number + at) % QUEUES, number * FRAMES + at, load)
                    for at in range(FRAMES)
                ]
                connection = connect(address)
                flows[connection.fileno()] = _Flow(connection, frames)
                poll.register(connection, select.EPOLLIN)
            return _drive(poll, flows, load, seconds, warm_s, pid)
        finally:
            for flow in flows.values():
                flow.close()


def _drive(
    poll: select.epoll,
    flows: dict[int, _Flow],
    load: Load,
    seconds: float,
    warm_s: float,
    pid: int,
) -> Measured:
    now = time.perf_counter
    begun_s = now()
    for each in flows.values():
        each.send(load.window, begun_s)
    times: list[float] = []
    answers = counted_from = 0
    start_s = cpu_s = own_s = 0.0
    while True:
        now_s = now()
        if not start_s and now_s - begun_s >= warm_s:
            start_s, counted_from = now_s, answers
            cpu_s, own_s = process_cpu_s(pid), time.process_time()
            times.clear()
        if start_s and now_s - start_s >= seconds:
            break
        ready = poll.poll(WAIT_S)
        if not ready:
            raise LoadError(f"no answer in {WAIT_S:.0f} s")
        for descriptor, _ in ready:
            flow = flows[descriptor]
            data = flow.receive(READ_BYTES)
            if not data:
                raise LoadError("the broker closed the connection")
            count = flow.count(data, answers)
            if count:
                answers += count
                now_s = now()
                times.append(now_s - flow.answered(count))
                flow.send(count, now_s)
    messages = (answers - counted_from) * load.batch
    return Measured(
        messages,
        now_s - start_s,
        percentile(times, 0.5) * 1e3,
        percentile(times, 0.99) * 1e3,
        (process_cpu_s(pid) - cpu_s) / messages * 1e6,
        (time.process_time() - own_s) / messages * 1e6,
    )


def publish_to_consume(
    address: str, topic: str, *, rate: float, seconds: float
) -> tuple[float, float]:
    """Milliseconds, p50 and p99, from a send to the answer of a pull that waited for it."""
    producer, consumer = connect(address), connect(address)
    consumer.settimeout(WAIT_S)
    load = Load()
    _exchange(producer, send_frame(topic, 0, 0, load))
    offset = _end_of_queue(consumer, topic)
    decoder = FrameDecoder()
    times = []
    for number in range(int(rate * seconds)):
        consumer.sendall(pull_frame(topic, offset))
        _pause_until(time.perf_counter() + 1 / rate)
        start_s = time.perf_counter()
        producer.sendall(send_frame(topic, 0, number, load))
        answer = _next_command(consumer, decoder)
        times.append(time.perf_counter() - start_s)
        if answer.code != 0:
            raise LoadError(f"pull answered {answer.code}: {answer.remark}")
        offset = int((answer.ext_fields or {})["nextBeginOffset"])
        producer.recv(READ_BYTES)
    producer.close()
    consumer.close()
    return percentile(times, 0.5) * 1e3, percentile(times, 0.99) * 1e3


def pull_frame(topic: str, offset: int) -> bytes:
    """A long pull with its own subscription."""
    header = PullRequest(
        consumer_group="load",
        topic=topic,
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=0b110,  # waits, and brings its subscription
        commit_offset=0,
        suspend_timeout_millis=15_000,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )
    return encode_command(
        Command(code=RequestCode.PULL_MESSAGE, opaque=1, ext_fields=encode_header(header))
    )


def _end_of_queue(connection: socket.socket, topic: str) -> int:
    fields = {"topic": topic, "queueId": "0", "committed": "true"}
    request = Command(code=RequestCode.GET_MAX_OFFSET, opaque=2, ext_fields=fields)
    answer = _exchange(connection, encode_command(request))
    return int((answer.ext_fields or {})["offset"])


def _exchange(connection: socket.socket, frame: bytes) -> Command:
    connection.settimeout(WAIT_S)
    connection.sendall(frame)
    answer = _next_command(connection, FrameDecoder())
    if answer.code != 0:
        raise LoadError(f"the broker answered {answer.code}: {answer.remark}")
    return answer


def _next_command(connection: socket.socket, decoder: FrameDecoder) -> Command:
    while (frame := decoder.next_frame()) is None:
        data = connection.recv(READ_BYTES)
        if not data:
            raise LoadError("the broker closed the connection")
        decoder.feed(data)
    return decode_command(frame)


def _pause_until(at_s: float) -> None:
    time.sleep(max(at_s - time.perf_counter(), 0))


def _check(frame: bytes) -> None:
    decoder = FrameDecoder()
    decoder.feed(frame)
    read = decoder.next_frame()
    assert read is not None
    answer = decode_command(read)
    if answer.code != 0:
        raise LoadError(f"the broker answered {answer.code}: {answer.remark}")


def connect(address: str) -> socket.socket:
    """A connection without delay."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=WAIT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def percentile(values: list[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] if values else 0.0


def process_cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Load one broker and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--window", type=int, default=16)
    parser.add_argument("--body", type=int, default=128)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--binary", action="store_true")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--pid", type=int, default=os.getpid())
    options = parser.parse_args()
    load = Load(
        connections=options.connections,
        window=options.window,
        body=options.body,
        batch=options.batch,
        binary=options.binary,
    )
    print(run_load(options.address, options.topic, load, options.seconds, pid=options.pid))


if __name__ == "__main__":
    main()
