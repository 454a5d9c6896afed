"""Makes and removes topics and groups of an embedded cluster, the way administrators do."""

from dataclasses import dataclass
from typing import Final, Self

from downrange.broker.view import BrokerView
from downrange.embedded.cluster import ClusterError, EmbeddedCluster
from downrange.model.names import AUTO_CREATE_TOPIC, retry_topic
from downrange.model.topics import Permission, SubscriptionGroupConfig, TopicFilterType
from downrange.protocol.headers.admin_group import DeleteGroupRequest
from downrange.protocol.headers.admin_topic import DeleteTopicInBrokerRequest
from downrange.protocol.headers.fields import Header, encode_header
from downrange.protocol.headers.nameserver import DeleteTopicRequest
from downrange.protocol.headers.topic import CreateTopicRequest
from downrange.protocol.hosts import format_address
from downrange.protocol.json_text import write_json
from downrange.protocol.request_codes import RequestCode
from downrange.remoting.client import RemotingClient
from downrange.remoting.network import Network

CALL_S_MAX: Final = 30.0


@dataclass(frozen=True, slots=True)
class Names:
    """Topics and groups that a broker has."""

    topics: frozenset[str]
    groups: frozenset[str]


class Housekeeping:
    """Works on the loop of the cluster."""

    def __init__(self, cluster: EmbeddedCluster, network: Network) -> None:
        self._cluster = cluster
        self._network = network
        self._own: dict[str, Names] = {}

    def remember(self) -> None:
        """What is there now belongs to the system and stays."""
        self._own = {name: _names(self.view(name)) for name in self._cluster.brokers}

    def view(self, name: str) -> BrokerView:
        """What there is to see of a broker."""
        view = self._cluster.broker(name).view()
        if view is None:
            raise ClusterError(f"{name} does not serve")
        return view

    async def create_topic(self, topic: str, queues: int) -> None:
        """Have the topic on every running broker; clients find it when this returns."""
        header = CreateTopicRequest(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=Permission.READ_WRITE,
            topic_filter_type=TopicFilterType.SINGLE_TAG.value,
            order=False,
        )
        async with _Admin(self._network) as admin:
            for name in self._cluster.brokers:
                await admin.ask(self._address(name), RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def create_group(self, group: str) -> None:
        """Have the group, and the topic of its retries, on every running broker."""
        config = write_json(SubscriptionGroupConfig(group_name=group))
        async with _Admin(self._network) as admin:
            for name in self._cluster.brokers:
                code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
                await admin.ask(self._address(name), code, None, config)
        await self.create_topic(retry_topic(group), 1)

    async def clear(self) -> None:
        """Remove every topic and group that came since `remember`, with messages and offsets."""
        topics: set[str] = set()
        async with _Admin(self._network) as admin:
            for name in self._cluster.brokers:
                now, own = _names(self.view(name)), self._own.get(name)
                kept = own or Names(frozenset(), frozenset())
                address = self._address(name)
                for group in sorted(now.groups - kept.groups):
                    header = DeleteGroupRequest(group_name=group, clean_offset=True)
                    await admin.ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
                # Looked at again: a group takes its own topics with it.
                for topic in sorted(_names(self.view(name)).topics - kept.topics):
                    topics.add(topic)
                    request = DeleteTopicInBrokerRequest(topic=topic)
                    await admin.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, request)
                topics |= now.topics - kept.topics
            if self._cluster.name_server is not None:
                name_server = format_address(
                    self._cluster.plan.host, self._cluster.name_server_port
                )
                for topic in sorted(topics):
                    forget = DeleteTopicRequest(topic=topic)
                    await admin.ask(name_server, RequestCode.DELETE_TOPIC_IN_NAMESRV, forget)

    def _address(self, name: str) -> str:
        return format_address(self._cluster.plan.host, self._cluster.broker_ports[name])


class _Admin:
    """A connection for a while."""

    def __init__(self, network: Network) -> None:
        self._client = RemotingClient(network)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.stop(CALL_S_MAX)

    async def ask(
        self, address: str, code: RequestCode, header: Header | None, body: bytes | None = None
    ) -> None:
        fields = None if header is None else encode_header(header)
        answer = await self._client.call(address, code, fields, body, timeout_s=CALL_S_MAX)
        if answer.code:
            raise ClusterError(f"{address} refused {code.name}: {answer.code} {answer.remark}")


def _names(view: BrokerView) -> Names:
    return Names(
        topics=frozenset(view.tables.topics.names()), groups=frozenset(view.tables.groups.names())
    )
