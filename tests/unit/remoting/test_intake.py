"""What a server holds, reads and accepts is limited over all of its connections."""

import asyncio
import struct

import pytest

from downrange.protocol.command import Command, response
from downrange.remoting.client import RemotingClient
from downrange.remoting.connection import Answer, Connection
from downrange.remoting.errors import ConnectionLostError
from downrange.remoting.memory import MemoryNetwork
from downrange.remoting.server import RemotingServer
from downrange.remoting.settings import KIB, MIB, ConnectionSettings
from downrange.runtime.loop_watch import LoopWatch
from downrange.runtime.service import Supervisor
from downrange.testing.virtual_time import run

ADDRESS = "127.0.0.1:10911"
ECHO = 77_001
HALF = struct.pack(">i", 16 * MIB - 4) + bytes(15 * MIB)


def fail(name: str, error: BaseException) -> None:
    raise AssertionError(name) from error


def echo(command: Command, _: Connection) -> Answer:
    return response(command, 0, body=command.body)


async def start(network: MemoryNetwork, settings: ConnectionSettings) -> RemotingServer:
    loop = asyncio.get_running_loop()
    server = RemotingServer(
        network,
        Supervisor(fail),
        {ECHO: echo},
        settings=settings,
        watch=LoopWatch(loop.time),
        idle_s_max=10_000,
    )
    await server.listen("127.0.0.1", 10911)
    return server


async def pass_time(seconds: float) -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, event.set)
    await event.wait()


def write_in_reads(connection: Connection, data: bytes) -> None:
    for start_at in range(0, len(data), 256 * KIB):
        connection._write([data[start_at : start_at + 256 * KIB]])


def test_half_received_requests_of_many_connections_stay_within_the_limit() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        server = await start(network, ConnectionSettings(held_bytes_max=64 * MIB))
        held: list[int] = []
        for _ in range(20):
            write_in_reads(await RemotingClient(network).connect(ADDRESS), HALF)
            await pass_time(0)
            held.append(server.intake.budget.held_bytes)
        honest = await RemotingClient(network).connect(ADDRESS)
        answer = await honest.call(ECHO, body=bytes(MIB), timeout_s=10)
        assert answer.body == bytes(MIB)
        held.append(server.intake.budget.held_bytes)
        assert max(held) <= 64 * MIB
        assert set(server.intake.refusals) <= {"memory", "pressure"}
        assert server.intake.refusals
        for _ in range(20 * 1100):
            await pass_time(1)
            if len(server.connections) == 1:
                break
        assert server.connections, "the honest one is not closed"
        assert server.intake.budget.total_bytes == 0

    run(main())


def test_a_request_whose_rest_never_comes_is_closed_and_counted() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        server = await start(network, ConnectionSettings(receive_s_max=5))
        connection = await RemotingClient(network).connect(ADDRESS)
        connection._write([struct.pack(">i", 1000)])
        await pass_time(4)
        assert len(server.connections) == 1
        await pass_time(4)
        assert server.intake.refusals == {"slow": 1}
        assert not server.connections

    run(main())


def test_requests_that_follow_each_other_in_pieces_each_have_their_own_time() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        server = await start(network, ConnectionSettings(receive_s_max=5))
        connection = await RemotingClient(network).connect(ADDRESS)
        sent: list[bytes] = []
        connection._write = lambda out: sent.extend(bytes(part) for part in out)  # type: ignore[method-assign]
        calls = [
            asyncio.ensure_future(connection.call(ECHO, body=bytes(30_000), timeout_s=60))
            for _ in range(10)
        ]
        await pass_time(0)
        stream = b"".join(sent)
        transport = connection._transport
        assert transport is not None
        for start_at in range(0, len(stream), 20_000):  # each read ends inside a request
            transport.write(stream[start_at : start_at + 20_000])
            await pass_time(2)
        assert [len((await call).body or b"") for call in calls] == [30_000] * 10
        assert not server.intake.refusals
        assert server.intake.budget.total_bytes == 0

    run(main())


def test_an_address_may_have_so_many_connections() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        server = await start(network, ConnectionSettings(connections_per_address_max=2))
        first, second, third = [await RemotingClient(network).connect(ADDRESS) for _ in range(3)]
        with pytest.raises(ConnectionLostError):
            await third.call(ECHO, timeout_s=1)
        assert server.intake.refusals == {"address": 1}
        first.close()
        await pass_time(0)
        fourth = await RemotingClient(network).connect(ADDRESS)
        for connection in (second, fourth):
            assert (await connection.call(ECHO, timeout_s=1)).code == 0

    run(main())


def test_an_address_may_send_so_many_bytes_per_second() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        await start(network, ConnectionSettings(bytes_per_second_max=100_000))
        loop = asyncio.get_running_loop()
        clients = [await RemotingClient(network).connect(ADDRESS) for _ in range(2)]
        began_s = loop.time()
        for _ in range(5):
            for client in clients:
                answer = await client.call(ECHO, body=bytes(100_000), timeout_s=60)
                assert answer.code == 0
        # The last request need not be paid for, and one second was free.
        assert 8 <= loop.time() - began_s <= 10

    run(main())
