"""Where the queues of a topic are, as the name servers know it."""

import logging
import random
from collections.abc import Callable, Sequence

from downrange.model.topics import QUEUE_NUMS_MAX, MessageQueue, Permission
from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.bodies.route import TopicRoute
from downrange.protocol.errors import ProtocolError
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.headers.topic import GetRouteRequest
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.route_limits import RouteLimits, check_route
from downrange.remoting.client import RemotingClient
from downrange.remoting.errors import RemotingError
from downrange.runtime.clock import Clock

TIMEOUT_S = 3.0
KEPT_S = 30.0
KNOWN_MAX = 10_000  # topics; clients choose which ones are asked for

_log = logging.getLogger(__name__)


class TopicRoutes:
    """Asks a name server, and remembers the answer for half a minute."""

    def __init__(
        self,
        client: RemotingClient,
        name_servers: Callable[[], list[str]],
        clock: Clock,
        chance: random.Random,
    ) -> None:
        self._client = client
        self._name_servers = name_servers
        self._clock = clock
        self._chance = chance
        self._known: dict[str, tuple[float, list[MessageQueue]]] = {}

    async def readable_queues(self, topic: str) -> Sequence[MessageQueue] | None:
        """The readable queues of a topic on all brokers; None if no name server knows it."""
        now_s = self._clock.monotonic_s()
        known = self._known.get(topic)
        if known is not None and now_s - known[0] < KEPT_S:
            return known[1]
        servers = self._name_servers()
        self._chance.shuffle(servers)
        for server in servers:
            try:
                answer = await self._client.call(
                    server,
                    RequestCode.GET_ROUTEINFO_BY_TOPIC,
                    encode_header(GetRouteRequest(topic=topic)),
                    timeout_s=TIMEOUT_S,
                )
            except RemotingError:
                continue
            if answer.code == 0:
                try:
                    route = decode_body(TopicRoute, answer.body)
                    check_route(route, RouteLimits())
                except ProtocolError as error:
                    _log.warning("name server %s: route of %s refused: %s", server, topic, error)
                    continue
                queues = _queues(topic, route)
                if len(self._known) >= KNOWN_MAX:
                    self._known.clear()
                self._known[topic] = (now_s, queues)
                return queues
        return None


def _queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    return [
        MessageQueue(topic=topic, broker_name=data.broker_name, queue_id=queue_id)
        for data in route.queue_datas
        if data.perm & Permission.READ
        for queue_id in range(min(data.read_queue_nums, QUEUE_NUMS_MAX))
    ]
