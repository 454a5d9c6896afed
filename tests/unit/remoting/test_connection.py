"""Requests and replies over connections in memory, in virtual time."""

import asyncio
from collections.abc import Mapping

import pytest

from downrange.protocol.command import Command, response
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting import waiting_requests
from downrange.remoting.client import RemotingClient
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import (
    ConnectError,
    ConnectionLostError,
    Refused,
    RequestTimeoutError,
    SentAwayError,
)
from downrange.remoting.memory import MemoryNetwork, MemoryTransport
from downrange.remoting.server import RemotingServer
from downrange.runtime.service import Supervisor
from downrange.testing.virtual_time import run

ECHO, REFUSE, CRASH, NEVER, LATER = 1001, 1002, 1003, 1004, 1005
PORT = 10911
ADDRESS = f"127.0.0.1:{PORT}"


def echo(request: Command, _: Connection) -> Answer:
    return response(request, 0, ext_fields=request.ext_fields, body=request.body)


def refuse(_request: Command, _: Connection) -> Answer:
    raise Refused(ResponseCode.NO_PERMISSION, "not you")


def crash(_request: Command, _: Connection) -> Answer:
    raise ValueError("a bug")


async def never(_request: Command, _: Connection) -> Answer:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


async def later(request: Command, _: Connection) -> Answer:
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_later(5.0, future.set_result, None)
    await future
    return response(request, 0)


HANDLERS: Mapping[int, Handler] = {
    ECHO: echo, REFUSE: refuse, CRASH: crash, NEVER: never, LATER: later
}  # fmt: skip


def fail(name: str, error: BaseException) -> None:
    raise AssertionError(name) from error


async def pass_time(seconds: float) -> None:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(seconds, future.set_result, None)
    await future


async def start(network: MemoryNetwork) -> RemotingServer:
    server = RemotingServer(network, Supervisor(fail), HANDLERS)
    await server.listen("127.0.0.1", PORT)
    return server


def test_a_request_gets_its_own_answer_and_all_frames_of_a_read_one_write() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        await start(network)
        client = RemotingClient(network)
        connection = await client.connect(ADDRESS)
        answers = await asyncio.gather(
            *(connection.call(ECHO, {"n": str(n)}, b"x", timeout_s=1) for n in range(20))
        )
        assert [a.ext_fields for a in answers] == [{"n": str(n)} for n in range(20)]

    run(main())


def test_a_refusal_a_bug_and_an_unknown_code_are_answered_and_the_connection_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        await start(network)
        client = RemotingClient(network)
        refused = await client.call(ADDRESS, REFUSE, timeout_s=1)
        assert (refused.code, refused.remark) == (ResponseCode.NO_PERMISSION, "not you")
        broken = await client.call(ADDRESS, CRASH, timeout_s=1)
        assert (broken.code, broken.remark) == (1, "ValueError: a bug")
        unknown = await client.call(ADDRESS, 77_777, timeout_s=1)
        assert (unknown.code, unknown.remark) == (3, " request type 77777 not supported")
        assert (await client.call(ADDRESS, ECHO, body=b"y", timeout_s=1)).body == b"y"

    run(main())
    assert "request code 1003 failed" in caplog.text


def test_a_call_without_answer_ends_at_its_deadline() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        await start(network)
        client = RemotingClient(network)
        started_s = asyncio.get_running_loop().time()
        with pytest.raises(RequestTimeoutError, match="did not answer code 1004 in"):
            await client.call(ADDRESS, NEVER, timeout_s=3)
        assert asyncio.get_running_loop().time() - started_s == pytest.approx(3)

    run(main())


def test_a_handler_that_waits_does_not_hold_up_the_others() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        await start(network)
        connection = await RemotingClient(network).connect(ADDRESS)
        slow = asyncio.ensure_future(connection.call(LATER, timeout_s=10))
        await connection.call(ECHO, timeout_s=1)
        assert not slow.done()
        assert (await slow).code == 0

    run(main())


def test_bodies_of_requests_whose_handler_waits_are_bounded_over_all_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting_requests, "WAITING_BYTES_MAX", 1_000)

    async def main() -> None:
        network = MemoryNetwork()
        server = await start(network)
        clients = [RemotingClient(network) for _ in range(4)]
        calls = [client.call(ADDRESS, LATER, body=b"x" * 600, timeout_s=10) for client in clients]
        answers = await asyncio.gather(*calls)
        assert sorted(answer.code for answer in answers) == [0, 0, *[ResponseCode.SYSTEM_BUSY] * 2]
        remarks = [answer.remark for answer in answers if answer.code]
        assert remarks == ["[OVERLOAD]requests of 1200 bytes wait already"] * 2
        assert (server.turn.requests, server.turn.request_bytes) == (set(), 0)
        again = await clients[0].call(ADDRESS, LATER, body=b"x", timeout_s=10)
        assert again.code == 0

    run(main())


def test_a_cut_connection_fails_who_waits_and_the_next_call_connects_again() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        await start(network)
        client = RemotingClient(network)
        connection = await client.connect(ADDRESS)
        waiting = asyncio.ensure_future(connection.call(NEVER, timeout_s=100))
        await connection.call(ECHO, timeout_s=1)
        network.cut(PORT)
        with pytest.raises(ConnectionLostError):
            await waiting
        assert (await client.call(ADDRESS, ECHO, timeout_s=1)).code == 0

    run(main())


def test_no_door_is_a_connect_error_that_names_the_address() -> None:
    async def main() -> None:
        with pytest.raises(ConnectError, match=r"cannot connect to 127\.0\.0\.1:10911"):
            await RemotingClient(MemoryNetwork()).call(ADDRESS, ECHO, timeout_s=1)

    run(main())


def test_nonsense_closes_that_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        server = await start(network)
        good = await RemotingClient(network).connect(ADDRESS)
        bad = await RemotingClient(network).connect(ADDRESS)
        assert bad._transport is not None
        bad._transport.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await good.call(ECHO, timeout_s=1)).code == 0
        assert bad.is_closed
        assert len(server.connections) == 1

    run(main())
    assert "sent nonsense: the peer speaks HTTP" in caplog.text


def test_a_silent_connection_is_closed_after_two_minutes() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        server = await start(network)
        connection = await RemotingClient(network).connect(ADDRESS)
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_later(135, future.set_result, None)
        await future
        assert connection.is_closed
        assert not server.connections

    run(main())


def test_one_way_requests_are_never_answered() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        await start(network)
        connection = await RemotingClient(network).connect(ADDRESS)
        seen: list[Command] = []
        connection._calls.resolve = seen.append  # type: ignore[method-assign, assignment]
        for code in (ECHO, REFUSE, 77_777):
            connection.send_one_way(code)
        await asyncio.wait([asyncio.ensure_future(asyncio.wait_for(asyncio.Event().wait(), 1))])
        assert seen == []

    run(main())


def test_stop_closes_the_doors_and_the_connections() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        server = await start(network)
        client = RemotingClient(network)
        connection = await client.connect(ADDRESS)
        await server.stop()
        with pytest.raises(ConnectError):
            await RemotingClient(network).call(ADDRESS, ECHO, timeout_s=1)
        with pytest.raises((ConnectionLostError, RequestTimeoutError)):
            await connection.call(ECHO, timeout_s=1)
        assert connection.is_closed

    run(main())


def test_more_connections_than_may_be_are_turned_away(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        server = RemotingServer(network, Supervisor(fail), HANDLERS, connections_max=2)
        await server.listen("127.0.0.1", PORT)
        first, second, third = [await RemotingClient(network).connect(ADDRESS) for _ in range(3)]
        assert (await first.call(ECHO, timeout_s=1)).code == 0
        assert (await second.call(ECHO, timeout_s=1)).code == 0
        assert third.is_closed
        await pass_time(11)
        first.close()
        await pass_time(0)
        assert (await RemotingClient(network).call(ADDRESS, ECHO, timeout_s=1)).code == 0

    run(main())
    assert "refused 1 connections: the server has as many as it may have open" in caplog.text


def test_requests_of_a_peer_that_does_not_read_wait_until_it_does() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        served_codes: list[int] = []

        def count(request: Command, _: Connection) -> Answer:
            served_codes.append(request.code)
            return response(request, 0)

        server = RemotingServer(network, Supervisor(fail), {ECHO: count})
        await server.listen("127.0.0.1", PORT)
        connection = await RemotingClient(network).connect(ADDRESS)
        (served,) = server.connections
        connection.stop_reading()
        for _ in range(20):
            served.send_one_way(ECHO, body=bytes(1_000_000))
        assert not served.is_writable
        call = asyncio.ensure_future(connection.call(ECHO, timeout_s=60))
        await pass_time(1)
        assert served_codes == []
        network.links[0][2].resume_reading()
        assert (await call).code == 0
        assert served.is_writable

    run(main())


def test_a_call_that_is_sent_away_goes_to_the_successor_at_the_same_address() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        server = await start(network)
        client = RemotingClient(network)
        before = await client.connect(ADDRESS)
        leaving = asyncio.ensure_future(server.go_away(10))
        await pass_time(0)
        with pytest.raises(SentAwayError, match=r"127\.0\.0\.1:10911 is shutting down"):
            await client.call(ADDRESS, ECHO, timeout_s=3)
        after = await client.connect(ADDRESS)
        assert after is not before
        network.doors.pop(PORT)
        await start(network)
        assert (await client.call(ADDRESS, ECHO, timeout_s=3)).code == 0
        await leaving

    run(main())


def test_two_ends_that_both_have_much_to_write_do_not_wait_for_each_other() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        server = await start(network)
        connection = await RemotingClient(network).connect(ADDRESS)
        (served,) = server.connections
        link = network.links_to(PORT)[0]
        link.is_stalled = True
        for _ in range(10):
            served.send_one_way(NEVER, body=bytes(1_000_000))
        calls = [
            asyncio.ensure_future(connection.call(ECHO, body=bytes(1_000_000), timeout_s=60))
            for _ in range(10)
        ]
        await pass_time(1)
        assert not served.is_writable
        assert not connection.is_writable
        link.is_stalled = False
        network.links[0][2].resume()
        other = network.links[0][2].other
        assert other is not None
        other.resume()
        assert {answer.code for answer in await asyncio.gather(*calls)} == {0}

    run(main())


def test_requests_of_one_turn_leave_together_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writes: list[int] = []
    write = MemoryTransport.write

    def count(transport: MemoryTransport, data: bytes) -> None:
        writes.append(len(data))
        write(transport, data)

    async def main() -> None:
        network = MemoryNetwork()
        served: list[bytes | None] = []

        def remember(request: Command, _: Connection) -> Answer:
            served.append(request.body)
            return response(request, 0)

        server = RemotingServer(network, Supervisor(fail), {ECHO: remember})
        await server.listen("127.0.0.1", PORT)
        connection = await RemotingClient(network).connect(ADDRESS)
        monkeypatch.setattr(MemoryTransport, "write", count)
        calls = [connection.call(ECHO, body=b"%d" % number, timeout_s=1) for number in range(8)]
        await asyncio.gather(*calls)
        assert len(writes) == 4, "the other end works on the first four while the next are made"
        connection.send_one_way(ECHO, body=b"small")
        connection.send_one_way(ECHO, body=bytes(100_000))
        assert len(writes) == 5, "a large one is not kept waiting"
        connection.send_one_way(ECHO, body=b"last")
        connection.close()
        await pass_time(1)
        assert served[:9] == [*(b"%d" % number for number in range(8)), b"small"]
        assert served[10:] == [b"last"], "closing writes what is there"

    run(main())
