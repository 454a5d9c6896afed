"""The options of a process (`downrange dev`, …) as those of a command, for shells that complete.

Processes take their words with argparse, which is up sooner; typer knows how to talk to shells.
"""

import argparse
import inspect
from collections.abc import Callable
from typing import Protocol, cast

import typer


class Process(Protocol):
    """The module of a process."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare what it takes."""
        ...


def completed_by(process: Process) -> Callable[[], None]:
    """A function that does nothing and has the options of a process."""
    parser = argparse.ArgumentParser(add_help=False)
    process.add_arguments(parser)
    parameters = [
        inspect.Parameter(
            action.dest,
            inspect.Parameter.KEYWORD_ONLY,
            default=typer.Option(None, *action.option_strings, help=action.help or ""),
            annotation=bool if action.nargs == 0 else str,
        )
        for action in parser._actions  # noqa: SLF001 - argparse has no other way
        if action.option_strings
    ]

    def nothing(**_: object) -> None: ...

    nothing.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    nothing.__annotations__ = {one.name: one.annotation for one in parameters}
    return cast("Callable[[], None]", nothing)
