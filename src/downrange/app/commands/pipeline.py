"""`downrange pipeline`: runs, checks and lists pipeline files; Spark does the work."""

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Protocol, cast

import typer

from downrange.app.commands.frame import (
    EXIT_FAILED,
    EXIT_OK,
    DryRunOption,
    Stop,
    local_command,
    new_app,
)
from downrange.app.commands.output import Form, Shown

app = new_app("Pipelines on Spark: archive, transform, replay, dead letters, analytics.")

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A pipeline file (TOML).")]


class _Process(Protocol):
    """`downrange.spark.pipelines.process`, which is loaded when it is needed."""

    def run_file(
        self, path: Path, environment: Mapping[str, str], *, once: bool, dry_run: bool
    ) -> int: ...

    def check_file(self, path: Path, environment: Mapping[str, str]) -> int: ...

    def list_folder(self, folder: Path, environment: Mapping[str, str]) -> int: ...


@local_command(app, "run")
def run(
    form: Form,
    file: FileArgument,
    once: Annotated[bool, typer.Option("--once", help="Take what is there now, then end.")] = False,
    dry_run: DryRunOption = False,
) -> Shown | None:
    """Run a pipeline until it is done or a signal comes; it goes on where it stopped.

    A line a batch tells of rows, rows a second and the lag. A dry run is for replays and resends:
    they print what they would send.
    """
    del form
    return _end(_process().run_file(file, os.environ, once=once, dry_run=dry_run))


@local_command(app, "check")
def check(form: Form, file: FileArgument) -> Shown | None:
    """Check a pipeline file without running it."""
    del form
    return _end(_process().check_file(file, os.environ))


@local_command(app, "list")
def list_(
    form: Form,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the files are.")] = Path(),
) -> Shown | None:
    """List the pipeline files of a folder."""
    del form
    return _end(_process().list_folder(folder, os.environ))


def _process() -> _Process:
    try:
        return cast("_Process", importlib.import_module("downrange.spark.pipelines.process"))
    except ModuleNotFoundError as error:
        raise Stop(EXIT_FAILED, f"pipelines need the extra downrange[spark]: {error}") from None


def _end(code: int) -> Shown | None:
    if code != EXIT_OK:
        raise Stop(code)
    return None
