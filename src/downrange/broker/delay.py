"""Delivers messages whose delay is over.

A message with a delay level waits in SCHEDULE_TOPIC_XXXX, in the queue of its level. Its queue
entry has the time of delivery where others have their tag code, and within a queue these times only
grow: so one cursor a level is enough, and delayOffset.json is where the cursors survive a stop.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from downrange.broker.delay_table import DelayTable
from downrange.broker.message_writer import MessageWriter
from downrange.broker.stats import BrokerStats
from downrange.model.names import HALF_TOPIC, SCHEDULE_TOPIC
from downrange.protocol.delay_levels import DelayLevels, queue_of_level
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.properties import find_property
from downrange.protocol.record import Record, decode_record
from downrange.protocol.sys_flag import STORE_HOST_V6
from downrange.remoting.errors import Refused
from downrange.runtime.clock import Clock
from downrange.store.consume_queue import HOLE_TAG, ConsumeQueue
from downrange.store.message_store import MessageStore

_log = logging.getLogger(__name__)

LEVEL_BATCH_MAX = 32  # deliveries of a level in one turn of the event loop
RETRY_MS = 100  # after a message could not be put
STEP_BACK_MS_MAX = 60_000  # a wall clock set back by this much delays messages, not more
LOOK_MS_MAX = 1_000  # the wall clock may be set while a timer runs, so no timer runs longer


class Timer(Protocol):
    """What `call_later` gives back."""

    def cancel(self) -> None:
        """Never mind."""
        ...


CallLater = Callable[[float, Callable[[], None]], Timer]


class DelayedDelivery:
    """One cursor a level, and one timer for all. Lives on the event loop that owns the store.

    `on_arrival` is a listener of the store. A message counts as delivered when it was appended to
    its real topic; a cursor reaches the table only as far as what was delivered is durable, so a
    crash can repeat deliveries and never lose one.
    """

    def __init__(
        self,
        store: MessageStore,
        writer: MessageWriter,
        levels: DelayLevels,
        table: DelayTable,
        stats: BrokerStats,
        clock: Clock,
        call_later: CallLater,
    ) -> None:
        self._store = store
        self._writer = writer
        self._levels = levels
        self._table = table
        self._stats = stats
        self._clock = clock
        self._call_later = call_later
        self._cursors: dict[int, int] = {}
        # What was delivered and may not be durable yet: end of the record, level, cursor behind.
        self._unsettled: deque[tuple[int, int, int]] = deque()
        self._end_offset = 0
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._is_running = False
        self._is_failing = False

    def start(self) -> None:
        """Go on where the table says; the store is open and its queues are complete."""
        self._cursors = dict(self._table.offsets)
        self._is_running = True
        self._wake_at(self._clock.wall_ms())

    def stop(self) -> None:
        """Deliver no more."""
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def settle(self) -> None:
        """Note the cursors in the table, as far as their deliveries are durable."""
        durable_offset = self._store.durable_offset
        while self._unsettled and self._unsettled[0][0] <= durable_offset:
            _, level, cursor = self._unsettled.popleft()
            self._table.set(level, cursor)

    def on_arrival(
        self,
        topic: str,
        _queue_id: int,
        _queue_offset: int,
        deliver_ms: int,
        _stored_ms: int,
        _properties: bytes,
    ) -> None:
        """A message became visible: wake earlier if it is to be delivered earlier."""
        if topic != SCHEDULE_TOPIC or not self._is_running:
            return
        if self._timer is None or deliver_ms < self._timer_ms:
            self._wake_at(deliver_ms)

    def run_due(self) -> None:
        """Deliver what is due, some of each level, and wake again for the next."""
        self._timer = None
        if not self._is_running:
            return
        now_ms = self._clock.wall_ms()
        wakes = []
        for level in range(1, self._levels.level_max + 1):
            queue = self._store.queues.get(SCHEDULE_TOPIC, queue_of_level(level))
            if queue is not None and queue.max_offset > 0:
                wake_ms = self._run_level(level, queue, now_ms)
                if wake_ms is not None:
                    wakes.append(wake_ms)
        self.settle()
        if wakes:
            self._wake_at(min(wakes))

    def _run_level(self, level: int, queue: ConsumeQueue, now_ms: int) -> int | None:
        """Deliver up to a batch; returns when to look again, None if nothing waits."""
        start = cursor = self._placed(level, queue)
        wake_ms = None
        while cursor < queue.max_offset:
            due_ms = self._due_ms(level, queue, cursor, now_ms)
            if due_ms > now_ms or cursor - start >= LEVEL_BATCH_MAX:
                wake_ms = due_ms
                break
            if not self._deliver(queue.queue_id, cursor):
                wake_ms = now_ms + RETRY_MS
                break
            cursor += 1
        if self._cursors.get(level) != cursor:
            self._cursors[level] = cursor
            self._unsettled.append((self._end_offset, level, cursor))
        return wake_ms

    def _placed(self, level: int, queue: ConsumeQueue) -> int:
        """The cursor, moved to where the queue has messages."""
        cursor = self._cursors.get(level, 0)
        placed = min(max(cursor, queue.min_offset), queue.max_offset)
        if placed != cursor:
            _log.error(
                "delay level %d goes on at %d, not %d: its queue has %d to %d",
                level,
                placed,
                cursor,
                queue.min_offset,
                queue.max_offset,
            )
        return placed

    def _due_ms(self, level: int, queue: ConsumeQueue, queue_offset: int, now_ms: int) -> int:
        """When an entry is to be delivered.

        A time further away than the level's delay comes from another table of levels or another
        clock; RocketMQ (correctDeliverTimestamp) delivers such a message at once, and so do we. But
        where RocketMQ takes a clock that NTP has set back by 10 ms for such a case, and delivers
        hours early, we wait until the clock has caught up.
        """
        deliver_ms = queue.entry(queue_offset)[2]
        if deliver_ms == HOLE_TAG:
            return now_ms
        if deliver_ms > now_ms + self._levels.delay_ms(level) + STEP_BACK_MS_MAX:
            return now_ms
        return deliver_ms

    def _deliver(self, queue_id: int, queue_offset: int) -> bool:
        """Put the real message; False if it has to be tried again. What is no message is passed."""
        record = self._read(queue_id, queue_offset)
        if record is None:
            return True
        topic = (find_property(record.properties, b"REAL_TOPIC") or b"").decode("utf-8", "replace")
        real_queue = find_property(record.properties, b"REAL_QID")
        if not topic or real_queue is None or not real_queue.isdigit():
            _log.error(
                "queue %d offset %d: the message does not say where to", queue_id, queue_offset
            )
            return True
        if topic == HALF_TOPIC:
            # A half message is no business of consumers before its transaction ends.
            _log.error("queue %d offset %d: dropped, half message", queue_id, queue_offset)
            return True
        try:
            appended = self._writer.put_undelayed(
                topic,
                int(real_queue),
                record.body,
                record.properties,
                record.sys_flag & ~STORE_HOST_V6,  # the store sets it by its own host
                record.flag,
                record.born_timestamp,
                record.born_host,
                record.reconsume_times,
            )
        except Refused as error:
            if not self._is_failing:
                _log.warning("delayed messages wait: topic=%s reason=%s", topic, error.remark)
            self._is_failing = True
            return False
        self._is_failing = False
        self._end_offset = appended.end_offset
        self._stats.add_put(topic, 1, appended.size)
        return True

    def _read(self, queue_id: int, queue_offset: int) -> Record | None:
        """The message that waits; None if there is none to be had any more."""
        result = self._store.read(SCHEDULE_TOPIC, queue_id, queue_offset, 1)
        if not result.views:
            _log.error("queue %d offset %d: %s", queue_id, queue_offset, result.status.value)
            return None
        try:
            # Its checksum is looked at, because delivery writes a new one that would fit damage.
            return decode_record(result.views[0])
        except RemoteProtocolError as error:
            _log.error("queue %d offset %d: %s", queue_id, queue_offset, error)
            return None

    def _wake_at(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wait_ms = min(max(at_ms - self._clock.wall_ms(), 0), LOOK_MS_MAX)
        self._timer_ms = at_ms
        self._timer = self._call_later(wait_ms / 1000, self.run_due)
