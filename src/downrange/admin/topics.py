"""Topics of a cluster: which there are, where they are, what they hold; made, changed, deleted."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from downrange.admin.errors import NothingThereError, WrongRequestError
from downrange.admin.layout import BrokerAddress, read_layout
from downrange.admin.requests import Requests, read_body
from downrange.client.errors import BrokerRefusal, NoRouteError
from downrange.client.wakeup import pause
from downrange.model.names import (
    AUTO_CREATE_TOPIC,
    InvalidNameError,
    check_topic,
    is_dlq_topic,
    is_retry_topic,
    is_system_topic,
)
from downrange.model.topics import MASTER_ID, MessageQueue, Permission, TopicConfig, TopicFilterType
from downrange.protocol.bodies.groups import GroupList
from downrange.protocol.bodies.registration import TopicTable
from downrange.protocol.bodies.route import BrokerData, TopicRoute
from downrange.protocol.bodies.statistics import QueueRange, TopicStats
from downrange.protocol.bodies.topics import TopicList
from downrange.protocol.headers import admin_topic
from downrange.protocol.headers.nameserver import DeleteTopicRequest
from downrange.protocol.headers.topic import CreateTopicRequest
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode

QUEUE_NUMS: Final = 8  # what mqadmin updateTopic takes if nothing is said
ROUTE_PAUSE_S: Final = 0.1
_UNKNOWN_THERE: Final = frozenset(
    {int(ResponseCode.TOPIC_NOT_EXIST), int(ResponseCode.SYSTEM_ERROR)}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicWish:
    """A topic as it is to be on each broker; `attributes` reads `+key=value` or `-key`."""

    topic: str
    read_queue_nums: int = QUEUE_NUMS
    write_queue_nums: int = QUEUE_NUMS
    permission: Permission = Permission.READ_WRITE
    order: bool = False
    attributes: Sequence[str] = ()

    def __post_init__(self) -> None:
        try:
            check_topic(self.topic)
        except InvalidNameError as error:
            raise WrongRequestError(str(error)) from None
        if min(self.read_queue_nums, self.write_queue_nums) < 0:
            raise WrongRequestError("a topic cannot have fewer than 0 queues")


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as it is: its settings by broker, and which groups consume it."""

    topic: str
    configs: Mapping[str, TopicConfig] = field(default_factory=dict)
    groups: tuple[str, ...] = ()


def kind_of(topic: str, owned: Collection[str] = ()) -> str:
    """What a topic is for: normal, retry, dlq or system; `owned` are those of the brokers."""
    if is_retry_topic(topic):
        return "retry"
    if is_dlq_topic(topic):
        return "dlq"
    return "system" if is_system_topic(topic) or topic in owned else "normal"


class Topics:
    """The topics of whatever the name servers know."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def names(self) -> list[str]:
        """All topics, sorted."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        answer = await self._requests.ask_name_server(code)
        return sorted(read_body(TopicList, answer).topic_list)

    async def route(self, topic: str) -> TopicRoute:
        """Where a topic is; `NothingThereError` if nowhere."""
        try:
            return await self._requests.route(topic)
        except NoRouteError as error:
            raise NothingThereError(
                f"topic {topic!r} does not exist: the name servers know no broker that has it; "
                f"create it with `downrange topic create {topic}`"
            ) from error

    async def show(self, topic: str) -> TopicState:
        """The settings of a topic at each of its masters, and who consumes it."""
        route = await self.route(topic)
        masters = masters_of(route)
        configs = {one.name: await self._config(one, topic) for one in masters}
        groups: set[str] = set()
        for one in masters:
            groups.update(await self._groups_at(one.address, topic))
        return TopicState(
            topic,
            {name: config for name, config in configs.items() if config is not None},
            tuple(sorted(groups)),
        )

    async def stats(self, topic: str) -> dict[MessageQueue, QueueRange]:
        """What each queue of a topic holds."""
        route = await self.route(topic)
        found: dict[MessageQueue, QueueRange] = {}
        header = admin_topic.GetTopicStatsRequest(topic=topic)
        for one in masters_of(route):
            code = RequestCode.GET_TOPIC_STATS_INFO
            answer = await self._requests.ask(one.address, code, header)
            found.update(read_body(TopicStats, answer).offset_table)
        return dict(sorted(found.items()))

    async def create(self, wish: TopicWish, masters: Sequence[BrokerAddress]) -> None:
        """Create a topic, or change it to be so, on these brokers."""
        header = CreateTopicRequest(
            topic=wish.topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=wish.read_queue_nums,
            write_queue_nums=wish.write_queue_nums,
            perm=wish.permission.value,
            topic_filter_type=TopicFilterType.SINGLE_TAG.value,
            topic_sys_flag=0,
            order=wish.order,
            attributes=",".join(wish.attributes) or None,
        )
        for one in masters:
            code = RequestCode.UPDATE_AND_CREATE_TOPIC
            await self._requests.ask(one.address, code, header)

    async def delete(self, topic: str, cluster: str) -> tuple[BrokerAddress, ...]:
        """Delete a topic with its messages from every broker of a cluster and the name servers."""
        layout = await read_layout(self._requests)
        masters = layout.chosen(cluster, None)
        for one in masters:
            await self._requests.ask(
                one.address,
                RequestCode.DELETE_TOPIC_IN_BROKER,
                admin_topic.DeleteTopicInBrokerRequest(topic=topic),
            )
        await self._requests.tell_name_servers(
            RequestCode.DELETE_TOPIC_IN_NAMESRV,
            DeleteTopicRequest(topic=topic, cluster_name=cluster),
        )
        return masters

    async def wait_for_route(self, topic: str, brokers: set[str], *, tries: int = 20) -> bool:
        """Ask until the name servers know a topic at these brokers, which hear of it in between."""
        for _ in range(tries):
            try:
                route = await self._requests.route(topic)
            except NoRouteError:
                pass
            else:
                if brokers <= {data.broker_name for data in route.queue_datas}:
                    return True
            await pause(ROUTE_PAUSE_S)
        return False

    async def _config(self, broker: BrokerAddress, topic: str) -> TopicConfig | None:
        header = admin_topic.GetTopicConfigRequest(topic=topic)
        also = (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, *_UNKNOWN_THERE)
        answer = await self._requests.ask(
            broker.address, RequestCode.GET_TOPIC_CONFIG, header, also=also
        )
        if answer.code == ResponseCode.SUCCESS:
            return read_body(TopicConfig, answer)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # brokers before 5.0
            code = RequestCode.GET_ALL_TOPIC_CONFIG
            table = read_body(TopicTable, await self._requests.ask(broker.address, code))
            return table.topic_config_table.get(topic)
        return None

    async def _groups_at(self, address: str, topic: str) -> tuple[str, ...]:
        header = admin_topic.QueryTopicConsumersRequest(topic=topic)
        try:
            answer = await self._requests.ask(
                address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header
            )
        except BrokerRefusal:
            return ()
        return read_body(GroupList, answer).group_list


def masters_of(route: TopicRoute) -> list[BrokerAddress]:
    """The living masters of a route, in the order of their names."""
    return [
        BrokerAddress(data.cluster or "", data.broker_name, MASTER_ID, data.broker_addrs[MASTER_ID])
        for data in sorted(route.broker_datas, key=_name_of)
        if MASTER_ID in data.broker_addrs
    ]


def _name_of(data: BrokerData) -> str:
    return data.broker_name
