"""Half messages: put by a producer, invisible until its transaction ends.

A half message waits in RMQ_SYS_TRANS_HALF_TOPIC, with its real topic and queue as properties. When
its transaction ends, a committed one is put into its real topic, and its queue offset goes into the
log of ends, RMQ_SYS_TRANS_OP_HALF_TOPIC: a message with tag "d" whose body lists the offsets that
are done with, each followed by a comma. Whoever opens the store next finds both and can go on.
"""

import logging
from collections import deque

from downrange.broker.delay import CallLater, Timer
from downrange.broker.message_writer import MessageWriter
from downrange.broker.stats import BrokerStats
from downrange.model.names import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_CHECK_MAX_TOPIC
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.headers.send import SendRequest
from downrange.protocol.properties import find_property, remove_property, replace_property
from downrange.protocol.record import Record, decode_record
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.sys_flag import (
    BORN_HOST_V6,
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_NONE,
    with_transaction_type,
)
from downrange.remoting.connection import Connection
from downrange.remoting.errors import Refused
from downrange.runtime.clock import Clock
from downrange.store.appended import Appended
from downrange.store.appender import HOST_V4_BYTES
from downrange.store.message_store import MessageStore

_log = logging.getLogger(__name__)

HALF_QUEUE = 0
END_TAG = b"d"
END_PROPERTIES = b"WAIT\x01true\x02TAGS\x01d\x02"
END_INTERVAL_MS = 3_000  # transactionOpBatchInterval
END_BYTES_MAX = 4_096  # transactionOpMsgMaxSize
_HALF_NAME = HALF_TOPIC.encode()
_GIVEN_UP_NAME = TRANSACTION_CHECK_MAX_TOPIC.encode()


class HalfMessages:
    """Puts half messages, ends them, and keeps the log of ends. Lives on the store's event loop.

    An end is known here at once and in the log within `end_interval_ms`, so that many ends share
    a record; `flush_ends` writes what waits, and has to be called before the store is closed.
    """

    def __init__(
        self,
        store: MessageStore,
        writer: MessageWriter,
        stats: BrokerStats,
        clock: Clock,
        call_later: CallLater,
        *,
        end_interval_ms: int = END_INTERVAL_MS,
        end_bytes_max: int = END_BYTES_MAX,
    ) -> None:
        self._store = store
        self._writer = writer
        self._stats = stats
        self._clock = clock
        self._call_later = call_later
        self._end_interval_s = end_interval_ms / 1000
        self._end_bytes_max = end_bytes_max
        self._ends: dict[int, None] = {}  # not written yet, in their order
        self._ends_bytes = 0
        # Written and perhaps not visible yet: end of the record, the offsets in it.
        self._written: deque[tuple[int, list[int]]] = deque()
        self._timer: Timer | None = None

    # --- the life of a half message --------------------------------------------------------

    def put_half(
        self,
        header: SendRequest,
        queue_id: int,
        body: bytes,
        properties: bytes,
        connection: Connection,
    ) -> Appended:
        """Put what a producer has sent as the first half of a transaction."""
        text = properties
        # Clients take DELAY out of transactional messages, RocketMQ loses those that still have it.
        if b"DELAY\x01" in text:
            text = remove_property(text, b"DELAY")
        unique_key = find_property(text, b"UNIQ_KEY")
        if unique_key is not None:
            text = replace_property(text, b"__transactionId__", unique_key)
        text = replace_property(text, b"REAL_TOPIC", header.topic.encode())
        text = replace_property(text, b"REAL_QID", b"%d" % queue_id)
        sys_flag = with_transaction_type(header.sys_flag, TRANSACTION_NONE)
        if len(connection.host) > HOST_V4_BYTES:
            sys_flag |= BORN_HOST_V6
        return self._writer.put(
            HALF_TOPIC,
            HALF_QUEUE,
            body,
            text,
            sys_flag,
            header.flag,
            header.born_timestamp,
            connection.host,
            header.reconsume_times or 0,
        )

    def put_again(self, record: Record, properties: bytes) -> Appended:
        """Put a half message behind all others, with another property text."""
        return self._writer.put_undelayed(
            HALF_TOPIC,
            HALF_QUEUE,
            record.body,
            properties,
            record.sys_flag & ~STORE_HOST_V6,
            record.flag,
            record.born_timestamp,
            record.born_host,
            record.reconsume_times,
        )

    def find(self, physical_offset: int, *, is_given_up: bool = False) -> Record | None:
        """The half message that stands here, or the one that was given up."""
        view = self._store.lookup.record_at(physical_offset)
        if view is None:
            return None
        try:
            # Its checksum is looked at, because putting it again writes one that would fit damage.
            record = decode_record(view)
        except RemoteProtocolError as error:
            _log.error("physical offset %d: %s", physical_offset, error)
            return None
        return record if record.topic == (_GIVEN_UP_NAME if is_given_up else _HALF_NAME) else None

    def commit(self, record: Record) -> Appended:
        """Give the message to consumers and end it; `Refused` if it could not be put.

        The text loses where the message belongs and keeps TRAN_MSG, as in RocketMQ 5.5.
        """
        place = real_place(record)
        if place is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the half message at {record.physical_offset} does not say where it belongs",
            )
        topic, queue_id = place
        text = remove_property(remove_property(record.properties, b"REAL_TOPIC"), b"REAL_QID")
        appended = self._writer.put(
            topic,
            queue_id,
            record.body,
            text,
            with_transaction_type(record.sys_flag & ~STORE_HOST_V6, TRANSACTION_COMMIT),
            record.flag,
            record.born_timestamp,
            record.born_host,
            record.reconsume_times,
            record.physical_offset,
        )
        self._stats.add_put(topic, 1, appended.size)
        self.end(record.queue_offset)
        return appended

    # --- ends ------------------------------------------------------------------------------

    def end(self, queue_offset: int) -> None:
        """The transaction of this half message is over."""
        if queue_offset in self._ends:
            return
        self._ends[queue_offset] = None
        self._ends_bytes += len(_end_text(queue_offset))
        if self._ends_bytes >= self._end_bytes_max:
            self.flush_ends()
        else:
            self._wait()

    @property
    def waiting_ends(self) -> int:
        """How many ends are not in the log yet."""
        return len(self._ends)

    def has_ended(self, queue_offset: int) -> bool:
        """Whether a transaction is over that the log of ends may not show yet."""
        if queue_offset in self._ends:
            return True
        visible_offset = self._store.dispatched_offset
        while self._written and self._written[0][0] <= visible_offset:
            self._written.popleft()
        return any(queue_offset in offsets for _, offsets in self._written)

    def flush_ends(self) -> None:
        """Write the ends that wait; what the store refuses waits for the next time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._ends:
            body = bytearray()
            offsets = []
            for offset in self._ends:
                offsets.append(offset)
                body += _end_text(offset)
                if len(body) >= self._end_bytes_max:
                    break
            try:
                appended = self._put_ends(bytes(body))
            except Refused as error:
                _log.warning("%d ends of transactions wait: %s", len(self._ends), error.remark)
                self._wait()
                return
            self._written.append((appended.end_offset, offsets))
            for offset in offsets:
                del self._ends[offset]
            self._ends_bytes -= len(body)
        # Nobody asks while there are no checks, so what is visible is forgotten here too.
        self.has_ended(-1)

    def _put_ends(self, body: bytes) -> Appended:
        host = self._store.settings.store_host
        return self._writer.put_undelayed(
            OP_HALF_TOPIC,
            HALF_QUEUE,
            body,
            END_PROPERTIES,
            BORN_HOST_V6 if len(host) > HOST_V4_BYTES else 0,
            0,
            self._clock.wall_ms(),
            host,
            0,
        )

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self._call_later(self._end_interval_s, self.flush_ends)


def real_place(record: Record) -> tuple[str, int] | None:
    """Topic and queue to which a half message belongs; None if it does not say."""
    topic = find_property(record.properties, b"REAL_TOPIC")
    queue_id = whole_number(find_property(record.properties, b"REAL_QID"))
    if topic is None or queue_id is None:
        return None
    return topic.decode("utf-8", "replace"), queue_id


def whole_number(text: bytes | None) -> int | None:
    """A number from a property that should be one and is not negative."""
    return int(text) if text is not None and text.isdigit() else None


def _end_text(queue_offset: int) -> bytes:
    return b"%d," % queue_offset
