"""Accepts connections on one or more doors and keeps an eye on them."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping

from downrange.protocol.command import Command, response
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.versions import GO_AWAY_SINCE
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.intake import Intake
from downrange.remoting.network import Listener, Network
from downrange.remoting.receive_budget import SWEEP_S
from downrange.remoting.settings import ConnectionSettings
from downrange.remoting.turn import Turn
from downrange.runtime.loop_watch import TICK_S, LoopWatch
from downrange.runtime.service import Supervisor

_log = logging.getLogger(__name__)

IDLE_S_MAX = 120.0
IDLE_SWEEP_S = 10.0
CONNECTIONS_MAX = 65_535
_TURNED_AWAY = {
    "full": "refused %d connections: the server has as many as it may have open",
    "address": "refused %d connections: their addresses have connectionsPerAddressMax open",
}


class RemotingServer:
    """Serves requests by code; owned by the process that built it.

    `on_close` hears of every connection that went away, at once.
    """

    def __init__(
        self,
        network: Network,
        supervisor: Supervisor,
        handlers: Mapping[int, Handler],
        *,
        on_close: Callable[[Connection], None] | None = None,
        idle_s_max: float = IDLE_S_MAX,
        connections_max: int = CONNECTIONS_MAX,
        settings: ConnectionSettings | None = None,
        watch: LoopWatch | None = None,
    ) -> None:
        self._network = network
        self._supervisor = supervisor
        self._handlers = handlers
        self._on_close = on_close
        self._idle_s_max = idle_s_max
        self._connections_max = connections_max
        self._turned_away: Counter[str] = Counter()
        settings = settings or ConnectionSettings()
        self.turn = Turn(watch)
        self.turn.watch.limit_s = settings.loop_limit_ms / 1000
        self.intake = Intake(settings, self.turn.watch.now_s)
        self._bound: list[Listener] = []  # not accepting yet
        self._listeners: list[Listener] = []
        self._connections: set[Connection] = set()
        self._all_gone = asyncio.Event()

    @property
    def connections(self) -> frozenset[Connection]:
        """Who is connected."""
        return frozenset(self._connections)

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Bind and accept at once; returns the address it really has."""
        address = await self.bind(host, port)
        await self.accept()
        return address

    async def bind(self, host: str, port: int) -> tuple[str, int]:
        """Reserve an address for `accept`; returns the one it really has. `OSError` if in use."""
        listener = await self._network.bind(host, port, self._new_connection)
        self._bound.append(listener)
        return listener.address

    async def accept(self) -> None:
        """Accept connections at every address that was bound."""
        if self._bound and not self._listeners:
            self._supervisor.every("close idle connections", IDLE_SWEEP_S, self._close_idle)
            self._supervisor.every("close slow senders", SWEEP_S, self._close_slow)
            self._supervisor.every("watch the loop", TICK_S, self.turn.watch.tick)
        while self._bound:
            await self._bound[0].start()
            self._listeners.append(self._bound.pop(0))

    async def go_away(self, timeout_s: float) -> None:
        """Ask peers to go: returns when all have, or when the time is over.

        Every request of a peer that understands GO_AWAY is answered with it, so that the peer
        connects elsewhere and asks there; older ones are served as ever.
        """
        self.turn.shortcut = None
        self._handlers = {code: _sending_away(one) for code, one in self._handlers.items()}
        for connection in self._connections:
            connection.serve_with(self._handlers)
        await self._wait_for_all(timeout_s)

    def quiesce(self) -> None:
        """Stop listening and take no more requests; answers still go out."""
        self._close_listeners()
        for connection in list(self._connections):
            connection.stop_reading()

    async def stop(self, timeout_s: float = 3.0) -> None:
        """Close the doors, then the connections once what was written has gone out."""
        self.quiesce()
        for connection in list(self._connections):
            connection.close()
        if not await self._wait_for_all(timeout_s):
            _log.warning("%d peers did not read their last answers", len(self._connections))
        for connection in list(self._connections):
            connection.abort()
        self._cancel_requests()

    async def abort(self, timeout_s: float = 3.0) -> None:
        """Stop listening and cut all connections; what was not sent is lost."""
        self._close_listeners()
        for connection in list(self._connections):
            connection.abort()
        self._cancel_requests()
        await self._wait_for_all(timeout_s)

    def _cancel_requests(self) -> None:
        for task in self.turn.requests:
            task.cancel()

    def _close_listeners(self) -> None:
        for listener in self._bound + self._listeners:
            listener.close()
        self._bound.clear()
        self._listeners.clear()

    async def _wait_for_all(self, timeout_s: float) -> bool:
        if self._connections:
            self._all_gone.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._all_gone.wait()
            except TimeoutError:
                return False
        return True

    def _new_connection(self) -> Connection:
        return Connection(
            self._handlers,
            on_open=self._admit,
            on_close=self._forget,
            turn=self.turn,
            intake=self.intake,
        )

    def _admit(self, connection: Connection) -> None:
        if len(self._connections) >= self._connections_max:
            # Each takes a file descriptor, and the log needs some too.
            self._turn_away(connection, "full")
        elif not self.intake.addresses.admit(connection.ip):
            self._turn_away(connection, "address")
        else:
            self._connections.add(connection)

    def _turn_away(self, connection: Connection, reason: str) -> None:
        self.intake.refusals[reason] += 1
        self._turned_away[reason] += 1
        connection.abort()

    def _forget(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self.intake.addresses.leave(connection.ip)
        if not self._connections:
            self._all_gone.set()
        if self._on_close is not None:
            self._on_close(connection)

    def _close_slow(self) -> None:
        self.intake.budget.sweep(self._connections)

    def _close_idle(self) -> None:
        for reason, count in self._turned_away.items():
            _log.warning(_TURNED_AWAY[reason], count)
        self._turned_away.clear()
        oldest_s = asyncio.get_running_loop().time() - self._idle_s_max
        for connection in [c for c in self._connections if c.last_read_s < oldest_s]:
            _log.info("closing %s, silent for %.0f s", connection.address, self._idle_s_max)
            connection.abort()  # it may not even read what is written to it


def _sending_away(handler: Handler) -> Handler:
    """The handler for older peers; others are told to go."""

    def serve(request: Command, connection: Connection) -> Answer | Coroutine[None, None, Answer]:
        if request.version >= GO_AWAY_SINCE:
            return response(request, ResponseCode.GO_AWAY, remark="please go away")
        return handler(request, connection)

    return serve
