"""How a driver or a task reaches the cluster; small, picklable, without a secret in its text."""

from dataclasses import dataclass, field

from downrange.client.acl_signature import Credentials
from downrange.client.tls import TlsSettings
from downrange.spark.link import Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Connecting:
    """Addresses, credentials, and how long and how often something is tried."""

    name_servers: tuple[str, ...]
    credentials: Credentials | None = field(default=None, repr=False)
    tls: TlsSettings | None = field(default=None, repr=False)
    timeout_s: float = 30.0
    retries: int = 10
    retry_interval_s: float = 1.0

    def link(self, address: str) -> Link:
        """A connection of the caller's own."""
        return Link(address, timeout_s=self.timeout_s, credentials=self.credentials, tls=self.tls)
