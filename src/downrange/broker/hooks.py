"""What a program around the broker can hang on the way of a message.

Hooks are given to the broker when it is built; without any, sends and pulls go the same way as if
this module were not there. A hook runs on the event loop, so it must not wait. Raising `Refused`
before a message is taken or handed out refuses it with that code and text; anything else that a
hook raises is logged and changes nothing.
"""

import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ParamSpec, Protocol

from downrange.broker.message_writer import put_code
from downrange.broker.send_reply import SendReply
from downrange.protocol.command import Command
from downrange.protocol.headers.send import SendRequest, decode_send
from downrange.protocol.message_id import encode_message_id
from downrange.protocol.properties import find_property
from downrange.protocol.response_codes import SEND_STORED, ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused
from downrange.runtime.clock import Clock
from downrange.store.appended import Appended
from downrange.store.errors import PutStatus

_log = logging.getLogger(__name__)

_TIMES = (b"DELAY", b"TIMER_DELIVER_MS", b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS")
P = ParamSpec("P")


class MessageKind(Enum):
    """What the properties of a message make of it."""

    NORMAL = "normal"
    ORDERED = "ordered"
    DELAYED = "delayed"
    HALF = "half"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """A message or a batch on its way in, as the producer sent it."""

    producer_group: str
    topic: str
    queue_id: int  # negative: any
    properties: str
    body_bytes: int
    is_batch: bool
    kind: MessageKind
    born_timestamp: int
    producer_address: str
    arrived_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOutcome:
    """What became of it. A one-way send and a refused one have no place."""

    code: int
    remark: str | None = None
    message_id: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None

    @property
    def is_stored(self) -> bool:
        """Whether the message is in the log."""
        return self.code in SEND_STORED


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The answer to a pull, about to go out; `code` says whether anything was found."""

    consumer_group: str
    topic: str
    queue_id: int
    consumer_address: str
    code: int
    message_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBack:
    """A message that a consumer could not use, put again for its group."""

    consumer_group: str
    topic: str | None
    message_id: str | None
    is_dead_letter: bool


class SendHook(Protocol):
    """Sees every message that producers send, replies to requests among them."""

    def before_send(self, sending: Sending, /) -> None:
        """Nothing is stored yet; `Refused` keeps it so."""
        ...

    def after_send(self, sending: Sending, outcome: SendOutcome, /) -> None:
        """The outcome is known and the answer about to go out. Called once for every send that all
        hooks have let pass.
        """
        ...


class ConsumeHook(Protocol):
    """Sees what consumers get, and what they send back."""

    def before_consume(self, delivery: Delivery, /) -> None:
        """The messages are about to go out; `Refused` answers the pull with it instead."""
        ...

    def after_send_back(self, send_back: SendBack, /) -> None:
        """A message was put again for the group, later or among its dead letters."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHooks:
    """What is registered, called in this order."""

    sends: Sequence[SendHook] = ()
    consumes: Sequence[ConsumeHook] = ()


class HookedSends:
    """Calls the hooks around a send handler; `reply` is the writer of answers it has to use.

    A send that waits for the disk is answered by way of `reply`, so that is where outcomes show.
    """

    def __init__(self, hooks: Sequence[SendHook], clock: Clock, store_host: bytes) -> None:
        self._hooks = hooks
        self._clock = clock
        self._store_host = store_host
        # By the identity of the request, which lives until it is answered.
        self._under_way: dict[int, Sending] = {}
        self._current: Command | None = None  # whose handler is running

    def around(self, handle: Handler) -> Handler:
        """The handler with the hooks before and after it."""

        def send(
            request: Command, connection: Connection
        ) -> Answer | Coroutine[None, None, Answer]:
            sending = self._sending(request, connection)
            for hook in self._hooks:
                _ask(hook.before_send, sending)
            self._under_way[id(request)] = sending
            self._current = request
            try:
                answer = handle(request, connection)
            except Exception as error:
                self._finish(request, _failed(error))
                raise
            finally:
                self._current = None
            if isinstance(answer, Coroutine):
                return self._wait(request, answer)
            if request.is_one_way:
                self._finish(request, SendOutcome(code=ResponseCode.SUCCESS))
            return answer

        return send

    def reply(self, plain: SendReply) -> SendReply:
        """A writer of answers that tells the hooks."""
        return _HookedReply(plain, self._stored)

    def _sending(self, request: Command, connection: Connection) -> Sending:
        header = decode_send(request.code, request.ext_fields)
        return Sending(
            producer_group=header.producer_group,
            topic=header.topic,
            queue_id=header.queue_id,
            properties=header.properties or "",
            body_bytes=len(request.body or b""),
            is_batch=header.batch,
            kind=_kind(header),
            born_timestamp=header.born_timestamp,
            producer_address=connection.address,
            arrived_ms=self._clock.wall_ms(),
        )

    def _stored(
        self, late: Command | None, status: PutStatus, placed: Sequence[Appended], queue_id: int
    ) -> None:
        request = late or self._current
        assert request is not None
        ids = (encode_message_id(self._store_host, one.physical_offset) for one in placed)
        self._finish(
            request,
            SendOutcome(
                code=put_code(status),
                message_id=",".join(ids),
                queue_id=queue_id,
                queue_offset=placed[0].queue_offset,
            ),
        )

    async def _wait(self, request: Command, answer: Coroutine[None, None, Answer]) -> Answer:
        try:
            result = await answer
        except Exception as error:
            self._finish(request, _failed(error))
            raise
        if isinstance(result, Command):
            self._finish(request, _told(result))
        elif request.is_one_way:
            self._finish(request, SendOutcome(code=ResponseCode.SUCCESS))
        return result

    def _finish(self, request: Command, outcome: SendOutcome) -> None:
        sending = self._under_way.pop(id(request), None)
        if sending is None:
            return
        for hook in self._hooks:
            _call(hook.after_send, sending, outcome)


class HookedConsumes:
    """Calls the hooks for deliveries and for what is sent back."""

    def __init__(self, hooks: Sequence[ConsumeHook]) -> None:
        self._hooks = hooks

    def before_consume(self, delivery: Delivery) -> None:
        """`Refused` if a hook does not let the messages go out."""
        for hook in self._hooks:
            _ask(hook.before_consume, delivery)

    def after_send_back(self, send_back: SendBack) -> None:
        """Tell the hooks; it is done, so none can refuse it."""
        for hook in self._hooks:
            _call(hook.after_send_back, send_back)


class _HookedReply(SendReply):
    """Writes the answers that another writes, and says what they say."""

    def __init__(
        self,
        plain: SendReply,
        stored: Callable[[Command | None, PutStatus, Sequence[Appended], int], None],
    ) -> None:
        self._plain = plain
        self._stored = stored

    def now(
        self, encoding: int, opaque: int, appended: Appended, queue_id: int, unique_key: bytes
    ) -> bytes:
        self._stored(None, PutStatus.PUT_OK, [appended], queue_id)
        return self._plain.now(encoding, opaque, appended, queue_id, unique_key)

    def later(
        self,
        request: Command,
        status: PutStatus,
        placed: Sequence[Appended],
        queue_id: int,
        unique_key: bytes | None,
    ) -> bytes:
        self._stored(request, status, placed, queue_id)
        return self._plain.later(request, status, placed, queue_id, unique_key)


def _ask(hook: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Call a hook that may refuse; every other failure is its own."""
    try:
        hook(*args, **kwargs)
    except Refused:
        raise
    except Exception:  # noqa: BLE001 - whatever it is, the message has nothing to do with it
        _log.exception("hook failed: %r", hook)


def _call(hook: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Call a hook for what has happened already, and so cannot be refused."""
    try:
        _ask(hook, *args, **kwargs)
    except Refused:
        _log.exception("hook refuses what is done: %r", hook)


def _kind(header: SendRequest) -> MessageKind:
    text = (header.properties or "").encode()
    if find_property(text, b"__SHARDINGKEY") is not None:
        return MessageKind.ORDERED
    if any(find_property(text, name) is not None for name in _TIMES):
        return MessageKind.DELAYED
    if (find_property(text, b"TRAN_MSG") or b"").lower() == b"true":
        return MessageKind.HALF
    return MessageKind.NORMAL


def _failed(error: Exception) -> SendOutcome:
    if isinstance(error, Refused):
        return SendOutcome(code=error.code, remark=error.remark)
    return SendOutcome(code=ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")


def _told(answer: Command) -> SendOutcome:
    """What an answer says that was not written by a `SendReply`: to a reply message."""
    fields = answer.ext_fields or {}
    return SendOutcome(
        code=answer.code,
        remark=answer.remark,
        message_id=fields.get("msgId"),
        queue_id=int(fields["queueId"]) if "queueId" in fields else None,
        queue_offset=int(fields["queueOffset"]) if "queueOffset" in fields else None,
    )
