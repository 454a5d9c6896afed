"""The HTTP server for operators: what it answers, and what it does not let a peer do."""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import pytest

from downrange.app.event_loop import loop_factory
from downrange.monitoring.http_request import (
    HEAD_BYTES_MAX,
    REQUEST_LINE_BYTES_MAX,
    BadRequestError,
    Request,
    RequestReader,
)
from downrange.monitoring.http_server import LIMITS, HttpServer, Page, State, StateLimit
from downrange.remoting.memory import MemoryNetwork
from downrange.remoting.network import TcpNetwork
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
    """A server in memory and time that jumps. `/later` waits for the test to make it."""

    def __init__(self, **limits: int) -> None:
        self.network = MemoryNetwork()
        self.later: list[Callable[[Page], None]] = []
        places = {
            state: StateLimit(limits.get(state.value, limit.connections_max), limit.seconds_max)
            for state, limit in LIMITS.items()
        }
        self.server = HttpServer(
            self.network,
            {
                "/healthz": lambda _, deliver: deliver(Page(b"ok\n")),
                "/broken": self._broken,
                "/big": lambda _, deliver: deliver(Page(b"x" * 1_000_000, content_type="text/x")),
                "/later": lambda _, deliver: self.later.append(deliver),
            },
            limits=places,
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
    def _broken(_request: Request, _deliver: Callable[[Page], None]) -> None:
        raise RuntimeError("oops")


async def settle() -> None:
    await pause(0.01)


async def pause(seconds: float) -> None:
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(seconds, waiter.set_result, None)
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
            (b"GET /healthz HTTP/2.0", 505, b"use HTTP/1.1"),
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
        assert (await site.ask(b"GET /" + b"x" * REQUEST_LINE_BYTES_MAX)).status == 414
        field = b"X: " + b"x" * 1000 + b"\r\n"
        begin = b"GET /healthz HTTP/1.1\r\n"
        count = HEAD_BYTES_MAX // len(field)
        assert (await site.ask(begin + field * (count + 1))).status == 431
        assert (await site.ask(begin + field * (count + 1) + b"\r\n")).status == 431
        assert (await site.ask(begin + field * (count - 1) + b"\r\n")).status == 200

    in_site(work)


def test_a_request_that_stays_incomplete_gets_an_answer_and_silence_gets_none() -> None:
    async def work(site: Site) -> None:
        half, silent = await site.ask(b"GET /healthz"), await site.connect()
        begin_s = asyncio.get_running_loop().time()
        await pause(30.0)
        assert half.status == 408
        assert silent.data == b""
        for peer in (half, silent):
            assert peer.ended_s is not None
            assert peer.ended_s - begin_s <= LIMITS[State.READING].seconds_max

    in_site(work)


def test_idle_connections_never_keep_a_probe_from_its_answer() -> None:
    async def work(site: Site) -> None:
        idle = [await site.connect() for _ in range(40)]
        slow = [await site.ask(b"GET /heal") for _ in range(40)]
        assert (await site.ask(b"GET /healthz HTTP/1.1\r\n\r\n")).status == 200
        # The oldest had to go, the newest may still ask.
        assert idle[0].ended_s is not None
        assert slow[-1].ended_s is None
        assert slow[-1].transport is not None
        slow[-1].transport.write(b"thz HTTP/1.1\r\n\r\n")
        await settle()
        assert slow[-1].status == 200

    in_site(work)


def test_a_probe_is_answered_while_long_pages_are_made_or_not_taken() -> None:
    async def work(site: Site) -> None:
        scrapes = [await site.ask(b"GET /later HTTP/1.1\r\n\r\n") for _ in range(5)]
        deaf = []
        for _ in range(5):
            peer = await site.connect()
            assert peer.transport is not None
            peer.transport.pause_reading()
            peer.transport.write(b"GET /big HTTP/1.1\r\n\r\n")
            await settle()
            deaf.append(peer)
        assert (await site.ask(b"GET /healthz HTTP/1.1\r\n\r\n")).status == 200
        for deliver in site.later:  # some of those who asked have been closed
            deliver(Page(b"made"))
        await settle()
        assert [scrape.ended_s is not None for scrape in scrapes] == [True] * 5
        assert [scrape.body for scrape in scrapes] == [b"", b"", b"made", b"made", b"made"]
        assert deaf[0].ended_s is not None

    in_site(work, waiting=3, writing=3)


def test_who_does_not_take_the_page_is_cut_off_in_time() -> None:
    async def work(site: Site) -> None:
        peer = await site.connect()
        assert peer.transport is not None
        peer.transport.pause_reading()
        peer.transport.write(b"GET /big HTTP/1.1\r\n\r\n")
        await settle()
        assert peer.ended_s is None
        await pause(LIMITS[State.WRITING].seconds_max)
        assert peer.ended_s is not None

    in_site(work)


def test_only_the_first_of_pipelined_requests_is_answered() -> None:
    async def work(site: Site) -> None:
        peer = await site.ask(b"GET /healthz HTTP/1.1\r\n\r\n" * 3)
        assert peer.data.count(b"HTTP/1.1 200") == 1
        assert b"Connection: close\r\n" in peer.data

    in_site(work)


def test_what_a_peer_may_write_and_what_it_means() -> None:
    def read(text: bytes) -> Request | None:
        return RequestReader().feed(text)

    assert read(b"GET /readyz HTTP/1.0\n\n") == Request("GET", "/readyz")
    assert read(b"\r\nGET /readyz HTTP/1.1\r\n\r\n") == Request("GET", "/readyz")
    assert read(b"GET http://a:1/readyz?x=/y HTTP/1.1\r\n\r\n") == Request("GET", "/readyz")
    assert read(b"GET http://a:1 HTTP/1.1\r\n\r\n") == Request("GET", "/")
    accepting = b"GET /readyz HTTP/1.1\r\naccept: text/plain, application/json\r\n\r\n"
    assert read(accepting) == Request("GET", "/readyz", accepts_json=True)
    with pytest.raises(BadRequestError) as caught:
        read(b"PRI * HTTP/2.0\r\n\r\n")
    assert caught.value.status is HTTPStatus.HTTP_VERSION_NOT_SUPPORTED


@pytest.mark.parametrize("factory", [None, loop_factory()], ids=["asyncio", "as-a-process"])
def test_over_tcp_the_answer_reaches_a_peer_that_is_still_sending_or_has_stopped_sending(
    factory: Callable[[], asyncio.AbstractEventLoop] | None,
) -> None:
    """A socket that is closed with unread bytes is reset, and the answer is lost."""

    async def talk(port: int, request: bytes, *, ends: bool) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        if ends:
            writer.write_eof()
        await writer.drain()
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    async def main() -> None:
        page = Page(b"ok\n" * 1_000_000)
        server = HttpServer(TcpNetwork(), {"/": lambda _, deliver: deliver(page)})
        await server.listen("127.0.0.1", 0)
        port = server.port
        flood = b"GET /" + b"x" * 300_000
        for _ in range(20):
            assert (await talk(port, flood, ends=False)).startswith(b"HTTP/1.1 414")
        whole = await talk(port, b"GET / HTTP/1.1\r\n\r\n", ends=True)
        assert whole.endswith(b"\r\n\r\n" + page.body)
        assert (await talk(port, b"GET / HT", ends=True)).startswith(b"HTTP/1.1 400")
        assert await talk(port, b"", ends=True) == b""
        server.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(asyncio.wait_for(main(), 60))
