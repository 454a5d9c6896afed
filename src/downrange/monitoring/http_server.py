"""A small HTTP server for a few pages that are made when they are asked for.

GET and HEAD, one request a connection, bounds on everything a peer could make large or slow. It is
for operators' tools on a trusted network: no TLS, no passwords, nothing that changes anything.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, cast

from downrange.protocol.hosts import format_address
from downrange.remoting.network import Listener, Network

_log = logging.getLogger(__name__)

REQUEST_BYTES_MAX: Final = 8 * 1024
EXCHANGE_S_MAX: Final = 10.0  # from the connection to the last byte of the answer
CONNECTIONS_MAX: Final = 32
PLAIN: Final = "text/plain; charset=utf-8"
_METHODS: Final = frozenset(("GET", "HEAD"))
_END: Final = b"\r\n\r\n"
_WORDS_OF_A_REQUEST: Final = 3


@dataclass(frozen=True, slots=True)
class Page:
    """What is answered."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = PLAIN


Pages = Mapping[str, Callable[[], Page]]


class HttpServer:
    """Serves pages by path. Owned by the event loop; a page is made on it and must not block."""

    def __init__(
        self,
        network: Network,
        pages: Pages,
        *,
        connections_max: int = CONNECTIONS_MAX,
        exchange_s_max: float = EXCHANGE_S_MAX,
    ) -> None:
        self._network = network
        self._pages = pages
        self._connections_max = connections_max
        self._exchange_s_max = exchange_s_max
        self._listener: Listener | None = None
        self._open: set[_Exchange] = set()

    @property
    def port(self) -> int:
        """Where the open door is."""
        assert self._listener is not None, "open the door first"
        return self._listener.address[1]

    async def listen(self, host: str, port: int) -> str:
        """Open the door; returns the address it really has. `OSError` if it cannot be had."""
        self._listener = await self._network.listen(host, port, self._new)
        return format_address(*self._listener.address)

    def close(self) -> None:
        """Close the door and what is open."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for exchange in list(self._open):
            exchange.abort()

    def _new(self) -> "_Exchange":
        is_full = len(self._open) >= self._connections_max
        return _Exchange(self._pages, self._open, self._exchange_s_max, is_full=is_full)


class _Exchange(asyncio.Protocol):
    """One request and its answer."""

    def __init__(
        self, pages: Pages, open_exchanges: "set[_Exchange]", seconds_max: float, *, is_full: bool
    ) -> None:
        self._pages = pages
        self._open = open_exchanges
        self._seconds_max = seconds_max
        self._is_full = is_full
        self._read = bytearray()
        self._is_answered = False
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._open.add(self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._seconds_max, self.abort)
        if self._is_full:
            self._answer(_refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections"))

    def data_received(self, data: bytes) -> None:
        if self._is_answered:
            return
        self._read += data
        end = self._read.find(_END)
        if end > REQUEST_BYTES_MAX or (end < 0 and len(self._read) > REQUEST_BYTES_MAX):
            text = f"a request has at most {REQUEST_BYTES_MAX} bytes"
            self._answer(_refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text))
        elif end >= 0:
            line = bytes(self._read[: self._read.find(b"\r\n")]).decode("latin-1")
            self._serve(line)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio names it
        self._open.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def abort(self) -> None:
        """End it, answered or not."""
        if self._transport is not None:
            self._transport.abort()

    def _serve(self, line: str) -> None:
        words = line.split(" ")
        if len(words) != _WORDS_OF_A_REQUEST or not words[2].startswith("HTTP/1."):
            self._answer(_refusal(HTTPStatus.BAD_REQUEST, "this is not an HTTP/1 request"))
            return
        method, target, _version = words
        if method not in _METHODS:
            self._answer(_refusal(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are served"))
            return
        make = self._pages.get(target.partition("?")[0])
        if make is None:
            known = " ".join(self._pages)
            self._answer(_refusal(HTTPStatus.NOT_FOUND, f"no such page; there are {known}"))
            return
        try:
            page = make()
        except Exception:  # noqa: BLE001 - a page that fails must not end the server it describes
            _log.exception("page failed path=%s", target)
            page = _refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "the page failed; see the log")
        self._answer(page, with_body=method == "GET")

    def _answer(self, page: Page, *, with_body: bool = True) -> None:
        assert self._transport is not None
        self._is_answered = True
        is_refused = page.status == HTTPStatus.METHOD_NOT_ALLOWED
        allowed = "Allow: GET, HEAD\r\n" if is_refused else ""
        head = (
            f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
            f"Content-Type: {page.content_type}\r\n"
            f"Content-Length: {len(page.body)}\r\n"
            f"{allowed}"
            "Cache-Control: no-store\r\n"
            "Connection: close\r\n\r\n"
        )
        self._transport.write(head.encode("latin-1") + (page.body if with_body else b""))
        self._transport.close()


def _refusal(status: HTTPStatus, text: str) -> Page:
    return Page(f"{text}\n".encode(), status)
