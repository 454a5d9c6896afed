"""PULL_MESSAGE and LITE_PULL_MESSAGE: a consumer asks for messages of a queue."""

from collections.abc import Callable
from typing import Protocol

from downrange.broker.hooks import Delivery
from downrange.broker.long_polling import PARKED_MAX, LongPolling, ParkedPull, PullFilter
from downrange.broker.overload import Gate
from downrange.broker.pull_reply import pull_reply
from downrange.broker.rates import PullCounts
from downrange.broker.stats import BrokerStats
from downrange.broker.subscriptions import SubscriptionFilters
from downrange.filtering.tags import is_tag_type
from downrange.model.topics import Permission, SubscriptionGroupConfig, TopicConfig
from downrange.protocol.bodies.heartbeat import Subscription
from downrange.protocol.command import Command, response
from downrange.protocol.headers.fields import decode_header
from downrange.protocol.headers.pull import BULK_FIELD, PullRequest
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused
from downrange.store.filter_tables import GroupFilter
from downrange.store.message_store import MessageStore
from downrange.store.reader import BYTES_MAX, ReadResult, ReadStatus

COMMIT_FLAG = 1
SUSPEND_FLAG = 2
SUBSCRIPTION_FLAG = 4
_READ = int(Permission.READ)  # the operators of an Enum are slow
READ_INDEX = 2  # the bit of a group's forbidden table that means reading

_CODES = {
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}


class Topics(Protocol):
    """What pulling needs of the topic table."""

    def get(self, topic: str) -> TopicConfig | None:
        """The topic's configuration."""
        ...


class Groups(Protocol):
    """What pulling needs of the group table."""

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's configuration."""
        ...

    def is_forbidden(self, group: str, topic: str, index: int) -> bool:
        """Whether an operator took this topic from the group."""
        ...


class Offsets(Protocol):
    """What pulling needs of the offset table."""

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Take note how far the group has come."""
        ...

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset to which an operator has moved the group, once."""
        ...

    def note_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Take note how far the group has pulled."""
        ...


class Consumers(Protocol):
    """What pulling needs of the client table."""

    def has_group(self, group: str) -> bool:
        """Whether a client of the group has sent a heartbeat."""
        ...

    def is_broadcasting(self, group: str) -> bool:
        """Whether every client of the group gets every message."""
        ...

    def subscription(
        self, group: str, topic: str, connection: Connection | None = None
    ) -> Subscription | None:
        """What the group wants of the topic, or rather the client that asks."""
        ...


class PullHandler:
    """Checks a pull, reads, and answers with the log's own bytes, or parks the pull."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        groups: Groups,
        offsets: Offsets,
        consumers: Consumers,
        filters: SubscriptionFilters,
        stats: BrokerStats,
        counts: PullCounts,
        now_s: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
        gate: Gate,
        filter_data: Callable[[str, str], GroupFilter | None],
        *,
        broker_address: str,
        before_consume: Callable[[Delivery], None] | None = None,
        waiting_max: int = PARKED_MAX,
        is_readable: bool = True,
        long_polling_enabled: bool = True,
        short_polling_ms: int = 1_000,
    ) -> None:
        self._read = store.read
        self._queues = store.queues
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._filters = filters
        self._stats = stats
        self._counts = counts
        self._now_s = now_s
        self._gate = gate
        self._filter_data = filter_data
        self._before_consume = before_consume
        self._broker_address = broker_address
        self.long_polling = LongPolling(self._resume, call_soon, waiting_max)
        store.add_listener(self.long_polling.on_arrival, self.long_polling.topics)
        self.change(
            is_readable=is_readable,
            long_polling_enabled=long_polling_enabled,
            short_polling_ms=short_polling_ms,
            waiting_max=waiting_max,
        )

    def change(
        self,
        *,
        is_readable: bool,
        long_polling_enabled: bool,
        short_polling_ms: int,
        waiting_max: int,
    ) -> None:
        """Follow other settings from now on."""
        self._is_readable = is_readable
        self._long_polling_enabled = long_polling_enabled
        self._short_polling_ms = short_polling_ms
        self.long_polling.count_max = waiting_max

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.LITE_PULL_MESSAGE: self.pull,
        }

    def pull(self, request: Command, connection: Connection) -> Answer:
        """A pull as it comes from the consumer."""
        if self._gate.is_closed:
            raise self._gate.refusal()
        return self._pull(request, connection, may_park=True)

    def sweep(self) -> None:
        """Answer parked pulls whose time is over."""
        self.long_polling.sweep(self._now_s(), self._max_offset)

    def stop(self) -> None:
        """Answer all parked pulls: the broker goes away."""
        for parked in self.long_polling.drain():
            self._resume(parked)

    def _pull(self, request: Command, connection: Connection, *, may_park: bool) -> Answer:
        header = decode_header(PullRequest, request.ext_fields)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        group_config = self._checked_group(group)
        topic_config = self._checked_topic(topic, queue_id)
        if header.sys_flag & SUBSCRIPTION_FLAG:
            subscription = self._filters.inline(topic, header.subscription, header.expression_type)
        else:
            subscription = self._heartbeat_subscription(header, group_config, connection)
        message_filter = self._filters.filter_of(subscription)
        reset_offset = self._offsets.take_reset(group, topic, queue_id)
        if reset_offset is not None:
            result = self._moved_to(topic, queue_id, reset_offset)
        else:
            result = self._read(
                topic,
                queue_id,
                header.queue_offset,
                header.max_msg_nums,
                header.max_msg_bytes or BYTES_MAX,
                message_filter,
                in_bulk=(request.ext_fields or {}).get(BULK_FIELD) == "true",
            )
        self._offsets.note_pull(group, topic, queue_id, result.next_offset)
        if may_park and header.sys_flag & COMMIT_FLAG and reset_offset is None:
            self._offsets.commit(group, topic, queue_id, header.commit_offset)
        code = _code(result.status, header.queue_offset)
        if code == ResponseCode.PULL_NOT_FOUND and may_park and header.sys_flag & SUSPEND_FLAG:
            self._park(request, connection, header, message_filter)
            return None
        if self._before_consume is not None:
            self._before_consume(
                Delivery(
                    consumer_group=group,
                    topic=topic,
                    queue_id=queue_id,
                    consumer_address=connection.address,
                    code=code,
                    message_count=result.message_count,
                    size_bytes=result.size,
                )
            )
        if not result.message_count:
            self._counts.missed += 1
        else:
            self._counts.found += 1
            self._stats.add_got(group, topic, result.message_count, result.size)
        head = pull_reply(
            request, code, result, topic_config.topic_sys_flag, group_config.group_sys_flag
        )
        return [head, *result.views]

    def _park(
        self, request: Command, connection: Connection, header: PullRequest, wanted: PullFilter
    ) -> None:
        wait_ms = header.suspend_timeout_millis
        if not self._long_polling_enabled:
            wait_ms = self._short_polling_ms
        parked = ParkedPull(
            request, connection, header.queue_offset, self._now_s() + wait_ms / 1000, wanted
        )
        self.long_polling.park(header.topic, header.queue_id, parked)

    def _resume(self, parked: ParkedPull) -> None:
        if parked.connection.is_closed:
            return
        try:
            answer = self._pull(parked.request, parked.connection, may_park=False)
        except Refused as refusal:
            answer = response(parked.request, refusal.code, remark=refusal.remark)
        parked.connection.reply(answer)

    def _moved_to(self, topic: str, queue_id: int, offset: int) -> ReadResult:
        queue = self._queues.get(topic, queue_id)
        low, high = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)
        return ReadResult(ReadStatus.OFFSET_RESET, [], 0, 0, offset, low, high, False, 0)

    def _max_offset(self, topic: str, queue_id: int) -> int:
        queue = self._queues.get(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def _checked_group(self, group: str) -> SubscriptionGroupConfig:
        if not self._is_readable:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker_address}] pulling message is forbidden",
            )
        config = self._groups.find(group)
        if config is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group}] does not exist; create it, or allow "
                "autoCreateSubscriptionGroup",
            )
        if not config.consume_enable:
            raise Refused(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")
        return config

    def _checked_topic(self, topic: str, queue_id: int) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!"
            )
        if not int(config.perm) & _READ:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"the topic[{topic}] pulling message is forbidden"
            )
        if not 0 <= queue_id < config.read_queue_nums:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{config.read_queue_nums}]",
            )
        return config

    def _heartbeat_subscription(
        self, header: PullRequest, group_config: SubscriptionGroupConfig, connection: Connection
    ) -> Subscription:
        """What the group's heartbeats said, which must not be older than what the pull knows."""
        group = header.consumer_group
        if not self._consumers.has_group(group):
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist"
            )
        if self._consumers.is_broadcasting(group) and not group_config.consume_broadcast_enable:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{group}] can not consume by broadcast way",
            )
        if self._groups.is_forbidden(group, header.topic, READ_INDEX):
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{group}] is forbidden for topic[{header.topic}]",
            )
        subscription = self._consumers.subscription(group, header.topic, connection)
        if subscription is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist"
            )
        if subscription.sub_version < header.sub_version:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        if not is_tag_type(subscription.expression_type):
            self._check_filter_data(header)
        return subscription

    def _check_filter_data(self, header: PullRequest) -> None:
        """Whether the group's expression was one, and is not older than what the pull knows."""
        found = self._filter_data(header.topic, header.consumer_group)
        if found is None:
            raise Refused(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                f"no filter data of group [{header.consumer_group}] for topic [{header.topic}]: "
                "the expression of its heartbeat may be wrong",
            )
        if found.client_version < header.sub_version:
            raise Refused(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                "the consumer's consumer filter data not latest",
            )


def _code(status: ReadStatus, asked_offset: int) -> int:
    if status is ReadStatus.FOUND:  # nearly always
        return ResponseCode.SUCCESS
    if status in {ReadStatus.NO_MATCHED_LOGIC_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE}:
        return ResponseCode.PULL_OFFSET_MOVED if asked_offset else ResponseCode.PULL_NOT_FOUND
    return _CODES[status]
