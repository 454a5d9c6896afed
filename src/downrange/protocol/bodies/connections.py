"""Which clients are connected to a broker, as admin clients see it."""

import msgspec

from downrange.protocol.bodies.heartbeat import Subscription
from downrange.protocol.bodies.json_body import Body
from downrange.protocol.integers import Int32, Int64


class ClientConnection(Body, frozen=True, kw_only=True):
    """One client; `language` is the name that its frames carry."""

    client_id: str
    client_addr: str
    language: str
    version: Int32 = 0


class ConsumerConnections(Body, frozen=True, kw_only=True):
    """Answer to GET_CONSUMER_CONNECTION_LIST."""

    connection_set: tuple[ClientConnection, ...] = ()
    subscription_table: dict[str, Subscription] = msgspec.field(default_factory=dict)
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


class ProducerConnections(Body, frozen=True, kw_only=True):
    """Answer to GET_PRODUCER_CONNECTION_LIST."""

    connection_set: tuple[ClientConnection, ...] = ()


class ProducerInfo(Body, frozen=True, kw_only=True):
    """One client of a producer group; Java writes the address with a slash before it."""

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP")
    language: str
    version: Int32 = 0
    last_update_timestamp: Int64 = 0


class AllProducers(Body, frozen=True, kw_only=True):
    """Answer to GET_ALL_PRODUCER_INFO, by group."""

    data: dict[str, tuple[ProducerInfo, ...]] = msgspec.field(default_factory=dict)
