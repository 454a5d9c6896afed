"""Connections to peers by address: made when first needed, made again when lost."""

import asyncio
from collections.abc import Callable, Mapping

from downrange.protocol.command import Command
from downrange.protocol.hosts import parse_address
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Connection, Handler
from downrange.remoting.errors import ConnectError, SentAwayError
from downrange.remoting.network import Network

CONNECT_TIMEOUT_S = 3.0


class RemotingClient:
    """Calls peers; serves what they ask on the same connections.

    `on_open` and `on_close` hear of every connection, with the address it was asked for by.
    """

    def __init__(
        self,
        network: Network,
        handlers: Mapping[int, Handler] | None = None,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        on_open: Callable[[str, Connection], None] | None = None,
        on_close: Callable[[str, Connection], None] | None = None,
    ) -> None:
        self._network = network
        self._handlers = handlers or {}
        self._connect_timeout_s = connect_timeout_s
        self._on_open = on_open
        self._on_close = on_close
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Lock] = {}
        self._open: set[Connection] = set()
        self._all_gone = asyncio.Event()

    async def call(
        self,
        address: str,
        code: int,
        ext_fields: dict[str, str] | None = None,
        body: bytes | None = None,
        *,
        timeout_s: float,
    ) -> Command:
        """Send a request and wait for its answer; connecting counts against the time.

        A peer that says GO_AWAY may have a successor at its address: it is asked once more, over a
        new connection.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        for _ in range(2):
            connection = self.connected(address)
            if connection is None:
                connection = await self.connect(address, max(deadline_s - loop.time(), 0.001))
            left_s = max(deadline_s - loop.time(), 0.0)
            answer = await connection.call(code, ext_fields, body, timeout_s=left_s)
            if answer.code != ResponseCode.GO_AWAY:
                return answer
            if self._connections.get(address) is connection:
                del self._connections[address]
                # Others may still wait for answers on it.
                loop.call_later(left_s, connection.close)
        raise SentAwayError(f"{address} is shutting down")

    async def connect(self, address: str, timeout_s: float | None = None) -> Connection:
        """The connection to a peer; `ConnectError` says which peer and why not."""
        lock = self._connecting.setdefault(address, asyncio.Lock())
        async with lock:
            connection = self._connections.get(address)
            if connection is not None and not connection.is_closed:
                return connection
            limit_s = min(self._connect_timeout_s, timeout_s or self._connect_timeout_s)
            connection = Connection(self._handlers, on_close=self._watch(address))
            host, port = parse_address(address)
            try:
                async with asyncio.timeout(limit_s):
                    await self._network.connect(host, port, lambda: connection)
            except TimeoutError:
                raise ConnectError(
                    f"{address} did not accept a connection in {limit_s} s"
                ) from None
            except OSError as error:
                raise ConnectError(f"cannot connect to {address}: {error}") from error
            self._connections[address] = connection
            if not connection.is_closed:
                self._open.add(connection)
            if self._on_open is not None:
                self._on_open(address, connection)
            return connection

    def connected(self, address: str) -> Connection | None:
        """The connection to a peer, if there is one already."""
        connection = self._connections.get(address)
        return None if connection is None or connection.is_closed else connection

    def retire(self, address: str, close_after_s: float) -> None:
        """Make a new connection for what comes next; what waits on the old one may still end."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            asyncio.get_running_loop().call_later(close_after_s, connection.close)

    def close(self, address: str | None = None) -> None:
        """Close the connection to one peer, or to all."""
        for name in [address] if address is not None else list(self._connections):
            connection = self._connections.pop(name, None)
            if connection is not None:
                connection.close()

    async def stop(self, timeout_s: float) -> None:
        """Close all and wait for it: what TLS says at the end takes a moment."""
        self.close()
        for connection in list(self._open):
            connection.close()
        if self._open:
            self._all_gone.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._all_gone.wait()
            except TimeoutError:
                for connection in list(self._open):
                    connection.abort()

    def _watch(self, address: str) -> Callable[[Connection], None]:
        def closed(connection: Connection) -> None:
            self._open.discard(connection)
            if not self._open:
                self._all_gone.set()
            if self._on_close is not None:
                self._on_close(address, connection)

        return closed
