"""Sends messages that become visible when a local transaction has succeeded.

A half message is stored first, then the listener runs the local transaction, then the broker hears
the verdict. If it hears none it asks, again and again, and the listener looks up what became of it.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from downrange.client.errors import ClientStateError, RocketMQError, UnknownBrokerError
from downrange.client.hooks import (
    EndTransactionContext,
    EndTransactionHook,
    ForbiddenHook,
    SendHook,
)
from downrange.client.message import Message, ReceivedMessage, SendReceipt, SendStatus
from downrange.client.namespace import with_namespace, without_namespace
from downrange.client.producer import Producer
from downrange.client.record_reader import read_records
from downrange.client.session import Session
from downrange.client.session_table import SESSIONS, SessionTable
from downrange.client.settings import ClientSettings, ProducerSettings
from downrange.client.trace import TraceEndTransactionHook
from downrange.protocol import property_names as names
from downrange.protocol.command import Command
from downrange.protocol.errors import ProtocolError
from downrange.protocol.headers.broker_to_client import CheckTransactionStateRequest
from downrange.protocol.headers.fields import decode_header, encode_header
from downrange.protocol.headers.transaction import (
    TRANSACTION_COMMIT,
    TRANSACTION_PENDING,
    TRANSACTION_ROLLBACK,
    EndTransactionRequest,
)
from downrange.protocol.message_id import decode_message_id
from downrange.protocol.request_codes import RequestCode
from downrange.remoting.connection import Connection

_log = logging.getLogger(__name__)

CHECKS_MAX: Final = 2_000  # questions of brokers under way; the broker asks again about the rest


class TransactionState(StrEnum):
    """What became of a local transaction, under Java's names."""

    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    UNKNOW = "UNKNOW"


_VERDICTS: Final = {
    TransactionState.COMMIT_MESSAGE: TRANSACTION_COMMIT,
    TransactionState.ROLLBACK_MESSAGE: TRANSACTION_ROLLBACK,
    TransactionState.UNKNOW: TRANSACTION_PENDING,
}

Verdict = TransactionState | Awaitable[TransactionState]


class TransactionListener(Protocol):
    """The program's half of a transaction; both methods may be `async def` or plain."""

    def execute(self, message: Message, transaction_id: str, argument: object) -> Verdict:
        """Run the local transaction; an error in it counts as not known."""
        ...

    def check(self, message: ReceivedMessage) -> Verdict:
        """Look up what became of it; a broker asks, perhaps after this process has started anew."""
        ...


class TransactionReceipt(msgspec.Struct, frozen=True):
    """The receipt of the half message, and the verdict that the broker was told."""

    receipt: SendReceipt
    state: TransactionState


class TransactionProducer(Producer):
    """A producer with a listener for its transactions."""

    def __init__(
        self,
        group: str,
        listener: TransactionListener,
        *,
        client: ClientSettings,
        settings: ProducerSettings | None = None,
        sessions: SessionTable = SESSIONS,
        send_hooks: Iterable[SendHook] = (),
        forbidden_hooks: Iterable[ForbiddenHook] = (),
        end_transaction_hooks: Iterable[EndTransactionHook] = (),
    ) -> None:
        super().__init__(
            group,
            client=client,
            settings=settings,
            sessions=sessions,
            send_hooks=send_hooks,
            forbidden_hooks=forbidden_hooks,
        )
        self._listener = listener
        self._end_hooks = list(end_transaction_hooks)
        self._checks = 0

    async def start(self) -> None:
        """As a producer; from now on brokers may ask about half messages of the group."""
        await super().start()
        session = self._session
        assert session is not None
        if self._tracer is not None:
            self._end_hooks.append(TraceEndTransactionHook(self._tracer))
        session.serve(
            RequestCode.CHECK_TRANSACTION_STATE,
            lambda request, connection: _on_check(session, request, connection),
        )

    async def send_in_transaction(
        self, message: Message, argument: object = None, *, timeout_s: float | None = None
    ) -> TransactionReceipt:
        """Store the half message, run the local transaction, tell the broker the verdict.

        A delay level is left out, since a broker cannot wait for two things. If the verdict does
        not reach the broker it will ask, so that is logged and no error.
        """
        properties = {
            name: value for name, value in message.properties.items() if name != names.DELAY_LEVEL
        }
        properties[names.TRANSACTION_PREPARED] = "true"
        properties[names.PRODUCER_GROUP] = self._group
        half = Message.of_properties(message.topic, message.body, properties, message.flag)
        receipt = await self.send(half, timeout_s=timeout_s)
        state = TransactionState.ROLLBACK_MESSAGE
        if receipt.status is SendStatus.SEND_OK:
            transaction_id = receipt.transaction_id or receipt.message_id
            state = await self._judged(
                lambda: self._listener.execute(half, transaction_id, argument)
            )
        try:
            await self._end(half, receipt, state)
        except RocketMQError as error:
            _log.warning("verdict %s did not reach the broker: %s", state.value, error)
        return TransactionReceipt(receipt, state)

    def begin_check(
        self, message: ReceivedMessage, header: CheckTransactionStateRequest, connection: Connection
    ) -> None:
        """A broker asks about a half message of the group."""
        session = self._session
        if session is None:
            return
        if self._checks >= CHECKS_MAX:
            _log.warning("too many questions about transactions wait; the broker will ask again")
            return
        self._checks += 1
        session.supervisor.spawn(
            "check transaction", self._check(session, message, header, connection)
        )

    async def _check(
        self,
        session: Session,
        message: ReceivedMessage,
        header: CheckTransactionStateRequest,
        connection: Connection,
    ) -> None:
        try:
            state = await self._judged(lambda: self._listener.check(message))
        finally:
            self._checks -= 1
        message_id = message.properties.get(names.UNIQUE_KEY) or message.message_id
        self._tell_hooks(
            message,
            message_id,
            message.transaction_id or "",
            connection.address,
            state,
            is_from_check=True,
        )
        end = EndTransactionRequest(
            topic=header.topic,
            producer_group=self._group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=_VERDICTS[state],
            from_transaction_check=True,
            msg_id=message_id,
            transaction_id=header.transaction_id,
        )
        code = RequestCode.END_TRANSACTION
        fields = session.peers.prepared(connection.address, code, encode_header(end), None)
        connection.send_one_way(code, fields)

    async def _end(self, half: Message, receipt: SendReceipt, state: TransactionState) -> None:
        session = self._session
        if session is None:
            raise ClientStateError("the producer was shut down during the transaction")
        namespace = session.settings.namespace
        queue = msgspec.structs.replace(
            receipt.queue, topic=with_namespace(receipt.queue.topic, namespace)
        )
        broker = session.routes.broker_of(queue)
        address = session.routes.master_address(broker)
        if address is None:
            raise UnknownBrokerError(f"broker {broker!r} of the half message has no master")
        transaction_id = receipt.transaction_id or ""
        self._tell_hooks(
            half, receipt.message_id, transaction_id, address, state, is_from_check=False
        )
        end = EndTransactionRequest(
            topic=queue.topic,
            producer_group=self._group,
            tran_state_table_offset=receipt.queue_offset,
            commit_log_offset=decode_message_id(receipt.offset_message_id).physical_offset,
            commit_or_rollback=_VERDICTS[state],
            msg_id=receipt.message_id,
            transaction_id=receipt.transaction_id,
        )
        await session.calls.end_transaction(address, end, timeout_s=self.settings.send_timeout_s)

    def _tell_hooks(
        self,
        message: Message | ReceivedMessage,
        message_id: str,
        transaction_id: str,
        address: str,
        state: TransactionState,
        *,
        is_from_check: bool,
    ) -> None:
        context = EndTransactionContext(
            group=self._group,
            message=message,
            message_id=message_id,
            transaction_id=transaction_id,
            broker_address=address,
            state=state.value,
            is_from_check=is_from_check,
        )
        for hook in self._end_hooks:
            try:
                hook.end_transaction(context)
            except Exception:  # noqa: BLE001 - a hook only looks on
                _log.exception("a hook failed at the end of a transaction")

    @staticmethod
    async def _judged(ask: Callable[[], Verdict]) -> TransactionState:
        """The verdict of the listener; an error or nonsense in it is no verdict."""
        try:
            verdict = ask()
            state = await verdict if inspect.isawaitable(verdict) else verdict
            return TransactionState(state)
        except Exception:  # noqa: BLE001 - the user's own; the broker will ask
            _log.exception("the transaction listener failed")
            return TransactionState.UNKNOW


def _on_check(session: Session, request: Command, connection: Connection) -> None:
    """Hand the question of a broker to the producer of the group that sent the half message."""
    header = decode_header(CheckTransactionStateRequest, request.ext_fields)
    try:
        (message,) = read_records(request.body or b"", broker_name=header.broker_name or "")
    except (ProtocolError, ValueError) as error:
        _log.warning(
            "broker %s asks about a half message at offset %s that cannot be decoded: %s",
            connection.address,
            header.tran_state_table_offset,
            error,
        )
        return
    message.topic = without_namespace(message.topic, session.settings.namespace)
    group = message.properties.get(names.PRODUCER_GROUP, "")
    producer = session.producer(group)
    if isinstance(producer, TransactionProducer):
        producer.begin_check(message, header, connection)
    else:
        _log.warning("asked about a transaction of group %r, which is not here", group)
