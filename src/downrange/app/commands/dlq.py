"""`downrange dlq`: dead letters, and their second life."""

from typing import Annotated

import typer

from downrange.admin.dead_letters import ResendTo, origin_topic, resent
from downrange.admin.errors import NothingThereError
from downrange.admin.offset_plan import Target, TargetKind
from downrange.admin.reading import TopicReader
from downrange.app.commands.frame import Call, DryRunOption, YesOption, cluster_command, new_app
from downrange.app.commands.group import GroupArgument
from downrange.app.commands.message_form import COLUMNS, as_table, warn_invalid
from downrange.app.commands.output import Row, Shown, Table
from downrange.client.message import ReceivedMessage
from downrange.client.producer import Producer
from downrange.model.names import dlq_topic

app = new_app("Dead letters: messages that a group has given up.")

PRODUCER_GROUP = "DOWNRANGE_DLQ_RESEND"


@cluster_command(app, "list")
async def list_letters(call: Call) -> Shown:
    """The groups that have dead letters."""
    async with call.admin() as admin:
        found = await admin.dead_letters.groups()
    rows: list[Row] = [
        {
            "group": letters.group,
            "topic": letters.topic,
            "messages": letters.count,
            "newest_ms": letters.newest_ms,
        }
        for letters in found
    ]
    return Table(("group", "topic", "messages", "newest_ms"), rows)


@cluster_command(app, "show")
async def show(
    call: Call,
    group: GroupArgument,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="At most so many.")] = 32,
) -> Shown:
    """The oldest dead letters of a group."""
    async with call.admin() as admin:
        letters = await admin.dead_letters.of(group)
        reader = TopicReader(admin.session, letters.topic, on_invalid=warn_invalid)
        found = await _letters(reader, count)
    table = as_table(found)
    for row, letter in zip(table.rows, found, strict=True):
        assert isinstance(row, dict)
        row["origin_topic"] = origin_topic(letter)
    return Table(("origin_topic", *COLUMNS[1:]), table.rows)


@cluster_command(app, "resend")
async def resend(
    call: Call,
    group: GroupArgument,
    message_id: Annotated[
        list[str] | None, typer.Option("--id", help="Only these; several times.")
    ] = None,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="At most so many.")] = 1000,
    to: Annotated[
        ResendTo, typer.Option("--to", help="The group alone, or every group of the topic.")
    ] = ResendTo.GROUP,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> Shown:
    """Send dead letters again; they stay among the dead letters too."""
    async with call.admin() as admin:
        _ = await admin.dead_letters.of(group)
        reader = TopicReader(admin.session, dlq_topic(group), on_invalid=warn_invalid)
        wanted = frozenset(message_id or ())
        found = [
            letter
            for letter in await _letters(reader, None if wanted else count)
            if not wanted or wanted & {letter.message_id, letter.offset_message_id}
        ]
        if not found:
            raise NothingThereError(f"group {group!r} has no such dead letter")
        again = [resent(letter, group, to) for letter in found]
        if not dry_run:
            who = f"group {group}" if to is ResendTo.GROUP else "all groups of their topics"
            call.confirm(f"Send {len(again)} messages again, to {who}?", yes=yes)
            async with Producer(PRODUCER_GROUP, client=call.settings) as producer:
                for message in again:
                    _ = await producer.send(message)
    rows: list[Row] = [
        {
            "message_id": letter.message_id,
            "origin_topic": origin_topic(letter),
            "sent_to": message.topic,
            "action": "would be sent" if dry_run else "sent",
        }
        for letter, message in zip(found, again, strict=True)
    ]
    return Table(("message_id", "origin_topic", "sent_to", "action"), rows)


async def _letters(reader: TopicReader, count: int | None) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    spans = await reader.spans(Target(TargetKind.EARLIEST))
    async for letter in reader.read(spans):
        found.append(letter)
        if len(found) == count:
            break
    return found
