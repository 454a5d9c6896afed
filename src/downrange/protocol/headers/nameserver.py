"""Headers of the name server: its key-value table, the registration of brokers, its topics."""

from downrange.protocol.headers.fields import Header
from downrange.protocol.integers import Int32, Int64


class PutKvConfigRequest(Header, frozen=True, kw_only=True):
    """PUT_KV_CONFIG."""

    namespace: str
    key: str
    value: str


class GetKvConfigRequest(Header, frozen=True, kw_only=True):
    """GET_KV_CONFIG."""

    namespace: str
    key: str


class GetKvConfigResponse(Header, frozen=True, kw_only=True):
    """The value of the key."""

    value: str | None = None


class DeleteKvConfigRequest(Header, frozen=True, kw_only=True):
    """DELETE_KV_CONFIG."""

    namespace: str
    key: str


class GetKvListRequest(Header, frozen=True, kw_only=True):
    """GET_KVLIST_BY_NAMESPACE."""

    namespace: str


class RegisterBrokerRequest(Header, frozen=True, kw_only=True):
    """REGISTER_BROKER; `compressed` and `body_crc32` describe the body."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int32 = 0


class RegisterBrokerResponse(Header, frozen=True, kw_only=True):
    """Who the master of the registered broker is, if it is another."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerRequest(Header, frozen=True, kw_only=True):
    """UNREGISTER_BROKER."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionRequest(Header, frozen=True, kw_only=True):
    """QUERY_DATA_VERSION: is my registration still the newest? The body says which it was."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponse(Header, frozen=True, kw_only=True):
    """Whether the broker must register again."""

    changed: bool


class BrokerHeartbeatRequest(Header, frozen=True, kw_only=True):
    """BROKER_HEARTBEAT, to a name server or a controller."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None


class GetBrokerMemberGroupRequest(Header, frozen=True, kw_only=True):
    """GET_BROKER_MEMBER_GROUP: which brokers share this name?"""

    cluster_name: str
    broker_name: str


class BrokerPermissionRequest(Header, frozen=True, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER and ADD_WRITE_PERM_OF_BROKER."""

    broker_name: str


class WipeWritePermissionResponse(Header, frozen=True, kw_only=True):
    """How many topics lost the permission."""

    wipe_topic_count: Int32


class AddWritePermissionResponse(Header, frozen=True, kw_only=True):
    """How many topics got the permission."""

    add_topic_count: Int32


class DeleteTopicRequest(Header, frozen=True, kw_only=True):
    """DELETE_TOPIC_IN_NAMESRV."""

    topic: str
    cluster_name: str | None = None


class RegisterTopicRequest(Header, frozen=True, kw_only=True):
    """REGISTER_TOPIC_IN_NAMESRV; the body holds the route."""

    topic: str


class GetTopicsByClusterRequest(Header, frozen=True, kw_only=True):
    """GET_TOPICS_BY_CLUSTER."""

    cluster: str


class NotifyMinBrokerIdChangeRequest(Header, frozen=True, kw_only=True):
    """NOTIFY_MIN_BROKER_ID_CHANGE, from the name server to the brokers of one name."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
