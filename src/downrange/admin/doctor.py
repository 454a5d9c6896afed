"""Looks at a whole cluster for the classical mistakes; asks much, changes nothing."""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from downrange.admin import findings
from downrange.admin.brokers import BrokerFacts, Brokers
from downrange.admin.findings import Finding
from downrange.admin.groups import Groups, is_user_group
from downrange.admin.layout import BrokerAddress, Layout, read_layout
from downrange.admin.requests import Requests, read_body
from downrange.admin.topics import Topics, kind_of
from downrange.client.errors import BrokerRefusal, NoRouteError, RocketMQError
from downrange.protocol.bodies.heartbeat import Subscription
from downrange.protocol.bodies.route import ClusterInfo
from downrange.protocol.bodies.topics import KvTable
from downrange.protocol.headers.admin_topic import GetTopicConfigRequest
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.runtime.clock import Clock

TIMEOUT_S: Final = 2.0


@dataclass(slots=True)
class Checked:
    """How much was looked at, so that "nothing found" means something."""

    name_servers: int = 0
    brokers: int = 0
    topics: int = 0
    groups: int = 0
    findings: list[Finding] = field(default_factory=list)


class Doctor:
    """One examination."""

    def __init__(
        self, requests: Requests, brokers: Brokers, topics: Topics, groups: Groups, clock: Clock
    ) -> None:
        self._requests = requests
        self._brokers = brokers
        self._topics = topics
        self._groups = groups
        self._clock = clock

    async def examine(self, *, topics: Sequence[str] = (), groups: Sequence[str] = ()) -> Checked:
        """Everything, or of topics and groups only these."""
        checked = Checked()
        layouts: dict[str, Layout] = {}
        for address in self._requests.name_servers:
            checked.name_servers += 1
            layout = await self._layout_at(address, checked)
            if layout is not None:
                layouts[address] = layout
        if not layouts:
            return checked
        self._requests.only_name_servers(tuple(layouts))
        checked.findings += findings.name_clashes(layouts)
        checked.findings += findings.differing_layouts(layouts)
        brokers = sorted(
            {broker for layout in layouts.values() for broker in layout.brokers},
            key=lambda one: (one.cluster, one.name, one.broker_id),
        )
        if not brokers:
            checked.findings.append(findings.no_brokers(tuple(layouts)))
            return checked
        alive = [one for one in brokers if await self._is_well(one, checked)]
        masters = [one for one in alive if one.is_master]
        async for finding in self._examine_topics(topics, masters, checked):
            checked.findings.append(finding)
        async for finding in self._examine_groups(groups, masters, checked):
            checked.findings.append(finding)
        return checked

    # --- servers ---------------------------------------------------------------------------

    async def _layout_at(self, address: str, checked: Checked) -> Layout | None:
        code = RequestCode.GET_BROKER_CLUSTER_INFO
        try:
            answer = await self._requests.ask(address, code, timeout_s=TIMEOUT_S)
            info = read_body(ClusterInfo, answer)
        except BrokerRefusal:
            checked.findings.append(findings.not_a_name_server(address))
            return None
        except RocketMQError as error:
            checked.findings.append(findings.no_name_server(address, str(error)))
            return None
        for refused in info.refused_registrations or ():
            finding = findings.refused_registration(refused)
            if finding not in checked.findings:  # every name server may say so
                checked.findings.append(finding)
        return Layout(
            tuple(
                BrokerAddress(data.cluster or "", name, broker_id, at)
                for name, data in info.broker_addr_table.items()
                for broker_id, at in data.broker_addrs.items()
            )
        )

    async def _is_well(self, broker: BrokerAddress, checked: Checked) -> bool:
        """Whether a broker answers; what is wrong with it is noted."""
        checked.brokers += 1
        found = checked.findings
        name_servers = self._requests.name_servers
        try:
            answer = await self._requests.ask(
                broker.address, RequestCode.GET_BROKER_RUNTIME_INFO, timeout_s=TIMEOUT_S
            )
            facts = BrokerFacts(read_body(KvTable, answer).table)
        except BrokerRefusal:
            found.append(findings.not_a_broker(broker))
            return False
        except RocketMQError as error:
            found.append(findings.unreachable(broker, str(error), name_servers))
            return False
        now_ms = self._clock.wall_ms()
        found += _some(
            findings.loopback(broker, name_servers),
            findings.reported_clash(broker, facts),
            findings.not_ready(broker.name, facts),
            findings.disk(broker.name, facts),
            findings.store_damage(broker.name, facts),
            findings.skew(broker.name, facts, now_ms),
        )
        return True

    # --- topics and groups -----------------------------------------------------------------

    async def _examine_topics(
        self, wanted: Sequence[str], masters: Sequence[BrokerAddress], checked: Checked
    ) -> AsyncIterator[Finding]:
        names: Sequence[str] = wanted
        if not names:
            owned = (await read_layout(self._requests)).own_topics
            every = await self._topics.names()
            names = [name for name in every if kind_of(name, owned) == "normal"]
        for topic in names:
            checked.topics += 1
            try:
                route = await self._requests.route(topic)
            except NoRouteError:
                yield await self._why_no_route(topic, masters)
                continue
            finding = findings.unusable_route(topic, route)
            if finding is not None:
                yield finding

    async def _why_no_route(self, topic: str, masters: Sequence[BrokerAddress]) -> Finding:
        holders, creates = [], []
        for one in masters:
            answer = await self._requests.ask(
                one.address,
                RequestCode.GET_TOPIC_CONFIG,
                GetTopicConfigRequest(topic=topic),
                also=tuple(ResponseCode),
            )
            if answer.code == ResponseCode.SUCCESS:
                holders.append(one.name)
            settings = await self._brokers.config(one.address)
            if settings.get("autoCreateTopicEnable") == "true":
                creates.append(one.name)
        return findings.missing_route(topic, holders, creates)

    async def _examine_groups(
        self, wanted: Sequence[str], masters: Sequence[BrokerAddress], checked: Checked
    ) -> AsyncIterator[Finding]:
        names = wanted or list(await self._groups.configs(masters))
        for group in names:
            if not is_user_group(group):
                continue
            checked.groups += 1
            of_clients: dict[str, Iterable[Subscription]] = {}
            for one in masters:
                members = await self._groups.members(group, [one])
                for client_id in members.clients if members is not None else ():
                    if client_id not in of_clients:
                        try:
                            info = await self._groups.running_info(group, client_id, one.address)
                        except RocketMQError:
                            continue  # a client that does not tell; others may
                        of_clients[client_id] = info.subscription_set
            finding = findings.differing_subscriptions(group, of_clients)
            if finding is not None:
                yield finding


def _some(*maybe: Finding | None) -> list[Finding]:
    return [finding for finding in maybe if finding is not None]
