"""Peers that do not read, or send half of what they should: nobody waits for them for ever."""

import asyncio

from downrange.protocol.command import Command, request, response
from downrange.protocol.command_codec import decode_command, encode_command
from downrange.protocol.frame import FrameDecoder
from downrange.remoting.connection import WRITE_BUFFER_BYTES_MAX, Answer, Connection
from downrange.remoting.memory import MemoryNetwork
from downrange.remoting.server import IDLE_S_MAX, IDLE_SWEEP_S, RemotingServer
from downrange.runtime.service import Supervisor
from downrange.testing.virtual_time import run

LARGE = 1001
PORT = 10911
LARGE_BYTES = 200_000
ANSWERS = 500


class Raw(asyncio.Protocol):
    """A peer that decides itself when it reads."""

    def __init__(self) -> None:
        self.decoder = FrameDecoder()
        self.opaques: list[int] = []
        self.is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.decoder.feed(data)
        while (frame := self.decoder.next_frame()) is not None:
            self.opaques.append(decode_command(frame).opaque)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.is_closed = True


class Counting:
    """A handler with large answers that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, command: Command, _: Connection) -> Answer:
        self.calls += 1
        return response(command, 0, body=bytes(LARGE_BYTES))


def fail(name: str, error: BaseException) -> None:
    raise AssertionError(name) from error


async def pass_time(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_later(seconds, future.set_result, None)
    await future


async def connected(handler: Counting) -> tuple[RemotingServer, Raw]:
    network = MemoryNetwork()
    server = RemotingServer(network, Supervisor(fail), {LARGE: handler})
    await server.listen("127.0.0.1", PORT)
    peer = Raw()
    await network.connect("127.0.0.1", PORT, lambda: peer)
    return server, peer


def requests() -> bytes:
    return b"".join(encode_command(request(LARGE, opaque=number)) for number in range(ANSWERS))


def test_a_peer_that_does_not_read_is_served_again_when_it_does() -> None:
    async def main() -> None:
        handler = Counting()
        _, peer = await connected(handler)
        peer.transport.pause_reading()
        peer.transport.write(requests())  # in one read
        await pass_time(1)
        served = handler.calls
        assert served * LARGE_BYTES < WRITE_BUFFER_BYTES_MAX + 5_000_000
        peer.transport.write(requests())  # nobody reads these yet
        await pass_time(60)
        assert handler.calls == served
        peer.transport.resume_reading()
        await pass_time(1)
        assert peer.opaques == [*range(ANSWERS), *range(ANSWERS)]

    run(main())


def test_a_peer_that_never_reads_is_hung_up_on() -> None:
    async def main() -> None:
        server, peer = await connected(Counting())
        peer.transport.pause_reading()
        peer.transport.write(requests())
        await pass_time(IDLE_S_MAX + IDLE_SWEEP_S + 1)
        assert peer.is_closed
        assert not server.connections

    run(main())


def test_half_a_frame_and_then_silence_is_hung_up_on() -> None:
    async def main() -> None:
        server, peer = await connected(Counting())
        peer.transport.write(requests()[:70])
        await pass_time(IDLE_S_MAX - IDLE_SWEEP_S)
        assert len(server.connections) == 1
        await pass_time(2 * IDLE_SWEEP_S + 1)
        assert peer.is_closed
        assert not server.connections

    run(main())
