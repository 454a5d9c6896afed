"""How far topics and groups are, and how fast: bodies that admin clients ask a broker for."""

import msgspec

from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.json_body import Body
from downrange.protocol.integers import Int32, Int64


class QueueRange(Body, frozen=True, kw_only=True):
    """What one queue holds; Java's TopicOffset. The time is that of the newest message, else 0."""

    min_offset: Int64 = 0
    max_offset: Int64 = 0
    last_update_timestamp: Int64 = 0


class TopicStats(Body, frozen=True, kw_only=True):
    """Answer to GET_TOPIC_STATS_INFO."""

    offset_table: dict[MessageQueue, QueueRange] = msgspec.field(default_factory=dict)
    topic_put_tps: float = 0.0


class QueueProgress(Body, frozen=True, kw_only=True):
    """How far a group is in one queue; Java's OffsetWrapper.

    `last_timestamp` is when the last consumed message was stored, 0 if that is not known.
    """

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    pull_offset: Int64 = 0
    last_timestamp: Int64 = 0


class ConsumeStats(Body, frozen=True, kw_only=True):
    """Answer to GET_CONSUME_STATS."""

    consume_tps: float = 0.0
    offset_table: dict[MessageQueue, QueueProgress] = msgspec.field(default_factory=dict)

    @property
    def lag(self) -> int:
        """Messages that wait to be consumed."""
        return sum(q.broker_offset - q.consumer_offset for q in self.offset_table.values())

    @property
    def in_flight(self) -> int:
        """Messages that were pulled and are not consumed yet."""
        return sum(q.pull_offset - q.consumer_offset for q in self.offset_table.values())


class BrokerConsumeStats(Body, frozen=True, kw_only=True):
    """Answer to GET_BROKER_CONSUME_STATS: a list of maps with one group each, as Java has it."""

    broker_addr: str | None = None
    consume_stats_list: tuple[dict[str, tuple[ConsumeStats, ...]], ...] = ()
    total_diff: Int64 = 0
    total_inflight_diff: Int64 = 0


class QueueTimeSpan(Body, frozen=True, kw_only=True):
    """From when the messages of one queue are; a time that is not known is -1.

    Java also writes each time as text, for people, and does not read it back.
    """

    message_queue: MessageQueue
    min_time_stamp: Int64 = -1
    min_time_stamp_str: str | None = None
    max_time_stamp: Int64 = -1
    max_time_stamp_str: str | None = None
    consume_time_stamp: Int64 = -1
    consume_time_stamp_str: str | None = None
    delay_time: Int64 = 0


class ConsumeTimeSpans(Body, frozen=True, kw_only=True):
    """Answer to QUERY_CONSUME_TIME_SPAN."""

    consume_time_span_set: tuple[QueueTimeSpan, ...] = ()


class CorrectionOffsets(Body, frozen=True, kw_only=True):
    """Answer to QUERY_CORRECTION_OFFSET, by queue id."""

    correction_offsets: dict[Int32, Int64] = msgspec.field(default_factory=dict)


class StatsWindow(Body, frozen=True, kw_only=True):
    """A counter over some time: sum, by second, and by call; Java's BrokerStatsItem."""

    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body, frozen=True, kw_only=True):
    """Answer to VIEW_BROKER_STATS_DATA."""

    stats_minute: StatsWindow = StatsWindow()
    stats_hour: StatsWindow = StatsWindow()
    stats_day: StatsWindow = StatsWindow()
