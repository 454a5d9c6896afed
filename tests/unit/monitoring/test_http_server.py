"""The HTTP server for operators: what it answers, and what it does not let a peer do."""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from downrange.monitoring.http_server import REQUEST_BYTES_MAX, HttpServer, Page
from downrange.remoting.memory import MemoryNetwork
from downrange.testing.virtual_time import run

PORT = 8080


class Peer(asyncio.Protocol):
    """Remembers what came, and when the end came."""

    def __init__(self) -> None:
        self.data = b""
        self.ended_s: float | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.ended_s = asyncio.get_running_loop().time()

    @property
    def status(self) -> int:
        return int(self.data.split(b" ")[1])

    @property
    def body(self) -> bytes:
        return self.data.partition(b"\r\n\r\n")[2]


class Site:
    """A server in memory and time that jumps."""

    def __init__(self, **limits: int) -> None:
        self.network = MemoryNetwork()
        self.server = HttpServer(
            self.network,
            {"/healthz": lambda: Page(b"ok\n"), "/broken": self._broken, "/big": self._big},
            connections_max=limits.get("connections_max", 32),
        )

    async def connect(self) -> Peer:
        peer = Peer()
        await self.network.connect("127.0.0.1", PORT, lambda: peer)
        return peer

    async def ask(self, *pieces: bytes) -> Peer:
        peer = await self.connect()
        assert peer.transport is not None
        for piece in pieces:
            peer.transport.write(piece)
            await settle()
        return peer

    @staticmethod
    def _broken() -> Page:
        raise RuntimeError("oops")

    @staticmethod
    def _big() -> Page:
        return Page(b"x" * 1_000_000, HTTPStatus.OK, "text/x")


async def settle() -> None:
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.01, waiter.set_result, None)
    await waiter


def in_site(work: Callable[[Site], Awaitable[None]], **limits: int) -> None:
    async def main() -> None:
        site = Site(**limits)
        assert await site.server.listen("127.0.0.1", PORT) == f"127.0.0.1:{PORT}"
        await work(site)
        site.server.close()
        await settle()

    run(main())


def test_a_page_is_served_and_the_connection_closed() -> None:
    async def work(site: Site) -> None:
        peer = await site.ask(b"GET /healthz?x=1 HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (peer.status, peer.body) == (200, b"ok\n")
        assert b"Content-Length: 3\r\n" in peer.data
        assert b"Connection: close\r\n" in peer.data
        assert peer.ended_s is not None
        big = await site.ask(b"GET /big HTTP/1.0\r\n\r\n")
        assert len(big.body) == 1_000_000
        assert b"Content-Type: text/x\r\n" in big.data

    in_site(work)


def test_a_head_request_gets_the_head_alone() -> None:
    async def work(site: Site) -> None:
        peer = await site.ask(b"HEAD /healthz HTTP/1.1\r\n\r\n")
        assert (peer.status, peer.body) == (200, b"")
        assert b"Content-Length: 3\r\n" in peer.data

    in_site(work)


def test_every_split_of_a_request_is_the_same_request() -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"

    async def work(site: Site) -> None:
        for cut in range(1, len(request)):
            peer = await site.ask(request[:cut], request[cut:])
            assert (peer.status, peer.body) == (200, b"ok\n"), cut

    in_site(work)


def test_what_is_not_served_is_said_why() -> None:
    async def work(site: Site) -> None:
        for line, status, text in (
            (b"GET /nix HTTP/1.1", 404, b"/healthz"),
            (b"POST /healthz HTTP/1.1", 405, b"only GET and HEAD"),
            (b"nonsense", 400, b"not an HTTP/1 request"),
            (b"GET /healthz HTTP/2", 400, b"not an HTTP/1 request"),
            (b"GET /broken HTTP/1.1", 500, b"see the log"),
            (b"\x16\x03\x01 \xff\xfe \x00", 400, b"not an HTTP/1 request"),
        ):
            peer = await site.ask(line + b"\r\n\r\n")
            assert peer.status == status, line
            assert text in peer.body
            assert peer.ended_s is not None
        assert b"Allow: GET, HEAD\r\n" in (await site.ask(b"PUT /x HTTP/1.1\r\n\r\n")).data

    in_site(work)


def test_a_request_that_is_too_long_is_refused_before_its_end() -> None:
    async def work(site: Site) -> None:
        peer = await site.ask(b"GET /" + b"x" * REQUEST_BYTES_MAX)
        assert peer.status == 431
        long_head = b"GET /healthz HTTP/1.1\r\nX: " + b"x" * REQUEST_BYTES_MAX + b"\r\n\r\n"
        assert (await site.ask(long_head)).status == 431

    in_site(work)


def test_who_says_nothing_is_cut_off_in_time() -> None:
    async def work(site: Site) -> None:
        peer = await site.ask(b"GET /healthz")
        begin_s = asyncio.get_running_loop().time()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(30.0, waiter.set_result, None)
        await waiter
        assert peer.data == b""
        assert peer.ended_s is not None
        assert peer.ended_s - begin_s <= 10.0

    in_site(work)


def test_connections_beyond_the_bound_are_told_so() -> None:
    async def work(site: Site) -> None:
        first, second = await site.connect(), await site.connect()
        third = await site.connect()
        await settle()
        assert third.status == 503
        assert b"too many connections" in third.body
        for peer in (first, second):
            assert peer.transport is not None
            peer.transport.abort()
        await settle()
        assert (await site.ask(b"GET /healthz HTTP/1.1\r\n\r\n")).status == 200

    in_site(work, connections_max=2)
