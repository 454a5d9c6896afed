"""Topics: created, changed, listed, deleted."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from downrange.broker.attributes import (
    TOPIC_ATTRIBUTES,
    changed_attributes,
    parse_attribute_changes,
)
from downrange.broker.handlers.admin.paging import page_of
from downrange.broker.offset_table import OffsetTable
from downrange.broker.stats import BrokerStats
from downrange.broker.table_saver import Durable
from downrange.broker.topic_table import TopicTable
from downrange.model.names import (
    SYSTEM_TOPICS,
    InvalidNameError,
    check_topic,
    is_lmq,
    pop_retry_topic,
)
from downrange.model.topics import TopicConfig, TopicFilterType
from downrange.protocol.bodies import registration
from downrange.protocol.bodies.groups import TopicConfigList
from downrange.protocol.bodies.json_body import decode_body, encode_body
from downrange.protocol.bodies.topics import TopicList
from downrange.protocol.command import Command, response
from downrange.protocol.headers.admin_topic import (
    DeleteTopicInBrokerRequest,
    GetAllTopicConfigRequest,
    GetAllTopicConfigResponse,
    GetTopicConfigRequest,
)
from downrange.protocol.headers.fields import decode_header, encode_header
from downrange.protocol.headers.topic import CreateTopicRequest
from downrange.protocol.json_text import write_json, write_json_steps
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused
from downrange.runtime.slices import in_slices

_log = logging.getLogger(__name__)

_FILTER_TYPES = frozenset(kind.value for kind in TopicFilterType)


class Queue(Protocol):
    """A queue of the store, as far as it matters here.

    `next_offset` counts messages that are not visible yet, too.
    """

    topic: str
    min_offset: int
    next_offset: int


class Store(Protocol):
    """What administering topics needs of the store."""

    @property
    def queues(self) -> Iterable[Queue]:
        """All queues."""
        ...

    def delete_topic(self, topic: str) -> int:
        """Forget the queues of a topic; returns how many there were."""
        ...


class TopicsHandler:
    """Changes the topic table and answers when the change is durable.

    A created topic is answered when the name servers have heard of it, so that a client that asks
    them for its route at once gets it.
    """

    def __init__(
        self,
        topics: TopicTable,
        offsets: OffsetTable,
        store: Store,
        stats: BrokerStats,
        register: Callable[[], Awaitable[object]],
        topics_durable: Durable,
        offsets_durable: Durable,
    ) -> None:
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._stats = stats
        self._register = register
        self._topics_durable = topics_durable
        self._offsets_durable = offsets_durable

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.create,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.create_list,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.get_all,
            RequestCode.GET_TOPIC_CONFIG: self.get,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.list_system_topics,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused,
        }

    async def create(self, request: Command, connection: Connection) -> Answer:
        """Create a topic or change it."""
        header = decode_header(CreateTopicRequest, request.ext_fields)
        if header.topic_filter_type not in _FILTER_TYPES:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"topicFilterType = [{header.topic_filter_type}] value invalid; "
                f"it is one of {', '.join(sorted(_FILTER_TYPES))}",
            )
        config = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
        )
        _log.info("topic %s is to be created or changed by %s", header.topic, connection.address)
        self._topics.update(config, parse_attribute_changes(header.attributes))
        return await self._announced(request)

    async def create_list(self, request: Command, connection: Connection) -> Answer:
        """Create or change several topics, after names and attributes of all were checked."""
        configs = decode_body(TopicConfigList, request.body).topic_config_list
        for config in configs:
            self._check(config)
        names = ", ".join(config.topic_name for config in configs)
        _log.info("topics %s are to be created or changed by %s", names, connection.address)
        self._topics.update_all(configs)
        return await self._announced(request)

    async def get_all(self, request: Command, _: Connection) -> Answer:
        """All topics, or a page of them."""
        header = decode_header(GetAllTopicConfigRequest, request.ext_fields)
        topics = self._topics
        names = page_of(
            topics.names(),
            topics.data_version,
            first=header.topic_seq,
            version_text=header.data_version,
            count_max=header.max_topic_num,
        )
        found = {name: topics.get(name) for name in names}
        body = registration.TopicTable(
            topic_config_table={name: one for name, one in found.items() if one is not None},
            data_version=topics.data_version,
        )
        fields = encode_header(GetAllTopicConfigResponse(total_topic_num=len(topics)))
        text = await in_slices(write_json_steps(body))
        return response(request, ResponseCode.SUCCESS, ext_fields=fields, body=text)

    def get(self, request: Command, _: Connection) -> Answer:
        """One topic."""
        topic = decode_header(GetTopicConfigRequest, request.ext_fields).topic
        config = self._topics.get(topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return response(request, ResponseCode.SUCCESS, body=write_json(config))

    async def delete(self, request: Command, connection: Connection) -> Answer:
        """Delete a topic, with its queues, its offsets and the retry topics of who popped it."""
        topic = decode_header(DeleteTopicInBrokerRequest, request.ext_fields).topic
        if not topic.strip():
            raise Refused(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        _log.info("topic %s is to be deleted by %s", topic, connection.address)
        retries = [
            name
            for group in self._offsets.groups_of(topic)
            for v2 in (True, False)
            if (name := pop_retry_topic(topic, group, v2=v2)) in self._topics
        ]
        for name in (topic, *retries):
            self._topics.check_deletable(name)
            self._delete_queues(name)
            self._topics.delete(name)
            self._offsets.remove_topic(name)
            self._stats.forget_topic(name)
        await self._topics_durable()
        await self._offsets_durable()
        return response(request, ResponseCode.SUCCESS)

    def list_system_topics(self, request: Command, _: Connection) -> Answer:
        """The topics that do not belong to users, whether this broker has them or not."""
        names = sorted(SYSTEM_TOPICS.union(self._topics.system_names()))
        body = TopicList(topic_list=tuple(names))
        return response(request, ResponseCode.SUCCESS, body=encode_body(body))

    def clean_unused(self, request: Command, _: Connection) -> Answer:
        """Delete the queues of topics that are not in the table and have no messages left.

        Queues with messages stay: the next start enters their topic again.
        """
        has_messages: dict[str, bool] = {}
        for queue in self._store.queues:
            topic = queue.topic
            if topic in self._topics or self._topics.is_system(topic) or is_lmq(topic):
                continue
            holds_any = queue.next_offset > queue.min_offset
            has_messages[topic] = has_messages.get(topic, False) or holds_any
        for topic, is_kept in sorted(has_messages.items()):
            if is_kept:
                _log.warning("topic %s: not in the table, but its queues have messages", topic)
            else:
                count = self._store.delete_topic(topic)
                _log.warning("topic %s: not in the table, deleted %d empty queues", topic, count)
        return response(request, ResponseCode.SUCCESS)

    def _check(self, config: TopicConfig) -> None:
        topic = config.topic_name
        try:
            check_topic(topic)
        except InvalidNameError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        old = self._topics.get(topic)
        changed_attributes(
            TOPIC_ATTRIBUTES, None if old is None else old.attributes, config.attributes
        )
        if config.topic_filter_type not in _FILTER_TYPES:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"topicFilterType = [{config.topic_filter_type}] of {topic} value invalid",
            )
        if self._topics.is_system(topic):
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"The topic[{topic}] is conflict with system topic; choose another name",
            )

    def _delete_queues(self, topic: str) -> None:
        """On disk before anything else is done: if this fails, the topic is as it was."""
        try:
            self._store.delete_topic(topic)
        except OSError as error:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"topic {topic} is not deleted, its queues cannot be removed: {error}; repair the "
                "disk and delete it again",
            ) from error

    async def _announced(self, request: Command) -> Answer:
        await self._topics_durable()
        await self._register()
        return response(request, ResponseCode.SUCCESS)
