"""Where connections come from: TCP here, memory in tests; the rest of remoting cannot tell."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol

ProtocolFactory = Callable[[], asyncio.Protocol]


class Listener(Protocol):
    """An open door."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port it listens on; the port is the real one if 0 was asked for."""
        ...

    def close(self) -> None:
        """Let nobody in any more; connections that exist stay."""
        ...


class Network(Protocol):
    """Opens doors and walks through them."""

    async def listen(self, host: str, port: int, factory: ProtocolFactory) -> Listener:
        """Accept connections; `OSError` if the address cannot be had."""
        ...

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

    def close(self) -> None:
        """Close the server socket."""
        self._server.close()


class TcpNetwork:
    """The real network; with a context, connections that it makes speak TLS."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls

    async def listen(self, host: str, port: int, factory: ProtocolFactory) -> TcpListener:
        """Bind and accept."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(factory, host, port, backlog=1024, reuse_address=True)
        return TcpListener(server)

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> None:
        """Connect to a host by name or number."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(factory, host, port, ssl=self._tls)
