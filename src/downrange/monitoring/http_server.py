"""A small HTTP server for a few pages that are made on request.

GET and HEAD, one request per connection. It serves operators' tools on a trusted network: no TLS,
no passwords, nothing that changes anything. A connection is in one of four states, each with a
deadline and a limit on connections. When a state is full, its oldest connection is closed for the
new one, so peers that are idle, slow or too many never keep a probe from its answer.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Final, cast

from downrange.monitoring.http_request import METHODS, BadRequestError, Request, RequestReader
from downrange.protocol.hosts import format_address
from downrange.remoting.network import Listener, Network

_log = logging.getLogger(__name__)

PLAIN: Final = "text/plain; charset=utf-8"
_PIECE_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Page:
    """What is answered."""

    body: bytes | bytearray
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = PLAIN


# Makes a page and passes it on, once: before it returns, or later.
PageMaker = Callable[[Request, Callable[[Page], None]], None]


@dataclass(frozen=True, slots=True)
class StateLimit:
    """How many connections may be in a state, and for how long."""

    connections_max: int
    seconds_max: float


class State(Enum):
    """Where a connection stands."""

    READING = "reading"  # the request is not complete
    WAITING = "waiting"  # the page is being made
    WRITING = "writing"  # the peer has not taken the whole response
    LINGERING = "lingering"  # answered; what the peer still sends is dropped until it closes


# Kubernetes gives a probe one second, Prometheus gives a scrape ten. A page may have some
# megabytes, hence few writers, and not more who wait: a page is made for all of them at once.
# Lingering is needed because closing a socket that has unread bytes resets it, and the peer would
# lose the response.
LIMITS: Final[Mapping[State, StateLimit]] = {
    State.READING: StateLimit(32, 5.0),
    State.WAITING: StateLimit(8, 30.0),
    State.WRITING: StateLimit(8, 30.0),
    State.LINGERING: StateLimit(32, 1.0),
}


class HttpServer:
    """Serves pages by path. Owned by the event loop; page makers run on it and must not block."""

    def __init__(
        self,
        network: Network,
        pages: Mapping[str, PageMaker],
        *,
        limits: Mapping[State, StateLimit] = LIMITS,
    ) -> None:
        self._network = network
        self._pages = pages
        self._table = _ConnectionTable(limits)
        self._listener: Listener | None = None

    @property
    def port(self) -> int:
        """The port that it listens on."""
        assert self._listener is not None, "not listening"
        return self._listener.address[1]

    async def listen(self, host: str, port: int) -> str:
        """Listen; returns the actual address. `OSError` if the address is not available."""
        self._listener = await self._network.listen(host, port, self._new)
        return format_address(*self._listener.address)

    def close(self) -> None:
        """Close the server socket and all connections."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._table.close()

    def _new(self) -> "_Exchange":
        return _Exchange(self._pages, self._table)


class _ConnectionTable:
    """The connections by state, in the order in which they got there."""

    def __init__(self, limits: Mapping[State, StateLimit]) -> None:
        self._limits = limits
        self._members: dict[State, dict[_Exchange, None]] = {state: {} for state in State}

    def enter(self, exchange: "_Exchange", state: State) -> float:
        """Note a connection's new state; returns how many seconds it may stay there."""
        self.leave(exchange)
        members = self._members[state]
        if len(members) >= self._limits[state].connections_max:
            oldest = next(iter(members))
            self.leave(oldest)
            oldest.abort()
        members[exchange] = None
        return self._limits[state].seconds_max

    def leave(self, exchange: "_Exchange") -> None:
        """Forget a connection."""
        for members in self._members.values():
            members.pop(exchange, None)

    def close(self) -> None:
        """Close all of them."""
        for members in self._members.values():
            for exchange in list(members):
                exchange.abort()


class _Exchange(asyncio.Protocol):
    """One connection: a request and its response."""

    def __init__(self, pages: Mapping[str, PageMaker], table: _ConnectionTable) -> None:
        self._pages = pages
        self._table = table
        self._reader = RequestReader()
        self._state = State.READING
        self._is_over = False  # the peer sends nothing more
        self._rest = memoryview(b"")  # of the page, not yet passed to the transport
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    # --- what the transport says -----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)  # be told when all bytes are written
        self._enter(State.READING)

    def data_received(self, data: bytes) -> None:
        if self._state is not State.READING:
            return  # a pipelined request: the response says that the connection closes
        try:
            request = self._reader.feed(data)
        except BadRequestError as error:
            self._respond(_error_page(error.status, str(error)))
            return
        if request is not None:
            self._serve(request)

    def eof_received(self) -> bool:
        self._is_over = True
        if self._state is State.READING and not self._reader.is_empty:
            self._respond(_error_page(HTTPStatus.BAD_REQUEST, "the request is not complete"))
        # The response is still to be written to a peer that only stopped sending.
        return self._state in (State.WAITING, State.WRITING)

    def resume_writing(self) -> None:
        if self._state is State.WRITING:
            self._write()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio names it
        self._transport = None
        self._table.leave(self)
        if self._timer is not None:
            self._timer.cancel()

    def abort(self) -> None:
        """Close at once, answered or not."""
        if self._transport is not None:
            self._transport.abort()

    # --- states ----------------------------------------------------------------------------

    def _enter(self, state: State) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._state = state
        seconds = self._table.enter(self, state)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._on_deadline)

    def _on_deadline(self) -> None:
        if self._state is State.READING and not self._reader.is_empty:
            self._respond(_error_page(HTTPStatus.REQUEST_TIMEOUT, "the request took too long"))
        else:
            self.abort()

    def _serve(self, request: Request) -> None:
        make = self._pages.get(request.path)
        if make is None:
            known = " ".join(self._pages)
            self._respond(_error_page(HTTPStatus.NOT_FOUND, f"no such page; try {known}"))
            return
        with_body = request.method != "HEAD"
        self._state = State.WAITING  # takes a place only if the page is not made at once
        try:
            make(request, lambda page: self._respond(page, with_body=with_body))
        except Exception:  # noqa: BLE001 - a page that fails must not end the server it describes
            _log.exception("page %s failed", request.path)
            self._respond(failed_page(), with_body=with_body)
        if self._state is State.WAITING:
            self._enter(State.WAITING)

    def _respond(self, page: Page, *, with_body: bool = True) -> None:
        if self._transport is None:
            return  # the connection closed while the page was made
        is_refused = page.status == HTTPStatus.METHOD_NOT_ALLOWED
        allowed = f"Allow: {', '.join(METHODS)}\r\n" if is_refused else ""
        head = (
            f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
            f"Content-Type: {page.content_type}\r\n"
            f"Content-Length: {len(page.body)}\r\n"
            f"{allowed}"
            "Cache-Control: no-store\r\n"
            "Connection: close\r\n\r\n"
        )
        self._rest = memoryview(page.body if with_body else b"")
        self._transport.write(head.encode("latin-1"))
        self._state = State.WRITING  # takes a place only if the peer does not read it all at once
        self._write()
        if self._state is State.WRITING:
            self._enter(State.WRITING)

    def _write(self) -> None:
        """Pass on as much as the peer reads: a page is not copied for each who gets it."""
        assert self._transport is not None
        while not self._transport.get_write_buffer_size():
            if not self._rest:
                self._linger()
                return
            piece, self._rest = self._rest[:_PIECE_BYTES], self._rest[_PIECE_BYTES:]
            self._transport.write(piece)

    def _linger(self) -> None:
        assert self._transport is not None
        self._enter(State.LINGERING)
        if self._is_over or not self._transport.can_write_eof():
            self._transport.close()
        else:
            self._transport.write_eof()


def failed_page() -> Page:
    """For a page that could not be made."""
    return _error_page(HTTPStatus.INTERNAL_SERVER_ERROR, "the page failed; see the log")


def _error_page(status: HTTPStatus, text: str) -> Page:
    return Page(f"{text}\n".encode(), status)
