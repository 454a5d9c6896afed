"""`downrange produce`: sends what comes on standard input."""

import asyncio
import base64
import sys
from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
import typer

from downrange.admin.errors import WrongRequestError
from downrange.app.commands.frame import Call, DryRunOption, cluster_command, new_app
from downrange.app.commands.output import Form, Row, Shown, write_line
from downrange.app.commands.standard_input import chunks, in_a_thread, standard_input
from downrange.app.commands.topic import TopicArgument
from downrange.client.client import Client, connect
from downrange.client.message import SendReceipt
from downrange.model.topics import MessageQueue

app = new_app("Send messages.")

IN_FLIGHT: Final = 64


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A message as a line of JSON; `downrange consume -o jsonl` prints such lines."""

    body: str | None = None
    body_base64: str | None = None
    key: str | None = None
    keys: list[str] | None = None
    tag: str | None = None
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    order_key: str | None = None
    delay_s: float | None = None

    def data(self) -> bytes:
        """The body; `WrongRequestError` if there is none or two."""
        if (self.body is None) == (self.body_base64 is None):
            raise WrongRequestError("a line needs body or body_base64, and not both")
        if self.body is not None:
            return self.body.encode()
        try:
            return base64.b64decode(self.body_base64 or "", validate=True)
        except ValueError as error:
            raise WrongRequestError(f"body_base64: {error}") from None


@cluster_command(app, "produce")
async def produce(
    call: Call,
    topic: TopicArgument,
    key: Annotated[str | None, typer.Option("-k", "--key", help="Key of every message.")] = None,
    tag: Annotated[str | None, typer.Option("-g", "--tag", help="Tag of every message.")] = None,
    property_: Annotated[
        list[str] | None,
        typer.Option("-p", "--property", metavar="NAME=VALUE", help="Several times."),
    ] = None,
    json_lines: Annotated[
        bool, typer.Option("-j", "--json", help="Lines are JSON, as `consume -o jsonl` prints.")
    ] = False,
    key_delimiter: Annotated[
        str | None, typer.Option("-K", metavar="TEXT", help="Lines are KEY, this, body.")
    ] = None,
    delimiter: Annotated[
        str, typer.Option("-D", metavar="TEXT", help="Between messages; \\n, \\0 and so on.")
    ] = "\\n",
    whole: Annotated[
        bool, typer.Option("-w", "--whole", help="All of the input is one message.")
    ] = False,
    order_key: Annotated[
        str | None, typer.Option(help="All into one queue, in order, chosen by this text.")
    ] = None,
    queue: Annotated[int | None, typer.Option("-q", "--queue", help="Into this queue.")] = None,
    broker: Annotated[
        str | None, typer.Option("-b", "--broker", help="Of this broker, with --queue.")
    ] = None,
    delay_s: Annotated[
        float | None, typer.Option("--delay", metavar="SECONDS", help="Deliver later.")
    ] = None,
    dry_run: DryRunOption = False,
) -> Shown | None:
    """Send standard input, a message a line; empty lines are left out.

    With -o jsonl a line is printed for each message when a broker has it.
    """
    general = Line(
        body="", tag=tag, key=key, properties=_properties(property_ or []),
        order_key=order_key, delay_s=delay_s,
    )  # fmt: skip
    separator = None if whole else _unescaped(delimiter)
    lines = (
        [_line(piece, general, key_delimiter, json_lines=json_lines) for piece in pieces]
        for pieces in chunks(standard_input(), separator)
    )
    if dry_run:
        count = sum(len(some) for some in lines)
        call.note(f"{_messages(count)} would be sent to {topic}")
        return None
    target = await _queue(call, topic, broker, queue)
    in_order = order_key is not None or queue is not None
    async with connect(settings=call.settings) as mq:
        count = await _send_all(mq, topic, lines, target, call.form, in_order=in_order)
    call.note(f"{_messages(count)} sent to {topic}")
    return None


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


async def _send_all(
    mq: Client,
    topic: str,
    lines: Iterator[list[Line]],
    target: MessageQueue | None,
    form: Form,
    *,
    in_order: bool,
) -> int:
    """Send with many under way at once; one at a time where the order matters."""
    count = 0
    step = 1 if in_order else IN_FLIGHT
    # Reading may block for as long as a person types; the connection must live on.
    while some := await in_a_thread(lambda: next(lines, None)):
        for start in range(0, len(some), step):
            window = some[start : start + step]
            receipts = await asyncio.gather(*(_send(mq, topic, line, target) for line in window))
            count += len(receipts)
            if form is not Form.TABLE:
                for receipt in receipts:
                    write_line(_receipt(receipt))
                sys.stdout.flush()
    return count


async def _send(mq: Client, topic: str, line: Line, target: MessageQueue | None) -> SendReceipt:
    return await mq.send(
        topic,
        line.data(),
        tag=line.tag,
        key=line.key,
        keys=line.keys if line.key is None and line.keys else None,
        properties=line.properties,
        order_key=line.order_key,
        delay_s=line.delay_s,
        queue=target,
    )


def _receipt(receipt: SendReceipt) -> Row:
    return {
        "message_id": receipt.message_id,
        "offset_message_id": receipt.offset_message_id,
        "status": receipt.status.value,
        "broker": receipt.queue.broker_name,
        "queue": receipt.queue.queue_id,
        "offset": receipt.queue_offset,
    }


async def _queue(
    call: Call, topic: str, broker: str | None, queue_id: int | None
) -> MessageQueue | None:
    if queue_id is None:
        if broker is not None:
            raise WrongRequestError("a broker is chosen with its queue: give --queue too")
        return None
    async with call.admin() as admin:
        route = await admin.topics.route(topic)
    names = sorted(data.broker_name for data in route.queue_datas)
    if broker is None and len(names) != 1:
        raise WrongRequestError(f"queue {queue_id} is at several brokers: {', '.join(names)}")
    return MessageQueue(topic, broker or names[0], queue_id)


def _line(data: bytes, general: Line, key_delimiter: str | None, *, json_lines: bool) -> Line:
    if json_lines:
        try:
            line = msgspec.json.decode(data, type=Line)
        except msgspec.DecodeError as error:
            raise WrongRequestError(f"not a message: {data[:80]!r}: {error}") from None
        _ = line.data()
        has_key = line.key is not None or bool(line.keys)
        return msgspec.structs.replace(
            line,
            key=line.key if has_key else general.key,
            tag=general.tag if line.tag is None else line.tag,
            properties={**general.properties, **line.properties},
            order_key=general.order_key if line.order_key is None else line.order_key,
            delay_s=general.delay_s if line.delay_s is None else line.delay_s,
        )
    key = general.key
    if key_delimiter:
        before, found, behind = data.partition(_unescaped(key_delimiter))
        if found:
            key, data = before.decode("utf-8", "replace"), behind
    return msgspec.structs.replace(
        general, body=None, body_base64=base64.b64encode(data).decode(), key=key
    )


def _properties(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise WrongRequestError(f"{text!r} is not NAME=VALUE")
        found[name] = value
    return found


def _unescaped(text: str) -> bytes:
    for written, meant in (("\\n", "\n"), ("\\t", "\t"), ("\\0", "\0"), ("\\r", "\r")):
        text = text.replace(written, meant)
    if not text:
        raise WrongRequestError("a delimiter cannot be empty")
    return text.encode()
