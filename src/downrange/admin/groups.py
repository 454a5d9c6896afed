"""Consumer groups: their settings, how far they are, who is in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from downrange.admin.errors import NothingThereError, WrongRequestError
from downrange.admin.layout import BrokerAddress
from downrange.admin.requests import Requests, read_body
from downrange.model.names import InvalidNameError, check_group, is_system_group
from downrange.model.topics import MessageQueue, SubscriptionGroupConfig
from downrange.protocol.bodies.connections import ClientConnection, ConsumerConnections
from downrange.protocol.bodies.consumer import RunningInfo
from downrange.protocol.bodies.groups import GroupTable
from downrange.protocol.bodies.heartbeat import Subscription
from downrange.protocol.bodies.json_body import encode_body
from downrange.protocol.bodies.statistics import ConsumeStats, QueueProgress
from downrange.protocol.headers import admin_group
from downrange.protocol.headers.broker_to_client import GetConsumerRunningInfoRequest
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode

# What a broker answers for a group without a client: its own code, or a plain error in 4.x.
_NOT_ONLINE: Final = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR)
_UNREADABLE: Final = (
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
)


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """The clients of a group that are online, and what they said they want."""

    clients: Mapping[str, ClientConnection] = field(default_factory=dict)
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far a group is in each queue."""

    queues: Mapping[MessageQueue, QueueProgress]
    consume_tps: float

    @property
    def lag(self) -> int:
        """Messages that wait for the group, those to be tried again included."""
        return sum(one.broker_offset - one.consumer_offset for one in self.queues.values())


class Groups:
    """The consumer groups of some brokers."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def configs(
        self, masters: Sequence[BrokerAddress]
    ) -> dict[str, dict[str, SubscriptionGroupConfig]]:
        """The settings of all groups, by group and broker."""
        found: dict[str, dict[str, SubscriptionGroupConfig]] = {}
        for one in masters:
            # Asking for a single group would make brokers create it.
            code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
            table = read_body(GroupTable, await self._requests.ask(one.address, code))
            for name, config in table.subscription_group_table.items():
                found.setdefault(name, {})[one.name] = config
        return dict(sorted(found.items()))

    async def config(
        self, group: str, masters: Sequence[BrokerAddress]
    ) -> dict[str, SubscriptionGroupConfig]:
        """The settings of a group by broker; `NothingThereError` if no broker knows it."""
        found = (await self.configs(masters)).get(group)
        if found is None:
            raise NothingThereError(
                f"group {group!r} does not exist on any broker; create it with "
                f"`downrange group create {group}`, or start a consumer in it"
            )
        return found

    async def create(
        self, config: SubscriptionGroupConfig, masters: Sequence[BrokerAddress]
    ) -> None:
        """Create a group, or change it to be so, on these brokers."""
        try:
            check_group(config.group_name)
        except InvalidNameError as error:
            raise WrongRequestError(str(error)) from None
        for one in masters:
            await self._requests.ask(
                one.address,
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                body=encode_body(config),
            )

    async def delete(
        self, group: str, masters: Sequence[BrokerAddress], *, keep_offsets: bool
    ) -> None:
        """Forget a group on these brokers, and how far it was unless that is to be kept."""
        header = admin_group.DeleteGroupRequest(group_name=group, clean_offset=not keep_offsets)
        for one in masters:
            await self._requests.ask(one.address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def progress(
        self, group: str, masters: Sequence[BrokerAddress], *, topic: str | None = None
    ) -> GroupProgress:
        """How far a group is, in one topic or in all that it has consumed."""
        header = admin_group.GetConsumeStatsRequest(consumer_group=group, topic=topic)
        queues: dict[MessageQueue, QueueProgress] = {}
        tps = 0.0
        for one in masters:
            answer = await self._requests.ask(
                one.address, RequestCode.GET_CONSUME_STATS, header, also=_UNREADABLE
            )
            if answer.code == ResponseCode.SUCCESS:
                stats = read_body(ConsumeStats, answer)
                queues.update(stats.offset_table)
                tps += stats.consume_tps
        return GroupProgress(dict(sorted(queues.items())), tps)

    async def members(self, group: str, masters: Sequence[BrokerAddress]) -> GroupMembers | None:
        """Who is in a group now; None if nobody is."""
        header = admin_group.GetConsumerConnectionsRequest(consumer_group=group)
        found: GroupMembers | None = None
        for one in masters:
            answer = await self._requests.ask(
                one.address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header, also=_NOT_ONLINE
            )
            if answer.code != ResponseCode.SUCCESS:
                continue
            body = read_body(ConsumerConnections, answer)
            clients = {client.client_id: client for client in body.connection_set}
            known = found.clients if found is not None else {}
            found = GroupMembers(
                {**known, **clients},
                body.consume_type,
                body.message_model,
                body.consume_from_where,
                {**(found.subscriptions if found is not None else {}), **body.subscription_table},
            )
        return found

    async def running_info(self, group: str, client_id: str, address: str) -> RunningInfo:
        """What one client of a group says about itself, by way of a broker."""
        header = GetConsumerRunningInfoRequest(consumer_group=group, client_id=client_id)
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        return read_body(RunningInfo, await self._requests.ask(address, code, header))


def changed(config: SubscriptionGroupConfig, **changes: object) -> SubscriptionGroupConfig:
    """The settings with those changes that are not None."""
    wanted = {name: value for name, value in changes.items() if value is not None}
    return msgspec.structs.replace(config, **wanted)


def is_user_group(group: str) -> bool:
    """Whether a group belongs to a program, not to RocketMQ."""
    return not is_system_group(group)
