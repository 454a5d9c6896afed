"""Headers of a client's life on a broker: heartbeat, leaving, who else is in the group."""

import msgspec

from downrange.protocol.headers.fields import Header


class HeartbeatResponse(Header, frozen=True, kw_only=True):
    """What the broker adds to its answer to HEART_BEAT."""

    supports_heartbeat_v2: bool | None = msgspec.field(
        default=None, name="IS_SUPPORT_HEART_BEAT_V2"
    )
    subscription_changed: bool | None = msgspec.field(default=None, name="IS_SUB_CHANGE")


class UnregisterClientRequest(Header, frozen=True, kw_only=True):
    """UNREGISTER_CLIENT: this client leaves one or both groups."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListRequest(Header, frozen=True, kw_only=True):
    """GET_CONSUMER_LIST_BY_GROUP: which clients are in the group?"""

    consumer_group: str
