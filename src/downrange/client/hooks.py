"""Where a program can look on or take part: before and after each request, send and consume."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from downrange.client.message import Message, ReceivedMessage, SendReceipt
from downrange.model.topics import MessageQueue
from downrange.protocol.command import Command


class RpcHook(Protocol):
    """Sees every request of a session; it may return other fields, a signature for example."""

    def before_request(
        self, address: str, code: int, fields: dict[str, str] | None, body: bytes | None
    ) -> dict[str, str] | None:
        """The fields to send."""
        ...

    def after_response(self, address: str, code: int, response: Command) -> None:
        """The answer, before anybody else sees it."""
        ...


@dataclass(slots=True, kw_only=True)
class SendContext:
    """One send, or one try of it; `shared` is for the hooks alone."""

    group: str
    message: Message
    queue: MessageQueue
    broker_address: str
    message_id: str
    message_type: str = "Normal_Msg"
    born_host: str = ""
    receipt: SendReceipt | None = None
    error: Exception | None = None
    shared: dict[str, object] = field(default_factory=dict)


class SendHook(Protocol):
    """Looks on while messages are sent; an error in it is logged and changes nothing."""

    def before_send(self, context: SendContext) -> None:
        """A try begins."""
        ...

    def after_send(self, context: SendContext) -> None:
        """It has ended: `receipt` or `error` is set."""
        ...


class ForbiddenHook(Protocol):
    """May refuse a message by raising; nothing is sent then."""

    def check_forbidden(self, context: SendContext) -> None:
        """Raise to refuse."""
        ...


@dataclass(slots=True, kw_only=True)
class EndTransactionContext:
    """The second phase of one transaction."""

    group: str
    message: Message | ReceivedMessage
    message_id: str
    transaction_id: str
    broker_address: str
    state: str
    is_from_check: bool


class EndTransactionHook(Protocol):
    """Looks on when a transaction ends."""

    def end_transaction(self, context: EndTransactionContext) -> None:
        """The verdict is about to be sent."""
        ...


@dataclass(slots=True, kw_only=True)
class ConsumeContext:
    """One call of a listener; `status` and `is_success` are set when it has returned."""

    group: str
    messages: Sequence[ReceivedMessage]
    queue: MessageQueue
    is_success: bool = False
    status: str = ""
    namespace: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    shared: dict[str, object] = field(default_factory=dict)


class ConsumeHook(Protocol):
    """Looks on while messages are consumed; an error in it is logged and changes nothing."""

    def before_consume(self, context: ConsumeContext) -> None:
        """The listener is about to be called."""
        ...

    def after_consume(self, context: ConsumeContext) -> None:
        """It has returned or raised."""
        ...


class FilterHook(Protocol):
    """May take messages out of what was pulled before a listener sees them."""

    def filter_messages(
        self, group: str, queue: MessageQueue, messages: list[ReceivedMessage]
    ) -> list[ReceivedMessage]:
        """The messages that stay."""
        ...
