"""Clients that are connected, as both the consumer and the producer table keep them."""

from dataclasses import dataclass

from downrange.protocol.languages import LanguageCode
from downrange.remoting.connection import Connection
from downrange.runtime.clock import Clock

CLIENT_EXPIRY_MS = 120_000


@dataclass(slots=True, kw_only=True)
class ConnectedClient:
    """A client on a connection; one process may be several clients on one connection."""

    connection: Connection
    client_id: str
    language: LanguageCode
    version: int
    last_heartbeat_ms: int = 0  # on the wall, for people
    last_heartbeat_s: float = 0.0  # monotonic, for deciding

    def touch(self, clock: Clock) -> None:
        """Take note of a heartbeat."""
        self.last_heartbeat_ms = clock.wall_ms()
        self.last_heartbeat_s = clock.monotonic_s()
