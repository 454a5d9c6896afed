"""`downrange message`: finding single messages."""

from typing import Annotated

import typer

from downrange.admin.admin_client import AdminClient
from downrange.admin.errors import NothingThereError, WrongRequestError
from downrange.admin.offset_plan import Target, TargetKind
from downrange.admin.reading import TopicReader
from downrange.app.commands.frame import EXIT_USAGE, Call, Stop, cluster_command, new_app
from downrange.app.commands.message_form import as_record, as_table, warn_invalid
from downrange.app.commands.output import Form, Shown
from downrange.app.commands.places import TIMES, parse_time
from downrange.client.errors import InvalidStoredMessageError
from downrange.client.invalid_message import InvalidMessage
from downrange.client.message import ReceivedMessage
from downrange.model.topics import MessageQueue
from downrange.runtime.clock import SystemClock

app = new_app("Single messages.")


@app.callback()
def _noun() -> None:
    """Keeps the word `show`, though there is only one."""


@cluster_command(app, "show")
async def show(
    call: Call,
    message_id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="Id by a broker, or with -t by a producer."),
    ] = None,
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Topic to look in.")] = None,
    key: Annotated[str | None, typer.Option("-k", "--key", help="A key of the message.")] = None,
    queue: Annotated[int | None, typer.Option("-q", "--queue", help="Queue of --offset.")] = None,
    offset: Annotated[int | None, typer.Option("--offset", help="Place in the queue.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help=f"Stored from then on: {TIMES}.")
    ] = None,
    broker: Annotated[
        str | None, typer.Option("-b", "--broker", help="Broker of the queue.")
    ] = None,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="At most so many.")] = 32,
) -> Shown:
    """Show messages by id, by key, by queue and offset, or from a time on."""
    ways = [message_id is not None, key is not None, offset is not None, at is not None]
    if sum(ways) != 1:
        raise Stop(EXIT_USAGE, "give one of ID, --key, --offset (with --queue) and --at")
    async with call.admin() as admin:
        if message_id is not None:
            found = [await admin.messages.by_id(message_id, topic)]
        elif topic is None:
            raise Stop(EXIT_USAGE, "name the topic with -t")
        elif key is not None:
            found = await admin.messages.by_key(topic, key, count_max=count)
        elif at is not None:
            queues = [] if queue is None else [queue]
            reader = TopicReader(
                admin.session, topic, queue_ids=queues, broker=broker, on_invalid=warn_invalid
            )
            found = await _from_time(reader, at, count)
        else:
            assert offset is not None
            found = await _at_offset(admin, topic, broker, queue, offset)
    if not found:
        raise NothingThereError("no such message")
    if call.form is Form.TABLE and len(found) == 1:
        return as_record(found[0])
    return as_table(found)


async def _from_time(reader: TopicReader, at: str, count: int) -> list[ReceivedMessage]:
    start = Target(TargetKind.TIME, parse_time(at, SystemClock().wall_ms()))
    found: list[ReceivedMessage] = []
    async for message in reader.read(await reader.spans(start)):
        found.append(message)
        if len(found) == count:
            break
    return found


async def _at_offset(
    admin: AdminClient, topic: str, broker: str | None, queue_id: int | None, offset: int
) -> list[ReceivedMessage]:
    if queue_id is None:
        raise WrongRequestError("an offset is a place in a queue; name it with --queue")
    invalid: list[InvalidMessage] = []
    reader = TopicReader(
        admin.session, topic, queue_ids=[queue_id], broker=broker, on_invalid=invalid.append
    )
    found = []
    for queue in await reader.queues():
        found += await _one(reader, queue, offset)
    for one in invalid:
        if one.queue_offset == offset and not found:
            raise InvalidStoredMessageError(str(one), one.reason)
    return found


async def _one(reader: TopicReader, queue: MessageQueue, offset: int) -> list[ReceivedMessage]:
    messages, _ = await reader.pull(queue, offset, count_max=1)
    return [message for message in messages if message.queue_offset == offset]
