"""Pulls that wait for a consumer which does not read: answered as far as it can take them."""

import asyncio
from pathlib import Path

from unit.broker.one_broker import OneBroker, pass_time, records

from downrange.protocol.command import Command, request
from downrange.protocol.command_codec import decode_command, encode_command
from downrange.protocol.frame import FrameDecoder
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.request_codes import RequestCode
from downrange.remoting.connection import WRITE_BUFFER_BYTES_MAX
from downrange.testing.virtual_time import run

PULLS = 100
BODY_BYTES = 200_000


class Reader(asyncio.Protocol):
    """A peer that decides itself when it reads."""

    def __init__(self) -> None:
        self._decoder = FrameDecoder()
        self.answers: list[Command] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._decoder.feed(data)
        while (frame := self._decoder.next_frame()) is not None:
            self.answers.append(decode_command(frame))


def test_one_message_for_many_waiting_pulls_does_not_fill_the_memory(tmp_path: Path) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as one:
            await one.send("T", b"first")
            reader = Reader()
            await one.network.connect("127.0.0.1", 10911, lambda: reader)
            reader.transport.pause_reading()
            fields = encode_header(one.pull_header("T", 1, sys_flag=6))
            for opaque in range(PULLS):
                command = request(RequestCode.PULL_MESSAGE, opaque=opaque, ext_fields=fields)
                reader.transport.write(encode_command(command))
            await pass_time(0.1)
            (_, _, end) = one.network.links[-1]
            assert end.other is not None
            assert end.other.get_write_buffer_size() == 0
            await one.send("T", bytes(BODY_BYTES))
            await pass_time(0.1)
            waiting_bytes = end.other.get_write_buffer_size()
            assert 0 < waiting_bytes < WRITE_BUFFER_BYTES_MAX + 2 * BODY_BYTES
            reader.transport.resume_reading()
            await pass_time(1.5)
            assert sorted(answer.opaque for answer in reader.answers) == list(range(PULLS))
            assert all(len(records(answer)) == 1 for answer in reader.answers)

    run(main())
