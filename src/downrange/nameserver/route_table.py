"""Brokers, their topics, and the route of a topic. Decides, and does nothing else.

    cluster -> broker names          a cluster is the names that registered for it
    broker name -> id -> address     id 0 is the master, the others are its slaves
    topic -> broker name -> queues   what the master of the name says about the topic

Times are milliseconds of one monotonic clock. What a change makes others do (close a connection,
tell a broker) is returned to the caller.
"""

import logging
from collections.abc import Iterable

from downrange.model.topics import MASTER_ID, DataVersion
from downrange.nameserver.broker_names import (
    BrokerFacts,
    BrokerName,
    MinBrokerIdNotice,
    Registered,
)
from downrange.nameserver.live_brokers import (
    EXPIRE_MS,
    BrokerAddress,
    LiveBroker,
    LiveBrokers,
    Peer,
)
from downrange.nameserver.name_clashes import Clash, NameClashes, may_replace
from downrange.nameserver.topic_queues import TopicQueues
from downrange.protocol.bodies.registration import Registration
from downrange.protocol.bodies.route import (
    ClusterInfo,
    QueueData,
    RefusedRegistration,
    TopicRoute,
)

_log = logging.getLogger(__name__)


class RouteTable:
    """Owned by the name server; every call leaves the table consistent.

    `live` and `topics` may be asked and changed directly where only they are concerned.
    """

    def __init__(self) -> None:
        self._clusters: dict[str, set[str]] = {}
        self._brokers: dict[str, BrokerName] = {}
        self.topics = TopicQueues()
        self._filter_servers: dict[BrokerAddress, tuple[str, ...]] = {}
        self.live = LiveBrokers()
        self._clashes = NameClashes()

    # --- brokers come and go ---------------------------------------------------------------

    def register(
        self,
        facts: BrokerFacts,
        registration: Registration,
        peer: Peer,
        now_ms: int,
        *,
        delete_missing_topics: bool = False,
    ) -> Registered | Clash | None:
        """Take a registration; None if the broker has to register all its topics first.

        A `Clash` refuses it because a live broker at another address has this name and id. One that
        loses against a later election is ignored, which is not a refusal.
        """
        table = registration.topic_config_serialize_wrapper
        broker = self._brokers.get(facts.name)
        if broker is not None:
            clash = self._clash(broker, facts, table.data_version, peer, now_ms)
            if clash is not None:
                return clash
        is_known = broker is not None and facts.broker_id in broker.addresses
        if len(table.topic_config_table) == 1 and not is_known:
            # A broker that changes one topic registers just that one. If it is not known, because
            # this name server was restarted, all its other topics would be missing.
            return None
        if broker is None:
            broker = self._brokers[facts.name] = BrokerName(facts.cluster)
        self._clusters.setdefault(facts.cluster, set()).add(facts.name)
        broker.has_acting_master = bool(facts.acting_master)
        broker.zone = facts.zone
        is_new_min = facts.broker_id < broker.min_id
        # A slave that became master, or the other way round, must not appear twice.
        for broker_id, address in list(broker.addresses.items()):
            if address == facts.address and broker_id != facts.broker_id:
                del broker.addresses[broker_id]
        if self._is_outdated(broker, facts, table.data_version):
            self.live.discard(facts.where)
            return Registered()
        is_first = not broker.addresses.get(facts.broker_id)
        broker.addresses[facts.broker_id] = facts.address
        is_prime_slave = (
            facts.acting_master is not None
            and facts.broker_id != MASTER_ID
            and facts.broker_id == broker.min_id
        )
        if facts.broker_id == MASTER_ID or is_prime_slave:
            if delete_missing_topics and not table.topic_queue_mapping_info_map:
                self.topics.keep_only(facts.name, table.topic_config_table)
            self.topics.take(
                facts.name,
                table,
                is_changed=is_first or self.live.has_changed(facts.where, table.data_version),
                is_read_only=is_prime_slave and broker.has_acting_master,
            )
        self._clashes.settled(facts.address)
        self._note_life(facts, registration, table.data_version, peer, now_ms)
        notice = broker.notice(ha_address=facts.ha_address) if is_new_min else None
        return self._answer(broker, facts, notice)

    def unregister(
        self, cluster: str, name: str, broker_id: int, address: str
    ) -> MinBrokerIdNotice | None:
        """Forget a broker, and its topics if it was the last one of its name."""
        where = BrokerAddress(cluster, address)
        self.live.discard(where)
        self._clashes.settled(address)
        self._filter_servers.pop(where, None)
        broker = self._brokers.get(name)
        if broker is None or address not in broker.addresses.values():
            return None
        was_min = bool(broker.addresses) and broker_id == broker.min_id
        for known_id, known_address in list(broker.addresses.items()):
            if known_address == address:
                del broker.addresses[known_id]
        _log.info("broker gone name=%r id=%d address=%r", name, broker_id, address)
        if not broker.addresses:
            self._forget_name(name)
            return None
        if not broker.has_acting_master:
            return None
        if MASTER_ID not in broker.addresses:
            self.topics.wipe_write_permission(name)
        return broker.notice(offline_address=address) if was_min else None

    def peer_closed(self, peer: Peer) -> list[MinBrokerIdNotice]:
        """Forget the brokers that registered through this connection."""
        return self._forget(self.live.of_peer(peer))

    def expire(self, now_ms: int) -> tuple[list[Peer], list[MinBrokerIdNotice]]:
        """Forget the brokers that were silent for too long; their connections should be closed."""
        self._clashes.expire(now_ms)
        expired = self.live.expired(now_ms)
        for where, broker in expired:
            _log.warning(
                "broker expired address=%r cluster=%r silent_ms=%d",
                where.address,
                where.cluster,
                now_ms - broker.heard_ms,
            )
        notices = self._forget(where for where, _ in expired)
        return [broker.peer for _, broker in expired], notices

    # --- topics ----------------------------------------------------------------------------

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> bool:
        """Add a topic to brokers that are known; False if one is not, and then nothing changes."""
        queues = list(queues)
        if not all(queue.broker_name in self._brokers for queue in queues):
            return False
        for queue in queues:
            self.topics.put(topic, queue)
        return True

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, on all brokers or on those of a cluster."""
        if not cluster:
            self.topics.delete(topic)
            return
        for name in self._clusters.get(cluster, ()):
            self.topics.remove(topic, name)

    # --- questions -------------------------------------------------------------------------

    def route(self, topic: str) -> TopicRoute | None:
        """Where a topic is; None if no living broker has it."""
        queues = self.topics.queues(topic)
        names = [queue.broker_name for queue in queues]
        brokers = tuple(self._brokers[name].data(name) for name in names if name in self._brokers)
        if not brokers:
            return None
        filters = {}
        for broker in brokers if self._filter_servers else ():
            for address in broker.broker_addrs.values():
                servers = self._filter_servers.get(BrokerAddress(broker.cluster or "", address))
                if servers is not None:
                    filters[address] = servers
        return TopicRoute(
            queue_datas=queues,
            broker_datas=brokers,
            filter_server_table=filters,
            topic_queue_mapping_by_broker=self.topics.mappings(topic),
        )

    def cluster_info(self) -> ClusterInfo:
        """All brokers and clusters."""
        return ClusterInfo(
            broker_addr_table={
                name: broker.data(name) for name, broker in sorted(self._brokers.items())
            },
            cluster_addr_table={
                cluster: tuple(sorted(names)) for cluster, names in sorted(self._clusters.items())
            },
            refused_registrations=tuple(
                RefusedRegistration(
                    cluster=clash.cluster,
                    broker_name=clash.name,
                    broker_id=clash.broker_id,
                    holder_addr=clash.holder,
                    refused_addr=clash.refused,
                )
                for clash in self._clashes.current()
            )
            or None,
        )

    def members(self, name: str) -> dict[int, str]:
        """The brokers that share a name, by id."""
        broker = self._brokers.get(name)
        return {} if broker is None else dict(sorted(broker.addresses.items()))

    def topics_of_cluster(self, cluster: str) -> tuple[str, ...]:
        """The topics that a broker of the cluster has."""
        return self.topics.names_on(self._clusters.get(cluster, set()))

    # --- inside ----------------------------------------------------------------------------

    def _clash(
        self,
        broker: BrokerName,
        facts: BrokerFacts,
        version: DataVersion,
        peer: Peer,
        now_ms: int,
    ) -> Clash | None:
        """Why a live broker at another address keeps this name and id; None if it does not."""
        address = broker.addresses.get(facts.broker_id)
        if address is None or address == facts.address:
            return None
        # A broker name is unique over all clusters, so the holder may belong to another one.
        clusters = (cluster for cluster, names in self._clusters.items() if facts.name in names)
        holders = (self.live.get(BrokerAddress(cluster, address)) for cluster in clusters)
        is_member = facts.address in broker.addresses.values()
        for holder in holders:
            if (
                holder is None
                or holder.data_version.state_version > version.state_version  # `_is_outdated`
                or may_replace(holder, version.state_version, peer, now_ms, is_member=is_member)
            ):
                continue
            clash, is_new = self._clashes.note(facts, address, now_ms)
            if is_new:
                _log.error("%s", clash)
            return clash
        return None

    def _is_outdated(self, broker: BrokerName, facts: BrokerFacts, version: DataVersion) -> bool:
        """Whether another address holds this id by a later election."""
        address = broker.addresses.get(facts.broker_id)
        if address is None or address == facts.address:
            return False
        holder = self.live.get(BrokerAddress(facts.cluster, address))
        if holder is None or holder.data_version.state_version <= version.state_version:
            return False
        _log.warning(
            "registration ignored, the id is taken by a later state name=%s id=%d"
            " holder=%s state=%d ignored=%s state=%d",
            facts.name,
            facts.broker_id,
            address,
            holder.data_version.state_version,
            facts.address,
            version.state_version,
        )
        return True

    def _note_life(
        self,
        facts: BrokerFacts,
        registration: Registration,
        version: DataVersion,
        peer: Peer,
        now_ms: int,
    ) -> None:
        if self.live.get(facts.where) is None:
            _log.info(
                "broker registered name=%r id=%d address=%r cluster=%r",
                facts.name,
                facts.broker_id,
                facts.address,
                facts.cluster,
            )
        timeout_ms = EXPIRE_MS if facts.timeout_ms is None else facts.timeout_ms
        self.live.put(
            facts.where, LiveBroker(peer, version, facts.ha_address, timeout_ms, heard_ms=now_ms)
        )
        if registration.filter_server_list:
            self._filter_servers[facts.where] = registration.filter_server_list
        else:
            self._filter_servers.pop(facts.where, None)

    def _answer(
        self, broker: BrokerName, facts: BrokerFacts, notice: MinBrokerIdNotice | None
    ) -> Registered:
        master = broker.addresses.get(MASTER_ID)
        if facts.broker_id == MASTER_ID or master is None:
            return Registered(notice=notice)
        live = self.live.get(BrokerAddress(facts.cluster, master))
        if live is None:
            return Registered(notice=notice)
        return Registered(master_address=master, ha_address=live.ha_address, notice=notice)

    def _forget(self, addresses: Iterable[BrokerAddress]) -> list[MinBrokerIdNotice]:
        notices = []
        for where in addresses:
            for name, broker in list(self._brokers.items()):
                ids = [i for i, address in broker.addresses.items() if address == where.address]
                if ids and name in self._clusters.get(where.cluster, ()):
                    notice = self.unregister(where.cluster, name, ids[0], where.address)
                    notices += [notice] if notice is not None else []
            # Its id may have gone to another address, and then no name leads to it any more.
            self.live.discard(where)
            self._filter_servers.pop(where, None)
        return notices

    def _forget_name(self, name: str) -> None:
        del self._brokers[name]
        for cluster, names in list(self._clusters.items()):
            names.discard(name)
            if not names:
                del self._clusters[cluster]
        self.topics.keep_only(name, ())
