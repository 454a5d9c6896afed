"""`downrange store`: the files of a stopped broker, ours or Apache's."""

from pathlib import Path
from typing import Annotated

import typer

from downrange.app.commands.frame import (
    EXIT_FAILED,
    EXIT_FINDINGS,
    EXIT_NOT_FOUND,
    Stop,
    local_command,
    new_app,
)
from downrange.app.commands.message_form import as_invalid_row, as_row
from downrange.app.commands.output import Form, Record, Row, Shown, Table, write, write_line
from downrange.app.stopped_store import NoStoreError, StoppedStore, StoreInUseError
from downrange.client.record_reader import read_response
from downrange.runtime.durable_file import DurableFileError
from downrange.runtime.printable import printable
from downrange.runtime.settings import SettingsError
from downrange.store.errors import StoreError

app = new_app("Files of a stopped broker, ours or Apache's; nothing is changed.")

DirectoryArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="The store, storePathRootDir.")
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "-c", "--config", metavar="FILE", help="The broker's property file, for file sizes."
    ),
]
CommitLogOption = Annotated[
    str | None,
    typer.Option(
        "--commit-log",
        metavar="DIRS",
        help="Directories of the log if elsewhere, separated by commas: storePathCommitLog.",
    ),
]


@local_command(app, "inspect")
def inspect(
    form: Form,
    directory: DirectoryArgument,
    config: ConfigOption = None,
    commit_log: CommitLogOption = None,
) -> Shown:
    """What is there: log, queues, tables; quick, without reading the log."""
    del form
    with _opened(directory, config, commit_log) as store:
        try:
            facts = store.facts()
        except DurableFileError as error:
            raise Stop(EXIT_FINDINGS, str(error)) from error
        queues: list[Row] = [
            {
                "topic": queue.topic,
                "queue": queue.queue_id,
                "min_offset": queue.min_offset,
                "max_offset": queue.max_offset,
                "messages": queue.max_offset - queue.min_offset,
            }
            for queue in sorted(store.queues, key=lambda one: (one.topic, one.queue_id))
        ]
    columns = ("topic", "queue", "min_offset", "max_offset", "messages")
    return Record(facts, {"queues": Table(columns, queues)})


@local_command(app, "verify")
def verify(
    form: Form,
    directory: DirectoryArgument,
    config: ConfigOption = None,
    commit_log: CommitLogOption = None,
) -> Shown | None:
    """Read the whole log with its checksums and compare queues and index with it."""
    store = _checked(directory, config, commit_log)
    try:
        report = store.verify()
    except StoreError as error:
        raise Stop(EXIT_FINDINGS, str(error)) from error
    damages: list[Row] = [
        {
            "file": str(one.path),
            "position": one.position,
            "bytes": one.size,
            "reason": one.reason,
        }
        for one in report.damages
    ]
    record = Record(
        {
            "directory": str(directory),
            "sound": report.is_sound,
            "end_offset": report.end_offset,
            "records": report.record_count,
            "queue_entries": report.entry_count,
            "holes": report.hole_count,
            "keys": report.key_count,
            "index_checked": store.settings.index_enabled,
        },
        {"damages": Table(("file", "position", "bytes", "reason"), damages)},
    )
    if report.is_sound:
        return record
    write(record, form)
    raise Stop(EXIT_FINDINGS)


@local_command(app, "dump")
def dump(
    form: Form,
    directory: DirectoryArgument,
    config: ConfigOption = None,
    commit_log: CommitLogOption = None,
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Only this topic.")] = None,
    queue: Annotated[int | None, typer.Option("-q", "--queue", help="Only this queue.")] = None,
    start: Annotated[
        int, typer.Option("--from", metavar="OFFSET", help="Physical offset of a record.")
    ] = 0,
    count: Annotated[int | None, typer.Option("--count", min=1, help="At most so many.")] = None,
) -> Shown | None:
    """Print messages of the log as JSON lines, in the order in which they were stored."""
    del form
    left = count
    with _opened(directory, config, commit_log) as store:
        wanted = topic.encode() if topic is not None else None
        for scanned, record in store.records(start):
            if wanted not in {None, scanned[6]} or queue not in {None, scanned[2]}:
                continue
            read = read_response(record)
            for message in read.messages:
                write_line({"physical_offset": scanned[0], **as_row(message)})
            for invalid in read.invalid:
                write_line({"physical_offset": scanned[0], **as_invalid_row(invalid)})
            if left is not None:
                left -= 1
                if left == 0:
                    break
        damages = list(store.damages)
    for damage in damages:
        typer.echo(printable(f"downrange: damage: {damage}"), err=True)
    if damages:
        raise Stop(EXIT_FINDINGS)
    return None


def _checked(directory: Path, config: Path | None, commit_log: str | None) -> StoppedStore:
    try:
        return StoppedStore(directory, config, commit_log)
    except (NoStoreError, SettingsError) as error:
        raise Stop(EXIT_NOT_FOUND, str(error)) from error
    except StoreInUseError as error:
        raise Stop(EXIT_FAILED, str(error)) from error


def _opened(directory: Path, config: Path | None, commit_log: str | None) -> StoppedStore:
    store = _checked(directory, config, commit_log)
    try:
        store.open()
    except StoreError as error:
        raise Stop(EXIT_FINDINGS, str(error)) from error
    return store
