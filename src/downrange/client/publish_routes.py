"""Where a producer can send to: the queues of a topic, also of one that is still to be made."""

import asyncio

from downrange.client.errors import ClientTimeoutError, NoRouteError, UnknownBrokerError
from downrange.client.peers import vip_address
from downrange.client.routes import Routes, why_not_writable
from downrange.model.topics import MessageQueue


class PublishRoutes:
    """Looks at the routes of the session, and asks for those that are missing."""

    def __init__(
        self, routes: Routes, template_topic: str, template_queue_nums: int, *, vip_channel: bool
    ) -> None:
        self._routes = routes
        self._template_topic = template_topic
        self._template_queue_nums = template_queue_nums
        self._vip_channel = vip_channel

    async def queues(self, topic: str, timeout_s: float) -> tuple[MessageQueue, ...]:
        """The queues of a topic; a topic that is new gets those that its broker will give it."""
        queues = self._routes.publish_queues(topic)
        if queues:
            return queues
        try:
            async with asyncio.timeout(timeout_s):
                await self._find(topic)
        except TimeoutError:
            raise ClientTimeoutError(
                f"the route of topic {topic!r} was not found in {timeout_s:g} s"
            ) from None
        queues = self._routes.publish_queues(topic)
        if not queues:
            route = self._routes.route(topic)
            assert route is not None
            raise why_not_writable(topic, route)
        return queues

    async def _find(self, topic: str) -> None:
        try:
            await self._routes.refresh(topic)
        except NoRouteError as unknown:
            try:
                await self._routes.refresh_from_template(
                    topic, self._template_topic, self._template_queue_nums
                )
            except NoRouteError:
                raise unknown from None

    async def address(self, queue: MessageQueue) -> tuple[str, str]:
        """The broker of a queue and where its master answers; asks once more if it is not known."""
        broker = self._routes.broker_of(queue)
        address = self._routes.master_address(broker)
        if address is None:
            await self._find(queue.topic)
            broker = self._routes.broker_of(queue)
            address = self._routes.master_address(broker)
        if address is None:
            raise UnknownBrokerError(
                f"no route of topic {queue.topic!r} has a broker {broker!r} with a master"
            )
        return broker, vip_address(address) if self._vip_channel else address
