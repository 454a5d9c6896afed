"""TLS in front of a cluster of ours, whose servers have none: a relay per server, in a thread.

The relay of the name server tells clients the address of the broker's relay instead of its own.
"""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

CERTIFICATES = Path(__file__).parent / "certificates"
CA = str(CERTIFICATES / "ca.pem")
OTHER_CA = str(CERTIFICATES / "other-ca.pem")
CLIENT = str(CERTIFICATES / "client.pem")
CLIENT_KEY = str(CERTIFICATES / "client.key")
KEY_PASSWORD = "Pa55word"
_CHUNK = 1 << 16


def server_context(name: str, *, client_required: bool = False) -> ssl.SSLContext:
    """TLS as the server with this certificate; it may require one of the client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / f"{name}.pem", CERTIFICATES / f"{name}.key")
    if client_required:
        context.load_verify_locations(CA)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class Relay:
    """Takes TLS connections and passes their bytes on, unencrypted."""

    def __init__(self, target: str, context: ssl.SSLContext) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._context = context
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.replaced: dict[bytes, bytes] = {}  # in what the target answers
        self.address = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, ssl=self._context, ssl_handshake_timeout=10
        )
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            target_reader, target_writer = await asyncio.open_connection(*self._target)
            try:
                await asyncio.gather(
                    self._copy(reader, target_writer, {}),
                    self._copy(target_reader, writer, self.replaced),
                )
            finally:
                target_writer.close()
                writer.transport.abort()

    async def _copy(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        replaced: dict[bytes, bytes],
    ) -> None:
        while data := await reader.read(_CHUNK):
            for old, new in replaced.items():
                data = data.replace(old, new)
            writer.write(data)
            await writer.drain()
        writer.close()


@contextlib.contextmanager
def tls_in_front_of(name_server: str, broker: str, context: ssl.SSLContext) -> Iterator[str]:
    """The address of a name server that speaks TLS, as does the broker that it names."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    relays = [Relay(name_server, context), Relay(broker, context)]
    try:
        for relay in relays:
            asyncio.run_coroutine_threadsafe(relay.start(), loop).result(30)
        names, of_broker = relays
        assert len(of_broker.address) == len(broker), "ports of five digits, so that frames fit"
        names.replaced[broker.encode()] = of_broker.address.encode()
        yield names.address
    finally:
        for relay in relays:
            asyncio.run_coroutine_threadsafe(relay.stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()
