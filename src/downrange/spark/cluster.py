"""What a driver or a task asks of the cluster: topics, queues, offsets. Blocking, with retries.

A driver asks about all queues of a broker at once, over one connection, so that 64 queues take one
round trip and not 64. What cannot be reached is tried again as often as `Connecting` says.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Self, TypeVar

from downrange.client.answers import checked_route
from downrange.client.errors import (
    BrokerRefusal,
    NoNameServerError,
    NoRouteCause,
    NoRouteError,
    RocketMQError,
    UnknownBrokerError,
)
from downrange.client.routes import static_queues, subscribe_queues
from downrange.model.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from downrange.model.topics import MASTER_ID, MessageQueue
from downrange.protocol.bodies.json_body import decode_body
from downrange.protocol.bodies.route import TopicRoute
from downrange.protocol.bodies.topics import TopicList
from downrange.protocol.command import Command
from downrange.protocol.headers import offset
from downrange.protocol.headers.fields import decode_header, encode_header
from downrange.protocol.headers.topic import GetRouteRequest
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.route_limits import RouteLimits
from downrange.spark.connecting import Connecting
from downrange.spark.link import Link, Request

_log = logging.getLogger(__name__)

_BUSY: Final = frozenset({ResponseCode.SYSTEM_BUSY})
T = TypeVar("T")


class Cluster:
    """Belongs to one thread. Close it, or use it in `with`."""

    def __init__(
        self, connecting: Connecting, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._connecting = connecting
        self._sleep = sleep
        self._links: dict[str, Link] = {}
        self._routes: dict[str, TopicRoute] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    # --- topics and queues -----------------------------------------------------------------

    def topics(self) -> list[str]:
        """The topics of users, sorted; those of RocketMQ itself are left out."""
        answer = self._ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        found = decode_body(TopicList, _success(answer, "name server").body)
        return sorted(name for name in found.topic_list if not is_system_topic(name))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that may be read, sorted; `NoRouteError` if nobody has it."""
        return subscribe_queues(topic, self.refresh(topic))

    def refresh(self, topic: str) -> TopicRoute:
        """Ask for the route of a topic; what was known of it is forgotten."""
        self._routes.pop(topic, None)
        header = GetRouteRequest(topic=topic, accept_standard_json_only=True)
        answer = self._ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, encode_header(header))
        if answer.code == ResponseCode.TOPIC_NOT_EXIST or (answer.code == 0 and not answer.body):
            raise NoRouteError(
                topic, NoRouteCause.TOPIC_UNKNOWN, "create it, or look for a mistake in its name"
            )
        route = checked_route(topic, _success(answer, "name server").body, RouteLimits())
        self._routes[topic] = route
        return route

    def has_broker(self, topic: str, broker_name: str) -> bool:
        """Whether the route that is known has this broker."""
        route = self._routes.get(topic)
        return route is not None and any(
            data.broker_name == broker_name for data in route.broker_datas
        )

    def address(self, queue: MessageQueue) -> str:
        """Where a queue is read: at its master, or at a replica if there is no master."""
        route = self._routes.get(queue.topic) or self.refresh(queue.topic)
        broker = queue.broker_name
        if route.topic_queue_mapping_by_broker:
            broker = static_queues(queue.topic, route).get(queue, broker)
        for data in route.broker_datas:
            if data.broker_name == broker and data.broker_addrs:
                by_id = data.broker_addrs
                return by_id[MASTER_ID] if MASTER_ID in by_id else by_id[min(by_id)]
        raise UnknownBrokerError(
            f"no broker {broker!r} for topic {queue.topic!r} is known to the name servers; it may "
            f"be down"
        )

    # --- offsets ---------------------------------------------------------------------------

    def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The first offset of each queue that is still kept."""
        return self._offsets(RequestCode.GET_MIN_OFFSET, {
            queue: offset.GetMinOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
            for queue in queues
        })  # fmt: skip

    def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The offset that the next message of each queue will get."""
        return self._offsets(RequestCode.GET_MAX_OFFSET, {
            queue: offset.GetMaxOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
            for queue in queues
        })  # fmt: skip

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """The first offset of each queue that was stored at its time or later."""
        return self._offsets(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {
            queue: offset.SearchOffsetRequest(
                topic=queue.topic, queue_id=queue.queue_id, timestamp=time_ms
            )
            for queue, time_ms in times_ms.items()
        })  # fmt: skip

    def group_offsets(
        self, group: str, queues: Iterable[MessageQueue]
    ) -> dict[MessageQueue, int | None]:
        """How far a group has come in each queue; None where its broker does not know it."""
        found: dict[MessageQueue, int | None] = {}
        requests = {
            queue: encode_header(
                offset.QueryConsumerOffsetRequest(
                    consumer_group=group, topic=queue.topic, queue_id=queue.queue_id
                )
            )
            for queue in queues
        }
        for queue, answer in self._ask_brokers(RequestCode.QUERY_CONSUMER_OFFSET, requests):
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                found[queue] = None
            else:
                found[queue] = _offset(answer, queue.broker_name)
        return found

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Say how far a group has come."""
        requests = {
            queue: encode_header(
                offset.UpdateConsumerOffsetRequest(
                    consumer_group=group,
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    commit_offset=commit_offset,
                )
            )
            for queue, commit_offset in offsets.items()
        }
        for queue, answer in self._ask_brokers(RequestCode.UPDATE_CONSUMER_OFFSET, requests):
            _success(answer, queue.broker_name)

    def _offsets(
        self,
        code: int,
        headers: Mapping[
            MessageQueue,
            offset.GetMinOffsetRequest | offset.GetMaxOffsetRequest | offset.SearchOffsetRequest,
        ],
    ) -> dict[MessageQueue, int]:
        requests = {queue: encode_header(header) for queue, header in headers.items()}
        return {
            queue: _offset(answer, queue.broker_name)
            for queue, answer in self._ask_brokers(code, requests)
        }

    # --- asking ----------------------------------------------------------------------------

    def link(self, address: str) -> Link:
        """The connection to a peer."""
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = self._connecting.link(address)
        return link

    def drop(self, address: str) -> None:
        """Forget a connection that failed."""
        link = self._links.pop(address, None)
        if link is not None:
            link.close()

    def tried(self, work: Callable[[], T], what: str) -> T:
        """The result of some work, tried again while it fails with what may pass."""
        retries = self._connecting.retries
        for attempt in range(retries + 1):
            try:
                return work()
            except RocketMQError as error:
                is_busy = isinstance(error, BrokerRefusal) and error.code in _BUSY
                if not (error.retriable or is_busy) or attempt == retries:
                    raise
                _log.info("%s: %s; try %d of %d follows", what, error, attempt + 2, retries + 1)
                self._sleep(self._connecting.retry_interval_s)
        raise AssertionError("the last try returns or raises")

    def _ask_brokers(
        self, code: int, requests: Mapping[MessageQueue, dict[str, str]]
    ) -> list[tuple[MessageQueue, Command]]:
        def ask() -> list[tuple[MessageQueue, Command]]:
            by_address: dict[str, list[MessageQueue]] = {}
            for queue in requests:
                try:
                    by_address.setdefault(self.address(queue), []).append(queue)
                except UnknownBrokerError:
                    self._routes.pop(queue.topic, None)
                    raise
            answers: list[tuple[MessageQueue, Command]] = []
            for address, queues in by_address.items():
                there = [(code, requests[queue]) for queue in queues]
                try:
                    answers += zip(queues, self._ask(address, there), strict=True)
                except RocketMQError:
                    for queue in queues:
                        self._routes.pop(queue.topic, None)
                    raise
            return answers

        return self.tried(ask, "asking brokers")

    def _ask(self, address: str, requests: Sequence[Request]) -> list[Command]:
        try:
            return self.link(address).ask_all(requests)
        except RocketMQError:
            # The peer may have closed a connection that was long idle: that is no failure yet.
            self.drop(address)
            return self.link(address).ask_all(requests)

    def _ask_name_server(self, code: int, fields: dict[str, str]) -> Command:
        def ask() -> Command:
            failures = []
            for address in self._connecting.name_servers:
                try:
                    return self._ask(address, [(code, fields)])[0]
                except RocketMQError as error:
                    self.drop(address)
                    failures.append(str(error))
            raise NoNameServerError(
                f"none of {len(failures)} name servers answers ({'; '.join(failures)}); are the "
                f"addresses in option 'nameServers' right and does a name server run there?"
            )

        return self.tried(ask, "asking name servers")


def is_retry_or_dead_letter(topic: str) -> bool:
    """Whether a topic belongs to a group: what is to be delivered again, or never."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def _success(answer: Command, peer: str) -> Command:
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerRefusal(answer.code, answer.remark or "", peer)
    return answer


def _offset(answer: Command, peer: str) -> int:
    header = decode_header(offset.OffsetResponse, _success(answer, peer).ext_fields)
    return header.offset
