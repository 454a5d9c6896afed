"""What a client gets to see of a route: acting masters, and the brokers of its zone."""

from msgspec import structs

from downrange.model.names import SYNC_BROKER_MEMBER_PREFIX
from downrange.model.topics import MASTER_ID, Permission
from downrange.protocol.bodies.route import BrokerData, QueueData, TopicRoute


def with_acting_masters(topic: str, route: TopicRoute) -> TopicRoute:
    """Show the first slave of a name without master as master, where nobody can write to it.

    Clients ask masters for locks and offsets; an acting master can answer these.
    """
    if topic.startswith(SYNC_BROKER_MEMBER_PREFIX):
        return route
    queues = {queue.broker_name: queue for queue in route.queue_datas}
    brokers = tuple(
        _with_acting_master(broker, queues.get(broker.broker_name)) for broker in route.broker_datas
    )
    return structs.replace(route, broker_datas=brokers)


def within_zone(route: TopicRoute, zone: str) -> TopicRoute:
    """Leave out brokers of other zones, but for those without master, which are needed anyway."""
    kept = tuple(
        broker
        for broker in route.broker_datas
        if MASTER_ID not in broker.broker_addrs or (broker.zone_name or "").lower() == zone.lower()
    )
    removed = {broker.broker_name for broker in route.broker_datas} - {b.broker_name for b in kept}
    addresses = {address for broker in kept for address in broker.broker_addrs.values()}
    filters = route.filter_server_table or {}
    return structs.replace(
        route,
        broker_datas=kept,
        queue_datas=tuple(q for q in route.queue_datas if q.broker_name not in removed),
        filter_server_table={a: servers for a, servers in filters.items() if a in addresses},
    )


def _with_acting_master(broker: BrokerData, queue: QueueData | None) -> BrokerData:
    addresses = broker.broker_addrs
    if not addresses or MASTER_ID in addresses or not broker.enable_acting_master:
        return broker
    if queue is None or queue.perm & Permission.WRITE:
        return broker
    first = min(addresses)
    others = {broker_id: address for broker_id, address in addresses.items() if broker_id != first}
    return structs.replace(broker, broker_addrs={MASTER_ID: addresses[first], **others})
