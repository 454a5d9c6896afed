"""CONSUMER_SEND_MSG_BACK: a consumer could not use a message and wants it again, later."""

import logging
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Protocol

from downrange.broker.creation_wait import CreationWait
from downrange.broker.hooks import SendBack
from downrange.broker.message_writer import MessageWriter
from downrange.broker.stats import BrokerStats
from downrange.model.names import dlq_topic, retry_topic
from downrange.model.topics import Permission, SubscriptionGroupConfig, TopicConfig
from downrange.protocol.command import Command, response
from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError
from downrange.protocol.headers.fields import decode_header
from downrange.protocol.headers.send import SendBackRequest
from downrange.protocol.message_id import encode_message_id
from downrange.protocol.properties import find_property, replace_property
from downrange.protocol.record import Record, decode_record
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.sys_flag import STORE_HOST_V6
from downrange.protocol.versions import RECONSUME_LIMIT_SINCE
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused
from downrange.store.appended import Appended
from downrange.store.errors import PutStatus
from downrange.store.lookup import Lookup

_log = logging.getLogger(__name__)

FIRST_RETRY_LEVEL = 3  # 10 s with the usual table, a level more with each time
DLQ_QUEUE_NUMS = 1
_UNIT_SUBSCRIPTION = 2  # the topic's flag for a group in unit mode
_HELP = "see https://rocketmq.apache.org/docs/bestPractice/06FAQ for more"


class Topics(Protocol):
    """What sending back needs of the topic table."""

    def create_for_send_back(
        self, topic: str, queue_nums: int, sys_flag: int
    ) -> TopicConfig | None:
        """Create a retry or dead-letter topic, if it is not there."""
        ...


class Groups(Protocol):
    """What sending back needs of the group table."""

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's configuration."""
        ...


@dataclass(frozen=True, slots=True)
class _Copy:
    """A message that goes back, and where to."""

    topic: str
    queue_id: int
    level: int
    record: Record
    header: SendBackRequest

    @property
    def is_dead_letter(self) -> bool:
        return self.topic == dlq_topic(self.header.group)


class SendBackHandler:
    """Puts the message into the group's retry topic, by way of a delay, or into its dead letters.

    When the answer goes out the copy is as durable as the flush mode promises, and so are the
    group and the topic that it belongs to. RocketMQ does not wait for the disk here.
    """

    def __init__(
        self,
        lookup: Lookup,
        topics: Topics,
        groups: Groups,
        creations: CreationWait,
        writer: MessageWriter,
        stats: BrokerStats,
        chance: random.Random,
        *,
        broker_address: str,
        is_writable: bool = True,
        after_send_back: Callable[[SendBack], None] | None = None,
    ) -> None:
        self._lookup = lookup
        self._topics = topics
        self._groups = groups
        self._creations = creations
        self._writer = writer
        self._stats = stats
        self._chance = chance
        self._broker_address = broker_address
        self.is_writable = is_writable
        self._after_send_back = after_send_back

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(self, request: Command, _: Connection) -> Answer | Coroutine[None, None, Answer]:
        """Put one message again."""
        header = decode_header(SendBackRequest, request.ext_fields)
        config = self._groups.find(header.group)
        if config is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {header.group}; {_HELP}",
            )
        if not self.is_writable:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker_address}] sending message is forbidden",
            )
        if config.retry_queue_nums <= 0:
            return response(request, ResponseCode.SUCCESS)  # a group that wants nothing again
        copy = self._copy(request, header, config)
        if self._writer.is_sync or not self._creations.can_put(copy.topic, copy.queue_id):
            return self._put_durably(request, copy)
        self._put(copy)
        return response(request, ResponseCode.SUCCESS)

    async def _put_durably(self, request: Command, copy: _Copy) -> Answer:
        if not self._creations.can_put(copy.topic, copy.queue_id):
            await self._creations.wait(copy.topic)
            self._creations.can_put(copy.topic, copy.queue_id, has_waited=True)
        status = await self._writer.durable(self._put(copy).end_offset)
        if status is not PutStatus.PUT_OK:
            # The consumer then sends a copy itself: the message may be redelivered twice.
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the copy is not durable: {status.name}")
        return response(request, ResponseCode.SUCCESS)

    def _copy(
        self, request: Command, header: SendBackRequest, config: SubscriptionGroupConfig
    ) -> _Copy:
        topic = retry_topic(header.group)
        unit_flag = _UNIT_SUBSCRIPTION if header.unit_mode else 0
        if not self._create(topic, config.retry_queue_nums, unit_flag).perm & Permission.WRITE:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden"
            )
        record = self._find(header.offset)
        times_max = config.retry_max_times
        if request.version >= RECONSUME_LIMIT_SINCE and header.max_reconsume_times is not None:
            times_max = header.max_reconsume_times
        queue_id = self._chance.randrange(config.retry_queue_nums)
        level = header.delay_level or FIRST_RETRY_LEVEL + record.reconsume_times
        if record.reconsume_times >= times_max or level < 0:
            topic, queue_id, level = dlq_topic(header.group), 0, 0
            self._create(topic, DLQ_QUEUE_NUMS, 0)
            _log.info("dead letter: group=%s offset=%d", header.group, header.offset)
        return _Copy(topic, queue_id, level, record, header)

    def _create(self, topic: str, queue_nums: int, sys_flag: int) -> TopicConfig:
        config = self._topics.create_for_send_back(topic, queue_nums, sys_flag)
        if config is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] not exist")
        return config

    def _find(self, physical_offset: int) -> Record:
        view = self._lookup.record_at(physical_offset)
        remark = f"look message by offset failed, {physical_offset}"
        if view is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        try:
            # Its checksum is looked at, because the copy gets a new one that would fit damage.
            return decode_record(view)
        except RemoteProtocolError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{remark}: {error}") from error

    def _put(self, copy: _Copy) -> Appended:
        record, header = copy.record, copy.header
        origin = find_property(record.properties, b"RETRY_TOPIC") or record.topic
        origin_id = find_property(record.properties, b"ORIGIN_MESSAGE_ID")
        if origin_id is None or not origin_id.strip():
            origin_id = encode_message_id(record.store_host, record.physical_offset).encode()
        text = record.properties
        try:
            for name, value in (
                (b"RETRY_TOPIC", origin),
                (b"ORIGIN_MESSAGE_ID", origin_id),
                (b"WAIT", b"false"),
                (b"DELAY", b"%d" % copy.level),
            ):
                text = replace_property(text, name, value)
            appended = self._writer.put(
                copy.topic,
                copy.queue_id,
                record.body,
                text,
                record.sys_flag & ~STORE_HOST_V6,  # the store sets it by its own host
                record.flag,
                record.born_timestamp,
                record.born_host,
                record.reconsume_times + 1,
            )
        except Refused as error:
            # The consumer then sends the copy itself, whatever the reason was.
            raise Refused(ResponseCode.SYSTEM_ERROR, error.remark) from error
        except LocalProtocolError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        self._stats.add_sent_back(header.group, origin.decode("utf-8", "replace"))
        if self._after_send_back is not None:
            self._after_send_back(
                SendBack(
                    consumer_group=header.group,
                    topic=header.origin_topic,
                    message_id=header.origin_msg_id,
                    is_dead_letter=copy.is_dead_letter,
                )
            )
        return appended
