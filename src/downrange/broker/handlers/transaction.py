"""END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE: how the transaction of a half message goes on."""

import logging
from collections.abc import Coroutine
from typing import Protocol

from downrange.broker.half_messages import whole_number
from downrange.broker.overload import overloaded
from downrange.protocol.command import Command, response
from downrange.protocol.errors import ProtocolError
from downrange.protocol.headers.fields import Header, decode_header
from downrange.protocol.headers.transaction import (
    TRANSACTION_COMMIT,
    TRANSACTION_ROLLBACK,
    EndTransactionRequest,
)
from downrange.protocol.message_id import decode_message_id
from downrange.protocol.properties import find_property, replace_property
from downrange.protocol.record import Record
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused
from downrange.runtime.clock import Clock
from downrange.store.appended import Appended
from downrange.store.errors import PutStatus

_log = logging.getLogger(__name__)

_RESUME_FAILED = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."


class ResumeCheckRequest(Header, frozen=True, kw_only=True):
    """RESUME_CHECK_HALF_MESSAGE: ask again about a half message that was given up."""

    topic: str | None = None
    msg_id: str | None = None


class HalfMessages(Protocol):
    """What ending needs of the half messages."""

    @property
    def waiting_ends(self) -> int:
        """How many ends are not in the log yet."""
        ...

    def find(self, physical_offset: int, *, is_given_up: bool = False) -> Record | None:
        """The half message that stands here, or the one that was given up."""
        ...

    def commit(self, record: Record) -> Appended:
        """Give the message to consumers and end it."""
        ...

    def end(self, queue_offset: int) -> None:
        """The transaction is over."""
        ...

    def has_ended(self, queue_offset: int) -> bool:
        """Whether the transaction ended a moment ago."""
        ...

    def put_again(self, record: Record, properties: bytes) -> Appended:
        """Put a half message behind all others."""
        ...


class Writer(Protocol):
    """What ending needs of the part that puts messages."""

    is_sync: bool

    async def durable(self, end_offset: int) -> PutStatus:
        """Wait until what ends here is durable; PUT_OK, or why it is not known to be."""
        ...


class TransactionHandler:
    """Takes the verdicts of producers; they are one-way, so a refusal is logged here.

    A verdict that is not one-way is answered when the message it commits is durable, in SYNC_FLUSH.
    A rollback promises nothing: one that is lost is asked for again.
    """

    def __init__(
        self,
        half_messages: HalfMessages,
        writer: Writer,
        clock: Clock,
        *,
        timeout_ms: int = 6_000,
        waiting_ends_max: int = 100_000,
    ) -> None:
        self._half_messages = half_messages
        self._writer = writer
        self._clock = clock
        self.change(timeout_ms=timeout_ms, waiting_ends_max=waiting_ends_max)

    def change(self, *, timeout_ms: int, waiting_ends_max: int) -> None:
        """Follow other settings from now on."""
        self._timeout_ms = timeout_ms
        self._waiting_ends_max = waiting_ends_max

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {
            RequestCode.END_TRANSACTION: self.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume,
        }

    def end(
        self, request: Command, connection: Connection
    ) -> Answer | Coroutine[None, None, Answer]:
        """Commit or roll back; a producer that does not know yet is asked again later."""
        header = decode_header(EndTransactionRequest, request.ext_fields)
        if header.commit_or_rollback not in {TRANSACTION_COMMIT, TRANSACTION_ROLLBACK}:
            return None  # nobody is told, as in RocketMQ: this is no verdict
        try:
            appended = self._end(header)
        except Refused as error:
            _log.warning(
                "transaction not ended: producer=%s group=%s id=%s offset=%d reason=%s",
                connection.address,
                header.producer_group,
                header.msg_id,
                header.commit_log_offset,
                error.remark,
            )
            raise
        return self._answer(request, appended)

    def resume(self, request: Command, _: Connection) -> Answer | Coroutine[None, None, Answer]:
        """Put a half message that was given up among those that are checked."""
        header = decode_header(ResumeCheckRequest, request.ext_fields)
        try:
            place = decode_message_id(header.msg_id or "")
            record = self._half_messages.find(place.physical_offset, is_given_up=True)
            if record is None:
                raise Refused(ResponseCode.SYSTEM_ERROR, f"{_RESUME_FAILED} There is none.")
            text = replace_property(record.properties, b"TRANSACTION_CHECK_TIMES", b"0")
            appended = self._half_messages.put_again(record, text)
        except ProtocolError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{_RESUME_FAILED} {error}") from error
        return self._answer(request, appended)

    def _answer(
        self, request: Command, appended: Appended | None
    ) -> Answer | Coroutine[None, None, Answer]:
        if appended is not None and self._writer.is_sync and not request.is_one_way:
            return self._once_durable(request, appended)
        return response(request, ResponseCode.SUCCESS)

    async def _once_durable(self, request: Command, appended: Appended) -> Answer:
        status = await self._writer.durable(appended.end_offset)
        if status is not PutStatus.PUT_OK:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"stored, but it may be lost in a crash: {status.name}"
            )
        return response(request, ResponseCode.SUCCESS)

    def _end(self, header: EndTransactionRequest) -> Appended | None:
        """End a transaction; returns what a commit has put."""
        record = self._half_messages.find(header.commit_log_offset)
        if record is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        if not header.from_transaction_check and self._is_late(record):
            raise Refused(
                ResponseCode.ILLEGAL_OPERATION,
                "the time that the producer has asked for is over, the broker asks it now",
            )
        group = (find_property(record.properties, b"PGROUP") or b"").decode("utf-8", "replace")
        if group != header.producer_group:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if record.queue_offset != header.tran_state_table_offset:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        if self._half_messages.has_ended(record.queue_offset):
            return None  # the same verdict again, or one too late: consumers get a message once
        waiting = self._half_messages.waiting_ends
        if waiting >= self._waiting_ends_max:
            raise overloaded(
                f"{waiting} ends of transactions wait for the log, "
                f"endTransactionPoolQueueCapacity is {self._waiting_ends_max}"
            )
        if header.commit_or_rollback == TRANSACTION_COMMIT:
            return self._half_messages.commit(record)
        self._half_messages.end(record.queue_offset)
        return None

    def _is_late(self, record: Record) -> bool:
        """Whether a producer that wanted peace for some time speaks only after it."""
        text = find_property(record.properties, b"CHECK_IMMUNITY_TIME_IN_SECONDS")
        if text is None:
            return False
        immunity_ms = max((whole_number(text) or 0) * 1000, self._timeout_ms)
        return self._clock.wall_ms() - record.born_timestamp > immunity_ms
