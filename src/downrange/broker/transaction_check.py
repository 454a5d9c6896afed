"""Asks producers about half messages whose transaction has not ended.

A round walks through the half messages behind those of the last round. One that has ended is
passed; one that is old enough is put again, behind all others and with one more check counted, and
its producer is asked; one that was asked for too often or is too old is given up. One whose
producer is not connected is held: it stays where it is, uncounted, and later rounds begin with it.
How far rounds have come stands in the offset table under the group CID_RMQ_SYS_TRANS, for half
messages and ends.
"""

import logging
from dataclasses import dataclass
from typing import Protocol

from downrange.broker.check_round import CheckRound
from downrange.broker.delay import CallLater, Timer
from downrange.broker.half_copies import IDENTITIES, HalfCopies
from downrange.broker.half_messages import HALF_QUEUE, HalfMessages, real_place, whole_number
from downrange.broker.message_writer import MessageWriter
from downrange.broker.transaction_ends import EndedHalves
from downrange.model.names import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    TRANSACTION_CHECK_MAX_TOPIC,
    TRANSACTION_GROUP,
)
from downrange.model.topics import TopicConfig
from downrange.protocol.errors import LocalProtocolError, RemoteProtocolError
from downrange.protocol.headers.broker_to_client import CheckTransactionStateRequest
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.message_id import encode_message_id
from downrange.protocol.properties import find_property, replace_property
from downrange.protocol.record import Record, decode_record, encode_record
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.sys_flag import STORE_HOST_V6
from downrange.remoting.errors import Refused
from downrange.runtime.clock import Clock
from downrange.store.appended import Appended
from downrange.store.message_store import MessageStore

_log = logging.getLogger(__name__)

STEP_MAX = 100  # half messages in one turn of the event loop
HOUR_MS = 3_600_000


class Progress(Protocol):
    """What checking needs of the offset table."""

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The next offset to look at; negative if none is known."""
        ...

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Take note how far the group has come."""
        ...


class Producer(Protocol):
    """What checking needs of a connection."""

    def send_one_way(
        self, code: int, ext_fields: dict[str, str] | None = None, body: bytes | None = None
    ) -> None:
        """Send a request that has no response."""
        ...


class Producers(Protocol):
    """What checking needs of the producer table."""

    def pick(self, group: str) -> Producer | None:
        """A client of the group that can be asked now."""
        ...


class Topics(Protocol):
    """What checking needs of the topic table."""

    def create_for_send_back(
        self, topic: str, queue_nums: int, sys_flag: int
    ) -> TopicConfig | None:
        """Create the topic of those given up, if it is not there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """When a half message is asked for; the comment is the name in broker.conf."""

    broker_name: str
    timeout_ms: int = 6_000  # transactionTimeOut
    times_max: int = 15  # transactionCheckMax
    age_max_ms: int = 72 * HOUR_MS  # fileReservedTime


class TransactionCheck:
    """The rounds of one broker, each in steps, so that other work gets its turn between them.

    Lives on the store's event loop. Progress is committed when all is durable that a round relies
    on, copies and ends: a crash may repeat a question, and loses no half message. What it would
    multiply, `HalfCopies` finds.
    """

    def __init__(
        self,
        store: MessageStore,
        half_messages: HalfMessages,
        writer: MessageWriter,
        progress: Progress,
        producers: Producers,
        topics: Topics,
        clock: Clock,
        call_later: CallLater,
        settings: CheckSettings,
    ) -> None:
        self._store = store
        self._half_messages = half_messages
        self._writer = writer
        self._progress = progress
        self._producers = producers
        self._topics = topics
        self._clock = clock
        self._call_later = call_later
        self.settings = settings
        self._round: CheckRound | None = None
        self._timer: Timer | None = None
        self._unsettled: tuple[int, int] | None = None  # half offset and end offset to commit
        self._log_offset = 0  # what must be durable before
        # Half messages whose producers wanted peace, by their first offset, which is the one that
        # an end names; and those of them whose end was read in a round that did not reach the copy.
        self._postponed: set[int] = set()
        self._ended_early: set[int] = set()
        self._copies: HalfCopies | None = None
        self._renews_held = False

    def check(self) -> None:
        """Begin a round, unless one is under way; called every transactionCheckInterval."""
        self.settle()
        queue = self._store.queues.get(HALF_TOPIC, HALF_QUEUE)
        if self._round is None and queue is not None:
            half_offset, end_offset = self._unsettled or (
                self._committed(HALF_TOPIC),
                self._committed(OP_HALF_TOPIC),
            )
            if self._copies is None:
                self._copies = HalfCopies(self._store.read, half_offset, queue.max_offset)
            ends = EndedHalves(self._store.read, end_offset, half_offset)
            self._round = CheckRound(half_offset, queue.max_offset, ends, self._renews_held)
            self._go_on()

    def settle(self) -> None:
        """Commit the progress of ended rounds, if what they rely on is durable.

        Called before the offsets are saved, and a last time when the store was flushed for a stop.
        """
        if self._unsettled is not None and self._log_offset <= self._store.durable_offset:
            half_offset, end_offset = self._unsettled
            self._unsettled = None
            for topic, offset in ((HALF_TOPIC, half_offset), (OP_HALF_TOPIC, end_offset)):
                if offset != self._progress.query(TRANSACTION_GROUP, topic, HALF_QUEUE):
                    self._progress.commit(TRANSACTION_GROUP, topic, HALF_QUEUE, offset)

    def stop(self) -> None:
        """End a round that is under way; `settle` commits how far it came."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._round is not None:
            self._finish(self._round)

    # --- a round ---------------------------------------------------------------------------

    def _go_on(self) -> None:
        self._timer = None
        current = self._round
        copies = self._copies
        assert current is not None
        assert copies is not None
        for _ in range(STEP_MAX):
            try:
                if not copies.is_read:
                    copies.read_some()
                elif not self._step(current, copies):
                    self._finish(current)
                    return
            except Refused as error:
                _log.warning("the check of transactions waits: %s", error.remark)
                self._finish(current)
                return
        self._timer = self._call_later(0, self._go_on)

    def _finish(self, current: CheckRound) -> None:
        self._round = None
        self._ended_early |= current.ends.early & self._postponed
        self._unsettled = current.progress
        self._renews_held = current.should_renew
        if current.is_clear and self._copies is not None and self._copies.is_read:
            self._copies.clear()
        self._log_offset = self._store.log.max_offset
        self.settle()
        current.report()

    def _step(self, current: CheckRound, copies: HalfCopies) -> bool:
        """Deal with the next half message; False if the round is over."""
        offset = current.half_offset
        if current.ends.take(offset) or self._half_messages.has_ended(offset):
            current.pass_by()
            return True
        if offset >= current.stop_offset:
            return False
        result = self._store.read(HALF_TOPIC, HALF_QUEUE, offset, 1)
        if not result.views:
            # Beyond the last one, or where retention or damage has left nothing.
            is_gap = offset < result.next_offset
            current.half_offset = result.next_offset
            return is_gap
        try:
            record = decode_record(result.views[0])
        except RemoteProtocolError as error:
            _log.error("half message %d passed over: %s", offset, error)
            current.pass_by()
            return True
        if copies.has_newer(record):
            current.pass_by()
            return True
        if not self._decide(current, record, copies):
            return False
        current.half_offset += 1
        return True

    def _decide(self, current: CheckRound, record: Record, copies: HalfCopies) -> bool:
        """What to do with an open half message; False if it and those behind it are too young."""
        settings = self.settings
        text = record.properties
        times = whole_number(find_property(text, b"TRANSACTION_CHECK_TIMES")) or 0
        age_ms = self._clock.wall_ms() - record.born_timestamp
        if times >= settings.times_max or age_ms > settings.age_max_ms:
            self._give_up(record)
            return True
        first_offset = whole_number(find_property(text, b"TRAN_PREPARED_QUEUE_OFFSET"))
        if first_offset is not None and self._ended_before(current, first_offset):
            self._forget(first_offset)
            return True
        # A half message from the future has a birth by another clock, or ours was set back. When
        # it becomes old enough is unknown, so it is checked now: that is only early.
        is_dated = age_ms >= -settings.timeout_ms
        immunity = find_property(text, b"CHECK_IMMUNITY_TIME_IN_SECONDS")
        if immunity is not None:
            seconds = whole_number(immunity)
            patience_ms = settings.timeout_ms if seconds is None else seconds * 1000
            if is_dated and age_ms <= patience_ms:
                self._postpone(record, first_offset, copies)
                return True
        elif is_dated and age_ms <= settings.timeout_ms:
            return False
        if self._ask(current, record, times + 1, copies) and first_offset is not None:
            self._forget(first_offset)
        return True

    def _ended_before(self, current: CheckRound, first_offset: int) -> bool:
        return (
            first_offset in self._ended_early
            or self._half_messages.has_ended(first_offset)
            or current.ends.knows(first_offset)
        )

    def _forget(self, first_offset: int) -> None:
        self._postponed.discard(first_offset)
        self._ended_early.discard(first_offset)

    # --- what is done with a half message --------------------------------------------------

    def _postpone(self, record: Record, first_offset: int | None, copies: HalfCopies) -> None:
        """Put it behind all others, unasked: its producer wants peace for some time."""
        text = record.properties
        if first_offset is None:
            first_offset = record.queue_offset
            try:
                text = replace_property(text, b"TRAN_PREPARED_QUEUE_OFFSET", b"%d" % first_offset)
            except LocalProtocolError:
                self._give_up(record)
                return
        appended = self._half_messages.put_again(record, text)
        copies.add(record._replace(properties=text), appended.queue_offset)
        self._postponed.add(first_offset)

    def _ask(self, current: CheckRound, record: Record, times: int, copies: HalfCopies) -> bool:
        """Put it behind all others and ask a producer about the copy; False if it is held."""
        place = real_place(record)
        text = record.properties
        group = (find_property(text, b"PGROUP") or b"").decode("utf-8", "replace")
        producer = self._producers.pick(group)
        if producer is None:
            if current.hold(group):
                return False
            times -= 1
        try:
            text = replace_property(text, b"TRANSACTION_CHECK_TIMES", b"%d" % times)
            if not any(find_property(text, name) for name in IDENTITIES):
                first = b"%d" % record.queue_offset
                text = replace_property(text, b"TRAN_PREPARED_QUEUE_OFFSET", first)
        except LocalProtocolError:
            place = None
        if place is None:
            self._give_up(record)
            return True
        appended = self._half_messages.put_again(record, text)
        copies.add(record._replace(properties=text), appended.queue_offset)
        if producer is None:
            return True
        current.asked_count += 1
        try:
            self._send_check(producer, record, text, place, appended)
        except LocalProtocolError as error:
            _log.error("producer group %s cannot be asked: %s", group, error)
        return True

    def _send_check(
        self,
        producer: Producer,
        record: Record,
        text: bytes,
        place: tuple[str, int],
        appended: Appended,
    ) -> None:
        key = find_property(text, b"UNIQ_KEY")
        unique_key = None if key is None else key.decode("utf-8", "replace")
        header = CheckTransactionStateRequest(
            topic=HALF_TOPIC,
            tran_state_table_offset=appended.queue_offset,
            commit_log_offset=appended.physical_offset,
            msg_id=unique_key,
            transaction_id=unique_key,
            offset_msg_id=encode_message_id(
                self._store.settings.store_host, appended.physical_offset
            ),
            broker_name=self.settings.broker_name,
        )
        topic, queue_id = place
        question = record._replace(
            topic=topic.encode(),
            queue_id=queue_id,
            queue_offset=appended.queue_offset,
            physical_offset=appended.physical_offset,
            # A producer sees WAIT=false, which the stored copy does not say: so in RocketMQ.
            properties=replace_property(text, b"WAIT", b"false"),
        )
        producer.send_one_way(
            RequestCode.CHECK_TRANSACTION_STATE, encode_header(header), encode_record(question)
        )

    def _give_up(self, record: Record) -> None:
        """Put it where an administrator finds it, see RESUME_CHECK_HALF_MESSAGE."""
        self._topics.create_for_send_back(TRANSACTION_CHECK_MAX_TOPIC, 1, 0)
        appended = self._writer.put_undelayed(
            TRANSACTION_CHECK_MAX_TOPIC,
            0,
            record.body,
            record.properties,
            record.sys_flag & ~STORE_HOST_V6,
            record.flag,
            record.born_timestamp,
            record.born_host,
            record.reconsume_times,
        )
        # An end of its own: after a crash nobody gives it up again.
        self._half_messages.end(record.queue_offset)
        _log.error(
            "half message given up: queue offset=%d, now at physical offset=%d of %s",
            record.queue_offset,
            appended.physical_offset,
            TRANSACTION_CHECK_MAX_TOPIC,
        )

    def _committed(self, topic: str) -> int:
        offset = self._progress.query(TRANSACTION_GROUP, topic, HALF_QUEUE)
        if offset < 0:
            queue = self._store.queues.get(topic, HALF_QUEUE)
            offset = 0 if queue is None else queue.min_offset
        return offset
