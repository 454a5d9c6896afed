"""Where topics live: the route of a topic, and the brokers of a cluster."""

import msgspec

from downrange.protocol.bodies.json_body import Body, encode_body
from downrange.protocol.integers import Int32, Int64
from downrange.protocol.versions import STRICT_ROUTE_JSON_SINCE


class QueueData(Body, frozen=True, kw_only=True):
    """How many queues of the topic a broker has, and what may be done with them."""

    broker_name: str
    read_queue_nums: Int32 = 0
    write_queue_nums: Int32 = 0
    perm: Int32 = 0
    topic_sys_flag: Int32 = 0


class BrokerData(Body, frozen=True, kw_only=True):
    """The brokers that share a name, by id; 0 is the master."""

    cluster: str | None = None
    broker_name: str
    broker_addrs: dict[Int64, str] = msgspec.field(default_factory=dict)
    zone_name: str | None = None
    enable_acting_master: bool = False


class QueueMapping(Body, frozen=True, kw_only=True):
    """Which logic queues of a static topic a broker serves, by its own queue ids."""

    topic: str | None = None
    scope: str | None = None
    total_queues: Int32 = 0
    bname: str | None = None
    epoch: Int64 = 0
    dirty: bool = False
    curr_id_map: dict[Int32, Int32] | None = None


class TopicRoute(Body, frozen=True, kw_only=True):
    """Answer to GET_ROUTEINFO_BY_TOPIC, and body of REGISTER_TOPIC_IN_NAMESRV."""

    order_topic_conf: str | None = None
    queue_datas: tuple[QueueData, ...] = ()
    broker_datas: tuple[BrokerData, ...] = ()
    filter_server_table: dict[str, tuple[str, ...]] | None = msgspec.field(default_factory=dict)
    topic_queue_mapping_by_broker: dict[str, QueueMapping] | None = None


class RefusedRegistration(Body, frozen=True, kw_only=True):
    """A broker that a name server refused because another one has its name and id."""

    cluster: str
    broker_name: str
    broker_id: Int64
    holder_addr: str
    refused_addr: str


class ClusterInfo(Body, frozen=True, kw_only=True):
    """Answer to GET_BROKER_CLUSTER_INFO: brokers by name, names by cluster.

    `refused_registrations` is our own and only there while two brokers clash; Java ignores it.
    """

    broker_addr_table: dict[str, BrokerData] = msgspec.field(default_factory=dict)
    cluster_addr_table: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    refused_registrations: tuple[RefusedRegistration, ...] | None = None


class BrokerMembers(Body, frozen=True, kw_only=True):
    """The brokers that share a name."""

    cluster: str
    broker_name: str
    broker_addrs: dict[Int64, str] = msgspec.field(default_factory=dict)


class BrokerMembersResponse(Body, frozen=True, kw_only=True):
    """Answer to GET_BROKER_MEMBER_GROUP."""

    broker_member_group: BrokerMembers | None = None


def encode_route(
    route: TopicRoute, *, peer_version: int, accept_standard_json_only: bool | None
) -> bytes:
    """Write a route in the form the asking peer reads: older ones know unquoted broker ids only."""
    strict = peer_version >= STRICT_ROUTE_JSON_SINCE or bool(accept_standard_json_only)
    return encode_body(route, strict=strict)
