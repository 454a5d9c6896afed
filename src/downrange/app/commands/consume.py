"""`downrange consume`: prints messages, as a group member or without one."""

import contextlib
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from downrange.admin.errors import WrongRequestError
from downrange.admin.offset_plan import Target, TargetKind
from downrange.admin.reading import TopicReader
from downrange.app.commands.frame import Call, cluster_command, new_app
from downrange.app.commands.message_form import (
    DEFAULT_FORM,
    FORM_HELP,
    LineForm,
    as_row,
    warn_invalid,
)
from downrange.app.commands.output import Form, Shown, write_line
from downrange.app.commands.places import PLACES, parse_place
from downrange.app.commands.topic import TopicArgument
from downrange.client.client import StartAt, connect
from downrange.client.message import ReceivedMessage
from downrange.filtering.tags import EVERYTHING
from downrange.runtime.clock import SystemClock
from downrange.runtime.printable import printable_lines

app = new_app("Print messages.")

IDLE_S: Final = 5.0  # a group has no end, so with --exit-at-end it ends when nothing comes
LineFormOption = Annotated[
    str, typer.Option("-f", "--format", metavar="FORM", help=FORM_HELP + ".")
]
TagsOption = Annotated[
    str, typer.Option("--tags", metavar="EXPRESSION", help="Only these tags: a || b.")
]
SqlOption = Annotated[
    str | None, typer.Option("--sql", metavar="EXPRESSION", help="Only what SQL92 chooses.")
]
QueueOption = Annotated[
    list[int] | None, typer.Option("-q", "--queue", help="Only these queues; several times.")
]
ReadBrokerOption = Annotated[
    str | None, typer.Option("-b", "--broker", help="Only queues of this broker.")
]


class Printer:
    """Writes messages to standard output until it was enough."""

    def __init__(self, form: Form, line_form: str, count_max: int | None) -> None:
        self._form = form
        self._line_form = LineForm(line_form)
        self._left = count_max
        self._is_terminal = sys.stdout.isatty()

    @property
    def is_done(self) -> bool:
        """Whether nothing more is wanted."""
        return self._left == 0

    def take(self, messages: Sequence[ReceivedMessage]) -> bool:
        """Print; whether more is wanted."""
        for message in messages:
            if self.is_done:
                break
            if self._form is Form.TABLE:
                sys.stdout.buffer.write(self._shown(self._line_form.line(message)))
            else:
                write_line(as_row(message))
            if self._left is not None:
                self._left -= 1
        sys.stdout.flush()
        return not self.is_done

    def _shown(self, line: bytes) -> bytes:
        """A file or a pipe gets the bytes as they are, a terminal nothing that drives it."""
        if not self._is_terminal:
            return line
        columns = line.decode(errors="backslashreplace").split("\t")
        return "\t".join(printable_lines(column) for column in columns).encode()


@cluster_command(app, "consume")
async def consume(
    call: Call,
    topic: TopicArgument,
    group: Annotated[
        str | None,
        typer.Option("-g", "--group", help="As a member of this group: what is printed is done."),
    ] = None,
    start: Annotated[
        str, typer.Option("--from", metavar="PLACE", help=f"Where to begin: {PLACES}.")
    ] = "beginning",
    count: Annotated[
        int | None, typer.Option("-c", "--count", min=1, help="End after so many.")
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("-e", "--exit-at-end", help="End when all is printed.")
    ] = False,
    line_form: LineFormOption = DEFAULT_FORM,
    tags: TagsOption = EVERYTHING,
    sql: SqlOption = None,
    queue: QueueOption = None,
    broker: ReadBrokerOption = None,
) -> Shown | None:
    """Print messages, and go on with what comes until Ctrl-C.

    Without a group nothing is committed and no consumer is disturbed. With one, --from counts only
    if the group is new, and it may be beginning, end or a time.
    """
    if sql is not None and tags != EVERYTHING:
        raise WrongRequestError("choose by --tags or by --sql, not by both")
    printer = Printer(call.form, line_form, count)
    place = parse_place(start, SystemClock().wall_ms())
    if group is not None:
        if queue or broker:
            raise WrongRequestError("a group shares out its queues itself; leave --queue out")
        await _as_member(call, topic, group, place, tags, sql, printer, exit_at_end=exit_at_end)
        return None
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
        await print_from(reader, place, printer, exit_at_end=exit_at_end)
    return None


async def print_from(
    reader: TopicReader, place: Target, printer: Printer, *, exit_at_end: bool
) -> None:
    """Print what is there, in the order of time, then what comes."""
    spans = await reader.spans(place)
    async with contextlib.aclosing(reader.read(spans)) as messages:
        async for message in messages:
            if not printer.take([message]):
                return
    if not exit_at_end:
        await reader.follow({queue: span.stop for queue, span in spans.items()}, printer.take)


async def _as_member(
    call: Call,
    topic: str,
    group: str,
    place: Target,
    tags: str,
    sql: str | None,
    printer: Printer,
    *,
    exit_at_end: bool,
) -> None:
    async with (
        connect(settings=call.settings) as mq,
        mq.consume(
            topic,
            group=group,
            tags=tags,
            sql=sql,
            start_at=_start_at(place),
            idle_timeout_s=IDLE_S if exit_at_end else None,
        ) as stream,
    ):
        async for message in stream:
            if not printer.take([message]):
                stream.ack(message)
                break


def _start_at(place: Target) -> StartAt:
    match place.kind:
        case TargetKind.EARLIEST:
            return "first"
        case TargetKind.LATEST:
            return "last"
        case TargetKind.TIME:
            return datetime.fromtimestamp(place.value / 1000, tz=UTC)
        case _:
            raise WrongRequestError("a new group begins at beginning, end or a time")
