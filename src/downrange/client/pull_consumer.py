"""A consumer that does nothing by itself: the program says which queue, from where, how many.

async with PullConsumer("audit", client=ClientSettings(name_servers="127.0.0.1:9876")) as me:
    for queue in await me.fetch_queues("orders"):
        found = await me.pull(queue, await me.consumed_offset(queue) or 0)
"""

from typing import Final

from downrange.client.consumer_settings import PullConsumerSettings
from downrange.client.dead_letter import dead_letter
from downrange.client.errors import RocketMQError
from downrange.client.invalid_message import InvalidMessage, InvalidMessagePolicy
from downrange.client.message import ReceivedMessage
from downrange.client.pulling import PullResult
from downrange.client.pulling_member import PullingMember
from downrange.client.running_info import pull_settings
from downrange.client.send_back import SendBack
from downrange.client.session_table import SESSIONS, SessionTable
from downrange.client.settings import ClientSettings
from downrange.client.start_offset import ConsumeFromWhere
from downrange.client.subscription import subscribe, subscribe_tags
from downrange.filtering.tags import EVERYTHING, SQL92_TYPE, TAG_TYPE, is_tag_type
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.heartbeat import Subscription
from downrange.runtime.blocking import BlockingRunner
from downrange.runtime.disk import Disk

COUNT: Final = 32


class PullConsumer(PullingMember):
    """Pulls when asked. Offsets are kept for the group, but move only as the program says."""

    def __init__(
        self,
        group: str,
        *,
        client: ClientSettings,
        settings: PullConsumerSettings | None = None,
        sessions: SessionTable = SESSIONS,
        disk: Disk | None = None,
        blocking: BlockingRunner | None = None,
    ) -> None:
        self.settings = settings or PullConsumerSettings()
        super().__init__(
            group,
            client=client,
            message_model=self.settings.message_model,
            consume_from_where=ConsumeFromWhere.LAST_OFFSET.value,
            unit_mode=self.settings.unit_mode,
            offsets_folder=self.settings.offsets_folder,
            sessions=sessions,
            disk=disk,
            blocking=blocking,
        )

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        tags: str = EVERYTHING,
        sql: str = "",
        count_max: int = COUNT,
        timeout_s: float | None = None,
    ) -> PullResult:
        """What is there now from an offset on; go on at `next_offset`, whatever the status.

        Messages that cannot be decoded are in `invalid` of the result, and shown to
        `on_invalid_message` if it is set.
        """
        limit_s = self.settings.pull_timeout_s if timeout_s is None else timeout_s
        return await self._pull(queue, offset, tags, sql, count_max, limit_s, suspend_s=0.0)

    async def pull_blocking(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        tags: str = EVERYTHING,
        sql: str = "",
        count_max: int = COUNT,
    ) -> PullResult:
        """The same, but the broker waits up to `suspend_max_s` for a message to come."""
        settings = self.settings
        limit_s, suspend_s = settings.timeout_when_suspended_s, settings.suspend_max_s
        return await self._pull(queue, offset, tags, sql, count_max, limit_s, suspend_s=suspend_s)

    async def consumed_offset(self, queue: MessageQueue, *, from_store: bool = False) -> int | None:
        """How far the group has come; None if nobody knows."""
        self._running()
        if not from_store and (offset := self._offsets.in_memory(queue)) is not None:
            return offset
        return await self._offsets.stored(queue)

    def update_consumed_offset(self, queue: MessageQueue, offset: int) -> None:
        """The group has come this far; kept for good within seconds, or by `persist`."""
        self._running()
        self._offsets.update(queue, offset, increase_only=False)

    async def persist(self, queue: MessageQueue | None = None) -> None:
        """Keep the offset of a queue, or all, for good now."""
        self._running()
        queues = [queue] if queue is not None else list(self._offsets.snapshot())
        await self._offsets.persist(queues, wait=True)

    async def earliest_store_time_ms(self, queue: MessageQueue) -> int:
        """When the first message that is still kept was stored."""
        return await self._calls.earliest_store_time_ms(queue)

    async def send_back(
        self, message: ReceivedMessage, queue: MessageQueue, delay_level: int = 0
    ) -> bool:
        """Have a message come to the group again; whether a broker has taken it."""
        back = SendBack(
            self._calls,
            self.group,
            max_reconsume_times=self.settings.max_reconsume_times,
            namespace=self._client.namespace,
            unit_mode=self._unit_mode,
        )
        return await back.give_back(message, queue, delay_level)

    async def dead_letter(self, invalid: InvalidMessage) -> None:
        """Publish a message that cannot be decoded to the dead-letter topic of the group."""
        self._running()
        assert self._dead_letters_ is not None
        await self._dead_letters_.send(dead_letter(invalid, self.group))

    # --- inside ----------------------------------------------------------------------------

    async def _pull(
        self,
        queue: MessageQueue,
        offset: int,
        tags: str,
        sql: str,
        count_max: int,
        timeout_s: float,
        *,
        suspend_s: float,
    ) -> PullResult:
        self._running()
        if offset < 0 or count_max <= 0:
            raise RocketMQError(
                f"cannot pull {count_max} messages from offset {offset}; offsets begin at 0 and "
                f"at least one message must be asked for"
            )
        self._subscribe_by_itself(queue.topic)
        found = await self._puller.pull(
            queue,
            self._subscription(queue.topic, tags, sql),
            offset,
            count_max=count_max,
            timeout_s=timeout_s,
            suspend_s=suspend_s,
            with_subscription=True,
        )
        if found.invalid:
            await self._invalid_messages.report(found.invalid)
        self._give(queue, found.messages)
        return found

    def _invalid_policy(self) -> InvalidMessagePolicy:
        return InvalidMessagePolicy.SKIP  # the program commits; it finds them in its PullResult

    def _java_settings(self) -> dict[str, str]:
        return pull_settings(self.group, self.settings)

    def _subscription(self, topic: str, tags: str, sql: str) -> Subscription:
        if sql and tags != EVERYTHING:
            raise RocketMQError("give tags or sql, not both: a broker filters by one of them")
        kind = SQL92_TYPE if sql else TAG_TYPE
        version_ms = 0 if is_tag_type(kind) else self._version_ms()
        return subscribe(topic, sql or tags, kind, version_ms=version_ms)

    def _subscribe_by_itself(self, topic: str) -> None:
        """Brokers show who reads a topic, and refuse groups they have never heard of."""
        if topic not in self._subscriptions:
            self._subscriptions[topic] = subscribe_tags(topic, version_ms=self._version_ms())
            self._tell_brokers()
