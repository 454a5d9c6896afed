"""Puts messages into the store the way all parts of the broker do: delayed ones take their detour.

Send, send-back, delivery of delayed messages and transactions all come through here.
"""

import asyncio
from collections.abc import Callable

from downrange.broker.store_keeper import StoreKeeper
from downrange.model.names import SCHEDULE_TOPIC
from downrange.protocol.delay_levels import DelayLevels, queue_of_level
from downrange.protocol.properties import find_property, remove_property, replace_property
from downrange.protocol.response_codes import ResponseCode
from downrange.protocol.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK
from downrange.remoting.errors import Refused
from downrange.store.appended import Appended, AppendedBatch
from downrange.store.appender import NO_HOST
from downrange.store.errors import AppendRefusedError, PutStatus
from downrange.store.message_store import MessageStore

_TIMER_NAMES = (b"TIMER_DELIVER_MS", b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS")
CODES = {
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.SHUT_DOWN: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.SLAVE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.NOT_WRITABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.DISK_FULL: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.DISPATCH_STALLED: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.TOPIC_TOO_LONG: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.BODY_TOO_LARGE: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.BATCH_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_TOO_LONG: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
    PutStatus.SEGMENT_FAILED: ResponseCode.SYSTEM_ERROR,
}


class MessageWriter:
    """Appends to one store and has it dispatched; raises `Refused` for what is not taken."""

    def __init__(
        self,
        store: MessageStore,
        keeper: StoreKeeper,
        delay_levels: DelayLevels,
        note_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._append = store.append
        self._append_batch = store.append_batch
        self._note_append = keeper.note_append
        self._delay_levels = delay_levels
        self._note_failure = note_failure
        self.wait_durable = keeper.wait_durable
        self.is_sync = keeper.is_sync

    @property
    def body_bytes_max(self) -> int:
        """The largest body of a message, or of all messages of a batch together."""
        return self._store.settings.message_bytes_max

    async def durable(self, end_offset: int) -> PutStatus:
        """Wait as long as the flush mode says: not at all in ASYNC_FLUSH.

        Returns PUT_OK, or why what ends at `end_offset` is not known to be durable.
        """
        settled: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()

        def release(status: PutStatus) -> None:
            if not settled.done():  # whoever waited may be gone
                settled.set_result(status)

        if not self.wait_durable(end_offset, release):
            return PutStatus.PUT_OK
        return await settled

    def put(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes,
        sys_flag: int = 0,
        flag: int = 0,
        born_timestamp: int = 0,
        born_host: bytes = NO_HOST,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
    ) -> Appended:
        """Put one message; one with a delay level waits in the schedule topic."""
        if b"DELAY" in properties or b"TIMER_" in properties:
            topic, queue_id, properties = self._delay(topic, queue_id, properties, sys_flag)
        return self.put_undelayed(
            topic,
            queue_id,
            body,
            properties,
            sys_flag,
            flag,
            born_timestamp,
            born_host,
            reconsume_times,
            prepared_offset,
        )

    def put_undelayed(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes,
        sys_flag: int,
        flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
        prepared_offset: int = 0,
    ) -> Appended:
        """Put a message whose waiting is over; its text still carries DELAY, as in RocketMQ."""
        try:
            appended = self._append(
                topic,
                queue_id,
                body,
                properties,
                sys_flag,
                flag,
                born_timestamp,
                born_host,
                reconsume_times,
                prepared_offset,
            )
        except AppendRefusedError as error:
            self._note_failure()
            raise refused(error.status, error.remark) from error
        self._note_append()
        return appended

    def put_batch(
        self,
        topic: str,
        queue_id: int,
        batch: bytes,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
    ) -> AppendedBatch:
        """Put the messages of a batch body side by side, all of them or none."""
        try:
            appended = self._append_batch(
                topic, queue_id, batch, sys_flag, born_timestamp, born_host
            )
        except AppendRefusedError as error:
            self._note_failure()
            raise refused(error.status, error.remark) from error
        self._note_append()
        return appended

    def _delay(
        self, topic: str, queue_id: int, properties: bytes, sys_flag: int
    ) -> tuple[str, int, bytes]:
        """Where a message with a delay waits, and its text with the way back."""
        if sys_flag & TRANSACTION_MASK not in {0, TRANSACTION_COMMIT}:
            return topic, queue_id, properties
        text = find_property(properties, b"DELAY")
        level = int(text) if text is not None and text.lstrip(b"-").isdigit() else 0
        if level <= 0:
            if any(find_property(properties, name) is not None for name in _TIMER_NAMES):
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    "accurate timer message is not enabled, timerWheelEnable is false",
                )
            return topic, queue_id, properties
        if b"TIMER_" in properties:  # a level wins over a time
            for name in _TIMER_NAMES:
                properties = remove_property(properties, name)
        clamped = self._delay_levels.clamp(level)
        if clamped != level:
            properties = replace_property(properties, b"DELAY", b"%d" % clamped)
        properties = replace_property(properties, b"REAL_TOPIC", topic.encode())
        properties = replace_property(properties, b"REAL_QID", b"%d" % queue_id)
        return SCHEDULE_TOPIC, queue_of_level(clamped), properties


def refused(status: PutStatus, remark: str) -> Refused:
    """The answer to a message that was not taken."""
    code = CODES[status]
    if status is PutStatus.PAGE_CACHE_BUSY:
        remark = f"[PC_SYNCHRONIZED]broker busy, start flow control for a while: {remark}"
    elif code == ResponseCode.SERVICE_NOT_AVAILABLE:
        remark = f"service not available now: {remark}"
    elif code == ResponseCode.MESSAGE_ILLEGAL:
        remark = f"the message is illegal: {remark}"
    return Refused(code, remark)


def put_code(status: PutStatus) -> int:
    """The response code of a message that was appended; 10 is a success with a status."""
    return ResponseCode.SUCCESS if status is PutStatus.PUT_OK else CODES[status]
