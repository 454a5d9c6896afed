"""What a consumer asks about a queue, at whichever broker serves the queue now."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from downrange.client.errors import RocketMQError, UnknownBrokerError
from downrange.client.message import ReceivedMessage
from downrange.client.session import Session
from downrange.model.topics import MessageQueue
from downrange.protocol.headers.send import SendBackRequest

_log = logging.getLogger(__name__)

OFFSET_TIMEOUT_S: Final = 5.0
LOCK_TIMEOUT_S: Final = 1.0
SEND_BACK_TIMEOUT_S: Final = 5.0
T = TypeVar("T")


class QueueCalls:
    """The questions of one consumer group. Every error is a `RocketMQError`."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._calls = session.calls
        self._group = group
        self._failing: set[str] = set()  # brokers whose locks could not be had the last time

    # --- where -----------------------------------------------------------------------------

    async def master(self, queue: MessageQueue) -> str:
        """The address of a queue's master, asked for anew if it is not known."""
        return await self._found(queue, lambda: self._master(queue))

    async def readable(self, queue: MessageQueue, broker_id: int) -> tuple[str, bool]:
        """Where to read a queue, this broker if it is there; and whether it is a replica."""
        routes = self._session.routes
        known = routes.subscribe_address(routes.broker_of(queue), broker_id)
        if known is not None:
            return known
        return await self._found(
            queue, lambda: routes.subscribe_address(routes.broker_of(queue), broker_id)
        )

    def _master(self, queue: MessageQueue) -> str | None:
        routes = self._session.routes
        return routes.master_address(routes.broker_of(queue))

    async def _found(self, queue: MessageQueue, find: Callable[[], T | None]) -> T:
        found = find()
        if found is None:
            await self._session.routes.refresh(queue.topic)
            found = find()
        if found is None:
            raise UnknownBrokerError(
                f"no broker {queue.broker_name!r} for topic {queue.topic!r} is known to the name "
                f"servers; it may be down"
            )
        return found

    # --- offsets ---------------------------------------------------------------------------

    async def query_offset(self, queue: MessageQueue) -> int | None:
        """What the group has committed; None if nothing."""
        address, _ = await self.readable(queue, 0)
        return await self._calls.consumer_offset(
            address, self._group, queue, timeout_s=OFFSET_TIMEOUT_S
        )

    async def commit_offset(self, queue: MessageQueue, offset: int, *, wait: bool) -> None:
        """Commit; with `wait` the broker has it when this returns."""
        address, _ = await self.readable(queue, 0)
        await self._calls.update_consumer_offset(
            address, self._group, queue, offset, one_way=not wait, timeout_s=OFFSET_TIMEOUT_S
        )

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return await self._calls.max_offset(await self.master(queue), queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The first offset that is still kept."""
        return await self._calls.min_offset(await self.master(queue), queue)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset at or after a time."""
        return await self._calls.search_offset(await self.master(queue), queue, timestamp_ms)

    async def earliest_store_time_ms(self, queue: MessageQueue) -> int:
        """When the first message that is still kept was stored."""
        return await self._calls.earliest_store_time_ms(await self.master(queue), queue)

    # --- locks -----------------------------------------------------------------------------

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, bool]:
        """Which of the queues this client holds now; those of a broker that fails are missing."""
        held: dict[MessageQueue, bool] = {}

        async def lock_at(address: str, there: list[MessageQueue]) -> None:
            locked = await self._calls.lock_queues(
                address, self._group, self._session.client_id, there, timeout_s=LOCK_TIMEOUT_S
            )
            held.update((queue, queue in locked) for queue in there)

        await self._by_master(queues, lock_at)
        return held

    async def unlock(self, queues: Iterable[MessageQueue], *, wait: bool) -> None:
        """Let go of queues; a broker that cannot be told lets the locks expire."""

        async def unlock_at(address: str, there: list[MessageQueue]) -> None:
            await self._calls.unlock_queues(
                address,
                self._group,
                self._session.client_id,
                there,
                one_way=not wait,
                timeout_s=LOCK_TIMEOUT_S,
            )

        await self._by_master(queues, unlock_at)

    async def _by_master(
        self,
        queues: Iterable[MessageQueue],
        ask: Callable[[str, list[MessageQueue]], Awaitable[None]],
    ) -> None:
        by_address: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            address = self._master(queue)
            if address is not None:
                by_address.setdefault(address, []).append(queue)
        for address, there in by_address.items():
            try:
                await ask(address, there)
            except RocketMQError as error:
                if address not in self._failing:
                    self._failing.add(address)
                    _log.warning("locks of group %s at %s: %s", self._group, address, error)
            else:
                self._failing.discard(address)

    # --- who else, and again later ---------------------------------------------------------

    async def consumer_ids(self, topic: str) -> tuple[list[str], str]:
        """The members of the group by a broker of the topic, and the address of that broker."""
        routes = self._session.routes
        route = routes.route(topic)
        if route is None or not route.broker_datas:
            await routes.refresh(topic)
            route = routes.route(topic)
        addresses = [
            address
            for data in (route.broker_datas if route is not None else ())
            for address in data.broker_addrs.values()
        ]
        self._session.chance.shuffle(addresses)
        failure: RocketMQError = UnknownBrokerError(f"topic {topic!r} has no broker that is alive")
        for address in addresses:
            try:
                return await self._calls.consumer_ids(address, self._group), address
            except RocketMQError as error:
                failure = error
        raise failure

    async def send_back(
        self,
        message: ReceivedMessage,
        queue: MessageQueue,
        delay_level: int,
        max_reconsume_times: int,
        *,
        origin_topic: str,
        unit_mode: bool = False,
    ) -> None:
        """Have a message delivered to the group again; level 0 lets the broker choose when."""
        header = SendBackRequest(
            offset=message.physical_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=origin_topic,
            unit_mode=unit_mode,
            max_reconsume_times=max_reconsume_times,
        )
        await self._calls.send_back(await self.master(queue), header, timeout_s=SEND_BACK_TIMEOUT_S)
