"""How far groups are: GET_CONSUME_STATS, GET_BROKER_CONSUME_STATS, QUERY_CONSUME_TIME_SPAN."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Protocol

from downrange.broker.consumer_table import ConsumerTable
from downrange.broker.group_table import GroupTable
from downrange.broker.offset_table import OffsetTable
from downrange.broker.topic_table import TopicTable
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.json_body import encode_body
from downrange.protocol.bodies.statistics import (
    BrokerConsumeStats,
    ConsumeStats,
    ConsumeTimeSpans,
    QueueProgress,
    QueueTimeSpan,
)
from downrange.protocol.command import Command, response
from downrange.protocol.headers.admin_group import (
    GetBrokerConsumeStatsRequest,
    GetConsumeStatsRequest,
    QueryConsumeTimeSpanRequest,
)
from downrange.protocol.headers.fields import decode_header
from downrange.protocol.json_text import write_json_steps
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused
from downrange.runtime.clock import Clock
from downrange.runtime.slices import Steps, in_slices
from downrange.store.lookup import Lookup
from downrange.store.queue_table import QueueTable

GROUPS_PER_SLICE = 10  # each looks at all queues of a topic


class GroupRates(Protocol):
    """What is asked about the speed of a group."""

    def group_get_tps(self, group: str, topic: str) -> float:
        """Messages by second that a group got of a topic in the last minute."""
        ...


class ProgressHandler:
    """Compares what groups have consumed with what queues hold; changes nothing."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        consumers: ConsumerTable,
        queues: QueueTable,
        lookup: Lookup,
        rates: GroupRates,
        clock: Clock,
        *,
        broker_name: str,
        broker_address: str,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._queues = queues
        self._lookup = lookup
        self._rates = rates
        self._clock = clock
        self._broker_name = broker_name
        self._broker_address = broker_address

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {
            RequestCode.GET_CONSUME_STATS: self.get_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.get_all_stats,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.get_time_spans,
        }

    def get_stats(self, request: Command, _: Connection) -> Answer:
        """How far a group is in the topics asked for, or in all of its topics."""
        header = decode_header(GetConsumeStatsRequest, request.ext_fields)
        group = header.consumer_group
        listed = [name.strip() for name in (header.topic_list or "").split(";") if name.strip()]
        if not listed:
            wanted = header.topic.strip() if header.topic else ""
            known = [wanted] if wanted else sorted(self._offsets.topics_of(group))
            listed = [topic for topic in known if not self._has_left(group, topic)]
        body = self._stats(group, dict.fromkeys(listed))
        return response(request, ResponseCode.SUCCESS, body=encode_body(body))

    async def get_all_stats(self, request: Command, _: Connection) -> Answer:
        """How far every group is in each of its topics."""
        header = decode_header(GetBrokerConsumeStatsRequest, request.ext_fields)
        stats = await in_slices(self._all_stats(is_order=bool(header.is_order)), GROUPS_PER_SLICE)
        body = await in_slices(write_json_steps(stats))
        return response(request, ResponseCode.SUCCESS, body=body)

    def _all_stats(self, *, is_order: bool) -> Steps[BrokerConsumeStats]:
        groups: list[dict[str, tuple[ConsumeStats, ...]]] = []
        lag = in_flight = 0
        # Asked of the whole table at once, because each group alone would search all of it.
        topics_of: dict[str, set[str]] = {}
        for topic, group in self._offsets.pairs():
            topics_of.setdefault(group, set()).add(topic)
        yield
        for group in self._groups.names():
            progress: list[ConsumeStats] = []
            for topic in sorted(topics_of.get(group, ())):
                if (
                    topic in self._topics
                    and (not is_order or self._topics.is_ordered(topic))
                    and not self._has_left(group, topic)
                ):
                    progress.append(self._stats(group, [topic]))
                    yield
            lag += sum(one.lag for one in progress)
            in_flight += sum(one.in_flight for one in progress)
            groups.append({group: tuple(progress)})
            yield
        return BrokerConsumeStats(
            broker_addr=self._broker_address,
            consume_stats_list=tuple(groups),
            total_diff=lag,
            total_inflight_diff=in_flight,
        )

    def get_time_spans(self, request: Command, _: Connection) -> Answer:
        """From when the oldest, the newest and the next message of each queue are."""
        header = decode_header(QueryConsumeTimeSpanRequest, request.ext_fields)
        config = self._topics.get(header.topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        spans = tuple(
            self._time_span(header.group, header.topic, queue_id)
            for queue_id in range(config.write_queue_nums)
        )
        body = ConsumeTimeSpans(consume_time_span_set=spans)
        return response(request, ResponseCode.SUCCESS, body=encode_body(body))

    def _stats(self, group: str, topics: Iterable[str]) -> ConsumeStats:
        table: dict[MessageQueue, QueueProgress] = {}
        tps = 0.0
        for topic in topics:
            config = self._topics.get(topic)
            if config is None:
                continue
            for queue_id in range(config.read_queue_nums):
                queue = MessageQueue(topic, self._broker_name, queue_id)
                table[queue] = self._progress(group, topic, queue_id)
            tps += self._rates.group_get_tps(group, topic)
        return ConsumeStats(consume_tps=tps, offset_table=table)

    def _progress(self, group: str, topic: str, queue_id: int) -> QueueProgress:
        queue = self._queues.get(topic, queue_id)
        consumed = max(self._offsets.query(group, topic, queue_id), 0)
        pulled = self._offsets.query_pull(group, topic, queue_id)
        stored_ms = self._lookup.store_timestamp(topic, queue_id, consumed - 1)
        return QueueProgress(
            broker_offset=queue.max_offset if queue is not None else 0,
            consumer_offset=consumed,
            pull_offset=max(consumed, pulled),
            last_timestamp=max(stored_ms, 0),
        )

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        queue = self._queues.get(topic, queue_id)
        end = queue.max_offset if queue is not None else 0
        stored_ms = self._lookup.store_timestamp
        oldest_ms = self._lookup.earliest_store_time(topic, queue_id)
        newest_ms = stored_ms(topic, queue_id, end - 1)
        consumed = self._offsets.query(group, topic, queue_id)
        consumed_ms = stored_ms(topic, queue_id, consumed - 1) if consumed > 0 else oldest_ms
        # RocketMQ also counts from 1970 where no message waits, or none that is known.
        first = max(consumed, queue.min_offset if queue is not None else 0)
        next_ms = stored_ms(topic, queue_id, first)
        return QueueTimeSpan(
            message_queue=MessageQueue(topic, self._broker_name, queue_id),
            min_time_stamp=oldest_ms,
            min_time_stamp_str=_text(oldest_ms),
            max_time_stamp=newest_ms,
            max_time_stamp_str=_text(newest_ms),
            consume_time_stamp=consumed_ms,
            consume_time_stamp_str=_text(consumed_ms),
            delay_time=self._clock.wall_ms() - next_ms if next_ms >= 0 else 0,
        )

    def _has_left(self, group: str, topic: str) -> bool:
        """Whether the group is online and does not subscribe the topic any more."""
        state = self._consumers.group(group)
        is_online = state is not None and bool(state.subscriptions)
        return is_online and self._consumers.subscription(group, topic) is None


def _text(timestamp: int) -> str:
    """A time as RocketMQ writes it for people, in the broker's time zone."""
    moment = datetime.fromtimestamp(timestamp // 1000, UTC).astimezone()
    return f"{moment:%Y-%m-%d#%H:%M:%S}:{timestamp % 1000:03d}"
