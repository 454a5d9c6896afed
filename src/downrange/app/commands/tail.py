"""`downrange tail`: the last messages of a topic, and what comes."""

from collections import deque
from typing import Annotated

import typer

from downrange.admin.offset_plan import Target, TargetKind
from downrange.admin.reading import TopicReader
from downrange.app.commands.consume import (
    LineFormOption,
    Printer,
    QueueOption,
    ReadBrokerOption,
    SqlOption,
    TagsOption,
)
from downrange.app.commands.frame import Call, cluster_command, new_app
from downrange.app.commands.message_form import DEFAULT_FORM, warn_invalid
from downrange.app.commands.output import Shown
from downrange.app.commands.topic import TopicArgument
from downrange.client.message import ReceivedMessage
from downrange.filtering.tags import EVERYTHING

app = new_app("The last messages, and what comes.")


@cluster_command(app, "tail")
async def tail(
    call: Call,
    topic: TopicArgument,
    lines: Annotated[
        int, typer.Option("-l", "--last", min=0, help="How many of those that are there.")
    ] = 10,
    count: Annotated[
        int | None, typer.Option("-c", "--count", min=1, help="End after so many.")
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("-e", "--exit-at-end", help="Do not wait for what comes.")
    ] = False,
    line_form: LineFormOption = DEFAULT_FORM,
    tags: TagsOption = EVERYTHING,
    sql: SqlOption = None,
    queue: QueueOption = None,
    broker: ReadBrokerOption = None,
) -> Shown | None:
    """Print the last messages of a topic, then what comes until Ctrl-C.

    Tags and SQL choose among the last messages of each queue, so fewer may be printed.
    """
    printer = Printer(call.form, line_form, count)
    async with call.admin() as admin:
        reader = TopicReader(
            admin.session,
            topic,
            queue_ids=queue or (),
            broker=broker,
            tags=tags,
            sql=sql,
            on_invalid=warn_invalid,
        )
        spans = await reader.spans(Target(TargetKind.SHIFT, -lines))
        last: deque[ReceivedMessage] = deque(maxlen=lines)
        async for message in reader.read(spans):
            last.append(message)
        if printer.take(last) and not exit_at_end:
            await reader.follow({one: span.stop for one, span in spans.items()}, printer.take)
    return None
