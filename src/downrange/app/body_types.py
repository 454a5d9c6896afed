"""How a body becomes what a handler wants, by the annotation of its parameter.

`bytes` and `str` are the body itself; everything else is read as JSON, by pydantic for its models
and by msgspec for structures, data classes, dictionaries and the rest.
"""

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Never, TypeAlias

import msgspec

from downrange.client.errors import RocketMQError
from downrange.client.message import ReceivedMessage

# A function of anything takes at least nothing: this says how many parameters it has, not which.
Handler: TypeAlias = Callable[[Never], object] | Callable[[Never, ReceivedMessage], object]


class HandlerError(RocketMQError):
    """A function that cannot be a handler; the text says why."""


class UndecodableError(ValueError):
    """A body that is not what the handler wants."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """What a handler is called with."""

    decode: Callable[[bytes], object] | None  # None: the handler takes the message alone
    wants_message: bool

    def arguments(self, message: ReceivedMessage) -> tuple[object, ...]:
        """The arguments for a message; `UndecodableError` if its body is something else."""
        rest = (message,) if self.wants_message else ()
        if self.decode is None:
            return rest
        try:
            return (self.decode(message.body), *rest)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise UndecodableError(f"{type(error).__name__}: {error}") from error


def call_of(handler: Handler) -> Callable[[tuple[object, ...]], object]:
    """The handler as a function of what `Decoding.arguments` gives."""

    def call(arguments: tuple[object, ...]) -> object:
        return handler(*arguments)  # type: ignore[arg-type]  # decoded for it

    return call


def decoding_of(handler: Handler) -> Decoding:
    """Read the annotations of a handler: (body), (message) or (body, message)."""
    name = getattr(handler, "__qualname__", repr(handler))
    try:
        hints = typing.get_type_hints(handler)
        parameters = list(inspect.signature(handler).parameters)
    except (NameError, TypeError, ValueError) as error:
        raise HandlerError(f"the annotations of handler {name} cannot be read: {error}") from None
    missing = [parameter for parameter in parameters if parameter not in hints]
    if missing:
        raise HandlerError(
            f"parameter {missing[0]!r} of handler {name} has no annotation; say what the body is, "
            f"for example `order: Order` or `body: bytes`"
        )
    kinds = [hints[parameter] for parameter in parameters]
    wants_message = bool(kinds) and kinds[-1] is ReceivedMessage
    bodies = kinds[:-1] if wants_message else kinds
    if len(bodies) > 1 or not kinds:
        raise HandlerError(
            f"handler {name} takes {len(kinds)} parameters; it takes the body, or the body and a "
            f"ReceivedMessage, or a ReceivedMessage alone"
        )
    return Decoding(_decoder(bodies[0], name) if bodies else None, wants_message)


def _decoder(kind: object, name: str) -> Callable[[bytes], object]:
    if kind is bytes:
        return bytes
    if kind is str:
        return bytes.decode
    # Asked for by what it can do, so that pydantic is needed only by those who use it.
    validate: Callable[[bytes], object] | None = getattr(kind, "model_validate_json", None)
    if validate is not None:
        return validate
    try:
        decoder: msgspec.json.Decoder[object] = msgspec.json.Decoder(kind)
    except TypeError as error:
        raise HandlerError(f"handler {name} cannot get {kind!r}: {error}") from None
    return decoder.decode
