"""Who produces: the clients of each producer group, known by their heartbeats.

The broker needs them to ask for the end of a transaction and to hand replies to who waits for them.
"""

import logging

from downrange.broker.client_limits import CLIENT_LIMITS, ClientLimits
from downrange.broker.clients import CLIENT_EXPIRY_MS, ConnectedClient
from downrange.protocol.languages import LanguageCode
from downrange.remoting.connection import Connection
from downrange.runtime.clock import Clock

_log = logging.getLogger(__name__)


class ProducerTable:
    """The producer groups that have clients. Owned by the thread of the broker."""

    def __init__(
        self,
        clock: Clock,
        *,
        client_expiry_ms: int = CLIENT_EXPIRY_MS,
        limits: ClientLimits = CLIENT_LIMITS,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._member_count = 0
        self.client_expiry_ms = client_expiry_ms
        self._groups: dict[str, dict[Connection, ConnectedClient]] = {}
        self._groups_by_connection: dict[Connection, set[str]] = {}
        self._turns: dict[str, int] = {}  # group -> whose turn it is

    # --- heartbeats ------------------------------------------------------------------------

    def register(
        self,
        connection: Connection,
        client_id: str,
        group: str,
        *,
        language: LanguageCode = LanguageCode.OTHER,
        version: int = 0,
    ) -> None:
        """Take note of a heartbeat; `Refused` if it asks for more than the limits allow."""
        self._limits.check_names(client_id, group)
        client = self._groups.get(group, {}).get(connection)
        if client is None:
            of_connection = len(self._groups_by_connection.get(connection, ()))
            self._limits.check_members(client_id, of_connection, self._member_count)
            self._member_count += 1
        clients = self._groups.setdefault(group, {})
        if client is None or client.client_id != client_id:
            client = clients[connection] = ConnectedClient(
                connection=connection, client_id=client_id, language=language, version=version
            )
            self._groups_by_connection.setdefault(connection, set()).add(group)
            _log.info("producer %r of group %r joined", client_id, group)
        client.touch(self._clock)

    def unregister(self, connection: Connection, group: str) -> bool:
        """A client leaves; False if it was not there."""
        return self._remove(group, connection, "left")

    def on_close(self, connection: Connection) -> None:
        """A connection is gone, and with it its clients."""
        for group in sorted(self._groups_by_connection.get(connection, ())):
            self._remove(group, connection, "was lost")

    def expire(self) -> list[Connection]:
        """Remove who has been silent too long; returns the connections to close."""
        oldest_s = self._clock.monotonic_s() - self.client_expiry_ms / 1000
        expired = [
            (group, connection)
            for group, clients in self._groups.items()
            for connection, client in clients.items()
            if client.last_heartbeat_s < oldest_s
        ]
        for group, connection in expired:
            self._remove(group, connection, "sends no heartbeats")
        return list(dict.fromkeys(connection for _, connection in expired))

    # --- questions -------------------------------------------------------------------------

    def groups(self) -> list[str]:
        """All groups that have clients."""
        return sorted(self._groups)

    def clients(self, group: str) -> list[ConnectedClient]:
        """The clients of a group."""
        return list(self._groups.get(group, {}).values())

    def pick(self, group: str) -> Connection | None:
        """A client of the group that can be asked now, each in turn.

        One that does not read is taken only if no other is there; None if all are gone.
        """
        clients = list(self._groups.get(group, ()))
        if not clients:
            return None
        turn = self._turns.get(group, 0)
        self._turns[group] = turn + 1
        start = turn % len(clients)
        alive = [one for one in clients[start:] + clients[:start] if not one.is_closed]
        return next((one for one in alive if one.is_writable), alive[0] if alive else None)

    def find(self, client_id: str) -> Connection | None:
        """The newest connection of a client."""
        found = None
        for clients in self._groups.values():
            for client in clients.values():
                is_newer = found is None or client.last_heartbeat_s >= found.last_heartbeat_s
                if client.client_id == client_id and not client.connection.is_closed and is_newer:
                    found = client
        return found.connection if found is not None else None

    # --- inside ----------------------------------------------------------------------------

    def _remove(self, group: str, connection: Connection, reason: str) -> bool:
        clients = self._groups.get(group)
        client = clients.pop(connection, None) if clients is not None else None
        if clients is None or client is None:
            return False
        self._member_count -= 1
        of_connection = self._groups_by_connection[connection]
        of_connection.discard(group)
        if not of_connection:
            del self._groups_by_connection[connection]
        if not clients:
            del self._groups[group]
            self._turns.pop(group, None)
        _log.info("producer %r of group %r %s", client.client_id, group, reason)
        return True
