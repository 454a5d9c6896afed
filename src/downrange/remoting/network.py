"""Where connections come from: TCP here, memory in tests; the rest of remoting cannot tell."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol

ProtocolFactory = Callable[[], asyncio.Protocol]


class Listener(Protocol):
    """A server socket: bound when made, accepts connections from `start` on."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port it listens on; the port is the real one if 0 was asked for."""
        ...

    async def start(self) -> None:
        """Accept connections; until then they are refused. `OSError` if somebody was faster."""
        ...

    def close(self) -> None:
        """Let nobody in any more; connections that exist stay."""
        ...


class Network(Protocol):
    """Listens and connects."""

    async def bind(self, host: str, port: int, factory: ProtocolFactory) -> Listener:
        """Reserve an address without accepting yet; `OSError` if it is already in use."""
        ...

    async def listen(self, host: str, port: int, factory: ProtocolFactory) -> Listener:
        """Bind and accept at once."""
        listener = await self.bind(host, port, factory)
        try:
            await listener.start()
        except BaseException:
            listener.close()
            raise
        return listener

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> None:
        """Make a connection; returns when the protocol has it. `OSError` if nobody answers."""
        ...


class TcpListener:
    """A TCP server socket."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        name = self._server.sockets[0].getsockname()
        return str(name[0]), int(name[1])

    async def start(self) -> None:
        """Listen and accept."""
        await self._server.start_serving()

    def close(self) -> None:
        """Close the server socket."""
        self._server.close()


class TcpNetwork(Network):
    """The real network; with a context, connections that it makes speak TLS."""

    def __init__(self, tls: ssl.SSLContext | None = None, *, server_name: str = "") -> None:
        self._tls = tls
        self._server_name = server_name or None  # None: the host that is connected to

    async def bind(self, host: str, port: int, factory: ProtocolFactory) -> TcpListener:
        """Bind the socket; the system refuses connections until it listens."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            factory, host, port, backlog=1024, reuse_address=True, start_serving=False
        )
        return TcpListener(server)

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> None:
        """Connect to a host by name or number."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(
            factory, host, port, ssl=self._tls, server_hostname=self._server_name
        )
