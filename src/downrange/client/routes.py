"""Where topics live: which queues can be written and read, and at which addresses brokers answer.

The first half decides from a route alone, the second remembers routes and asks for new ones.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from downrange.client.answers import checked_route
from downrange.client.errors import (
    BrokerRefusal,
    NoRouteCause,
    NoRouteError,
    RocketMQError,
    RouteLimitError,
)
from downrange.client.name_servers import NameServers
from downrange.model.topics import MASTER_ID, MessageQueue, Permission
from downrange.protocol.bodies.route import BrokerData, QueueMapping, TopicRoute
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.headers.topic import GetRouteRequest
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.route_limits import RouteLimits

_log = logging.getLogger(__name__)

# Queues of a static topic pretend to be on a broker of this name; their route says where they are.
STATIC_BROKER_PREFIX: Final = "__syslo__"
STATIC_BROKER_MISSING: Final = "__syslo__none__"
_GLOBAL_SCOPE_MARK: Final = "__"
BROKERS_LOGGED_MAX: Final = 16


def publish_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """The queues that may be written to, in the order of brokers and numbers."""
    if route.order_topic_conf:
        return tuple(
            MessageQueue(topic, name, queue_id)
            for name, count in _ordered_brokers(route.order_topic_conf)
            for queue_id in range(count)
        )
    if route.order_topic_conf is None and route.topic_queue_mapping_by_broker:
        return tuple(sorted(static_queues(topic, route), key=lambda queue: queue.queue_id))
    masters = {data.broker_name for data in route.broker_datas if MASTER_ID in data.broker_addrs}
    return tuple(
        MessageQueue(topic, data.broker_name, queue_id)
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
        if data.perm & Permission.WRITE and data.broker_name in masters
        for queue_id in range(data.write_queue_nums)
    )


def subscribe_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """The queues that may be read, sorted as rebalancing needs them."""
    if route.topic_queue_mapping_by_broker:
        return tuple(sorted(static_queues(topic, route)))
    return tuple(
        sorted(
            MessageQueue(topic, data.broker_name, queue_id)
            for data in route.queue_datas
            if data.perm & Permission.READ
            for queue_id in range(data.read_queue_nums)
        )
    )


def static_queues(topic: str, route: TopicRoute) -> dict[MessageQueue, str]:
    """The logic queues of a static topic and the broker that serves each now."""
    by_scope: dict[str, list[QueueMapping]] = {}
    for mapping in (route.topic_queue_mapping_by_broker or {}).values():
        if mapping.scope is not None:
            by_scope.setdefault(mapping.scope, []).append(mapping)
    queues: dict[MessageQueue, str] = {}
    for scope, mappings in by_scope.items():
        served: dict[int, str] = {}
        for mapping in sorted(mappings, key=lambda mapping: mapping.epoch):
            for queue_id in mapping.curr_id_map or {}:
                served[queue_id] = mapping.bname or STATIC_BROKER_MISSING
        broker = static_broker_name(scope)
        for queue_id in range(max(mapping.total_queues for mapping in mappings)):
            queue = MessageQueue(topic, broker, queue_id)
            queues[queue] = served.get(queue_id, STATIC_BROKER_MISSING)
    return queues


def static_broker_name(scope: str) -> str:
    """The broker name that the queues of a scope pretend to have."""
    if scope.startswith(_GLOBAL_SCOPE_MARK):
        scope = scope.removeprefix(_GLOBAL_SCOPE_MARK)
    return STATIC_BROKER_PREFIX + scope


def why_not_writable(topic: str, route: TopicRoute) -> NoRouteError:
    """What to tell a producer about a route without a queue for it."""
    if any(data.perm & Permission.WRITE for data in route.queue_datas):
        return NoRouteError(
            topic, NoRouteCause.NO_MASTER, "only replicas are left; wait until a master is back"
        )
    return NoRouteError(
        topic, NoRouteCause.NO_QUEUE, "no broker gives it write permission and a write queue"
    )


def limited_queues(route: TopicRoute, queue_nums: int) -> TopicRoute:
    """The route of the template topic as a topic to be made from it will have it."""
    return msgspec.structs.replace(
        route,
        queue_datas=tuple(
            msgspec.structs.replace(
                data,
                read_queue_nums=min(queue_nums, data.read_queue_nums),
                write_queue_nums=min(queue_nums, data.read_queue_nums),
            )
            for data in route.queue_datas
        ),
    )


class Routes:
    """The routes of one session; refreshed by its owner, asked by producers and consumers.

    `on_change` hears of a topic whose route differs from the last one. What is asked for while the
    same question is under way gets the same answer.
    """

    def __init__(
        self,
        name_servers: NameServers,
        *,
        timeout_s: float,
        on_change: Callable[[str], None],
        limits: RouteLimits | None = None,
    ) -> None:
        self._name_servers = name_servers
        self._timeout_s = timeout_s
        self._on_change = on_change
        self._limits = limits or RouteLimits()
        self._routes: dict[str, TopicRoute] = {}
        self._publish: dict[str, tuple[MessageQueue, ...]] = {}
        self._subscribe: dict[str, tuple[MessageQueue, ...]] = {}
        self._static: dict[str, dict[MessageQueue, str]] = {}
        self._brokers: dict[str, dict[int, str]] = {}
        self.version = 0  # of all that is known here, for those who keep what they found
        self._asking: dict[tuple[str, str], asyncio.Future[TopicRoute]] = {}

    # --- what is known ---------------------------------------------------------------------

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose route is known."""
        return tuple(self._routes)

    @property
    def brokers(self) -> dict[str, dict[int, str]]:
        """The addresses of all brokers by name and id; not to be changed."""
        return self._brokers

    def route(self, topic: str) -> TopicRoute | None:
        """The route of a topic, if it is known."""
        return self._routes.get(topic)

    def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that may be written to; none if the route is not known."""
        return self._publish.get(topic, ())

    def subscribe_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that may be read, sorted; none if the route is not known."""
        return self._subscribe.get(topic, ())

    def broker_of(self, queue: MessageQueue) -> str:
        """The real broker of a queue, which for static topics is not the one in its name."""
        static = self._static.get(queue.topic)
        return static.get(queue, STATIC_BROKER_MISSING) if static else queue.broker_name

    def master_address(self, broker_name: str) -> str | None:
        """Where the master answers."""
        return self._brokers.get(broker_name, {}).get(MASTER_ID)

    def subscribe_address(
        self, broker_name: str, broker_id: int = MASTER_ID, *, only_this: bool = False
    ) -> tuple[str, bool] | None:
        """Where to pull, and whether it is a replica: the broker asked for, else another."""
        addresses = self._brokers.get(broker_name)
        if not addresses:
            return None
        for candidate in (broker_id, broker_id + 1) if broker_id != MASTER_ID else (broker_id,):
            if candidate in addresses:
                return addresses[candidate], candidate != MASTER_ID
        if only_this:
            return None
        candidate, address = next(iter(addresses.items()))
        return address, candidate != MASTER_ID

    def any_address(self, topic: str, chance: random.Random) -> str | None:
        """Some broker of a topic, its master if it has one: for questions that all can answer."""
        route = self._routes.get(topic)
        if route is None or not route.broker_datas:
            return None
        return _preferred(chance.choice(route.broker_datas), chance)

    # --- finding out -----------------------------------------------------------------------

    async def refresh(self, topic: str) -> bool:
        """Ask for the route of a topic; whether it has changed.

        `NoRouteError` if no broker has it, `NoNameServerError` if nobody can be asked. What was
        known before stays.
        """
        return self._take(topic, await self._fetch(topic, topic))

    async def refresh_from_template(self, topic: str, template: str, queue_nums: int) -> bool:
        """Take the route of the template topic, from which brokers make topics that are new."""
        route = await self._fetch(template, template)
        return self._take(topic, limited_queues(route, queue_nums))

    async def refresh_all(self, topics: Iterable[str]) -> None:
        """Ask for many topics one by one; what fails is logged and tried again next time."""
        for topic in topics:
            try:
                await self.refresh(topic)
            except NoRouteError as error:
                _log.debug("%s", error)
            except RouteLimitError as error:
                _log.warning("%s", error)
            except RocketMQError as error:
                _log.warning("route not refreshed topic=%s: %s", topic, error)
                return  # the others would fail alike, each after a full time-out

    def drop_offline(self) -> None:
        """Forget the addresses of brokers that are in no route any more."""
        self.version += 1
        alive = {
            address
            for route in self._routes.values()
            for data in route.broker_datas
            for address in data.broker_addrs.values()
        }
        for name in list(self._brokers):
            left = {at: address for at, address in self._brokers[name].items() if address in alive}
            if left:
                self._brokers[name] = left
            else:
                del self._brokers[name]

    async def _fetch(self, topic: str, key: str) -> TopicRoute:
        while (asking := self._asking.get((topic, key))) is not None:
            # Waiting is all that is shared: who is cancelled here cancels nobody else.
            await asyncio.wait([asking])
            if not asking.cancelled():
                return asking.result()
        future: asyncio.Future[TopicRoute] = asyncio.get_running_loop().create_future()
        self._asking[topic, key] = future
        try:
            route = await self._ask(topic)
        except BaseException as error:
            if isinstance(error, RocketMQError):
                future.set_exception(error)
                future.exception()  # it is raised here; nobody else need look
            else:
                future.cancel()
            raise
        else:
            future.set_result(route)
            return route
        finally:
            del self._asking[topic, key]

    async def _ask(self, topic: str) -> TopicRoute:
        header = GetRouteRequest(topic=topic, accept_standard_json_only=True)
        answer = await self._name_servers.ask(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, encode_header(header), timeout_s=self._timeout_s
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST or (answer.code == 0 and not answer.body):
            raise NoRouteError(
                topic,
                NoRouteCause.TOPIC_UNKNOWN,
                "create it, or let the brokers create topics (autoCreateTopicEnable)",
            )
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerRefusal(answer.code, answer.remark or "", "name server")
        return checked_route(topic, answer.body, self._limits)

    def _take(self, topic: str, route: TopicRoute) -> bool:
        self.version += 1
        for data in route.broker_datas:
            self._brokers[data.broker_name] = dict(data.broker_addrs)
        known = self._routes.get(topic)
        if known is not None and _comparable(known) == _comparable(route):
            return False
        self._routes[topic] = route
        self._publish[topic] = publish_queues(topic, route)
        self._subscribe[topic] = subscribe_queues(topic, route)
        self._static[topic] = static_queues(topic, route)
        names = [data.broker_name for data in route.broker_datas[:BROKERS_LOGGED_MAX]]
        if len(route.broker_datas) > BROKERS_LOGGED_MAX:
            names.append(f"({len(route.broker_datas)} in all)")
        _log.info("route topic=%s brokers=%s", topic, ",".join(names))
        self._on_change(topic)
        return True


def _comparable(route: TopicRoute) -> TopicRoute:
    """The route in an order of its own, since name servers give theirs in any order."""
    return msgspec.structs.replace(
        route,
        queue_datas=tuple(sorted(route.queue_datas, key=lambda data: data.broker_name)),
        broker_datas=tuple(sorted(route.broker_datas, key=lambda data: data.broker_name)),
    )


def _preferred(data: BrokerData, chance: random.Random) -> str | None:
    if MASTER_ID in data.broker_addrs:
        return data.broker_addrs[MASTER_ID]
    return chance.choice(list(data.broker_addrs.values())) if data.broker_addrs else None


def _ordered_brokers(conf: str) -> Iterable[tuple[str, int]]:
    """Broker names and queue counts of "a:4;b:2", the global order of a topic."""
    for part in conf.split(";"):
        name, _, count = part.partition(":")
        if count.strip().isdecimal():
            yield name, int(count)
