"""Messages as commands print them: as JSON, as a line of a user's own form, or for people."""

import base64
from collections.abc import Callable
from typing import Final

import typer

from downrange.admin.errors import WrongRequestError
from downrange.app.commands.output import Record, Table, Value
from downrange.client.invalid_message import InvalidMessage
from downrange.client.message import ReceivedMessage
from downrange.protocol import property_names as names
from downrange.protocol.hosts import format_address

BODY_SHOWN_MAX: Final = 60
DEFAULT_FORM: Final = "%b\\n"
COLUMNS: Final = ("broker", "queue", "offset", "stored_ms", "message_id", "tag", "keys", "body")


def as_row(message: ReceivedMessage) -> dict[str, Value]:
    """All of a message; a body that is not UTF-8 is `body_base64`."""
    row: dict[str, Value] = {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "tag": message.tag,
        "keys": message.keys,
        "properties": user_properties(message),
        "born_ms": message.born_timestamp_ms,
        "stored_ms": message.store_timestamp_ms,
        "born_host": format_address(*message.born_host),
        "store_host": format_address(*message.store_host),
        "reconsume_times": message.reconsume_times,
        "bytes": len(message.body),
    }
    try:
        row["body"] = message.body.decode()
    except UnicodeDecodeError:
        row["body_base64"] = base64.b64encode(message.body).decode()
    return row


def as_invalid_row(invalid: InvalidMessage) -> dict[str, Value]:
    """What can be read of a message that cannot be decoded; the body is as stored."""
    return {
        "topic": invalid.queue.topic,
        "broker": invalid.queue.broker_name,
        "queue": invalid.queue.queue_id,
        "offset": invalid.queue_offset,
        "invalid": invalid.reason,
        "stored_ms": invalid.store_timestamp_ms,
        "bytes": len(invalid.body),
        "body_base64": base64.b64encode(invalid.body).decode(),
    }


def warn_invalid(invalid: InvalidMessage) -> None:
    """Say on standard error which message is left out, and why."""
    typer.echo(f"downrange: left out: {invalid}: it cannot be decoded: {invalid.reason}", err=True)


def user_properties(message: ReceivedMessage) -> dict[str, str]:
    """What the program that sent it has said about a message."""
    return {name: value for name, value in message.properties.items() if name not in names.RESERVED}


def as_table(messages: list[ReceivedMessage]) -> Table:
    """Some messages; a person sees the beginning of each body."""
    return Table(COLUMNS, [_Shortened(as_row(message)) for message in messages])


def as_record(message: ReceivedMessage) -> Record:
    """One message with everything."""
    return Record(as_row(message))


class _Shortened(dict[str, Value]):
    """A row whose body is short in a table and whole in JSON."""

    def get(self, key: str, default: Value = None) -> Value:  # type: ignore[override]
        """What a table shows."""
        value = super().get(key, default)
        if key == "body":
            if value is None:
                return f"({self['bytes']} bytes)"
            text = str(value).replace("\n", "\\n")
            return text if len(text) <= BODY_SHOWN_MAX else text[: BODY_SHOWN_MAX - 1] + "…"
        return value


# What stands behind a % in a form.
_PARTS: Final[dict[str, Callable[[ReceivedMessage], bytes]]] = {
    "b": lambda one: one.body,
    "s": lambda one: str(len(one.body)).encode(),
    "k": lambda one: " ".join(one.keys).encode(),
    "g": lambda one: (one.tag or "").encode(),
    "t": lambda one: one.topic.encode(),
    "n": lambda one: one.broker_name.encode(),
    "q": lambda one: str(one.queue_id).encode(),
    "o": lambda one: str(one.queue_offset).encode(),
    "i": lambda one: one.message_id.encode(),
    "T": lambda one: str(one.store_timestamp_ms).encode(),
    "p": lambda one: ",".join(f"{k}={v}" for k, v in user_properties(one).items()).encode(),
    "%": lambda _: b"%",
}
FORM_HELP: Final = (
    "%b body, %s its bytes, %k keys, %g tag, %t topic, %n broker, %q queue, %o offset, %i id, "
    "%T store time, %p properties; \\n \\t \\0"
)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "0": b"\0", "r": b"\r", "\\": b"\\"}


class LineForm:
    """A form like "%k\\t%b\\n", read once; `WrongRequestError` names what it cannot be."""

    def __init__(self, form: str) -> None:
        self._parts: list[bytes | Callable[[ReceivedMessage], bytes]] = []
        position = 0
        while position < len(form):
            mark = form[position]
            if mark not in "%\\":
                self._parts.append(mark.encode())
                position += 1
                continue
            word = form[position + 1 : position + 2]
            known = _PARTS.get(word) if mark == "%" else _ESCAPES.get(word)
            if known is None:
                raise WrongRequestError(f"{mark}{word} means nothing in a form; known: {FORM_HELP}")
            self._parts.append(known)
            position += 2

    def line(self, message: ReceivedMessage) -> bytes:
        """One message."""
        return b"".join(part if isinstance(part, bytes) else part(message) for part in self._parts)
