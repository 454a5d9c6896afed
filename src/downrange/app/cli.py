"""The command `downrange`: finds who does a job, and loads nothing else.

Servers must be up in a moment and `--help` must not be waited for, so typer is loaded only for the
commands that are made with it. Adding a command is a row in the table and a module.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    import argparse

EXIT_OK: Final = 0
EXIT_USAGE: Final = 2
COMPLETION_VARIABLE: Final = "_DOWNRANGE_COMPLETE"


class Job(Protocol):
    """What the module of a process has."""

    def add_arguments(self, parser: "argparse.ArgumentParser") -> None:
        """Declare what the subcommand takes."""
        ...

    def run(self, arguments: "argparse.Namespace") -> int:
        """Do it; returns the exit code."""
        ...


class Subcommand(NamedTuple):
    """A row of the table below: what it is called, what it does, which module does it.

    `process` is a module with `add_arguments` and `run`, for what runs until a signal comes.
    `commands` is a module with `app`, a typer app. Where a name has both, `words` are those that
    lead to the second.
    """

    name: str
    about: str
    process: str = ""
    commands: str = ""
    words: tuple[str, ...] = ()

    def job(self) -> Job:
        """The module, imported now: a name server need not load a broker to start."""
        return cast("Job", importlib.import_module(self.process))

    def is_process(self, following: Sequence[str]) -> bool:
        """Whether these words behind the name mean the process."""
        return bool(self.process) and not (following and following[0] in self.words)


_COMMANDS: Final = "downrange.app.commands."
SUBCOMMANDS: Final = (
    Subcommand("namesrv", "run a name server", process="downrange.app.nameserver"),
    Subcommand(
        "broker",
        "run a broker; show one, change its settings",
        process="downrange.app.broker",
        commands=_COMMANDS + "broker",
        words=("show", "config"),
    ),
    Subcommand("dev", "run a whole cluster for development", process="downrange.app.dev"),
    Subcommand("run", "run the handlers of an App", process="downrange.app.run"),
    Subcommand("context", "named clusters: add, use, list, remove", commands=_COMMANDS + "context"),
    Subcommand("cluster", "show the brokers of a cluster", commands=_COMMANDS + "cluster"),
    Subcommand("topic", "list, show, create, delete topics", commands=_COMMANDS + "topic"),
    Subcommand("group", "consumer groups: settings, lag, clients", commands=_COMMANDS + "group"),
    Subcommand("offset", "show, reset, clone offsets of a group", commands=_COMMANDS + "offset"),
    Subcommand("message", "find messages by id, key, offset, time", commands=_COMMANDS + "message"),
    Subcommand("dlq", "dead letters: list, show, send again", commands=_COMMANDS + "dlq"),
    Subcommand("produce", "send lines of standard input", commands=_COMMANDS + "produce"),
    Subcommand("consume", "print messages, in a group or without", commands=_COMMANDS + "consume"),
    Subcommand("tail", "print the last messages and what comes", commands=_COMMANDS + "tail"),
    Subcommand("bench", "measure a small load", commands=_COMMANDS + "bench"),
    Subcommand("doctor", "find the classical mistakes", commands=_COMMANDS + "doctor"),
    Subcommand("store", "files of a stopped broker", commands=_COMMANDS + "store"),
    Subcommand("pipeline", "archive, transform, replay on Spark", commands=_COMMANDS + "pipeline"),
    Subcommand("completion", "print completion for a shell", commands=_COMMANDS + "completion"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if COMPLETION_VARIABLE in os.environ:
        return _typer().complete(SUBCOMMANDS)
    if not words:
        sys.stderr.write(f"{help_text()}\ndownrange: name a command\n")
        raise SystemExit(EXIT_USAGE)
    if words[0] in {"-h", "--help", "help"}:
        sys.stdout.write(help_text())
        return EXIT_OK
    if words[0] in {"-V", "--version"}:
        sys.stdout.write(f"downrange {_version()}\n")
        return EXIT_OK
    chosen = next((row for row in SUBCOMMANDS if row.name == words[0]), None)
    if chosen is None:
        sys.stderr.write(f"downrange: {_unknown(words[0])}\n")
        raise SystemExit(EXIT_USAGE)
    if chosen.is_process(words[1:]):
        return _run_process(chosen, words[1:])
    return _typer().run(chosen.name, chosen.commands, words[1:])


def help_text() -> str:
    """What `downrange --help` prints."""
    width = max(len(row.name) for row in SUBCOMMANDS)
    lines = [f"  {row.name:{width}}  {row.about}" for row in SUBCOMMANDS]
    return (
        "usage: downrange COMMAND …\n\nRocketMQ in Python\n\ncommands:\n"
        + "\n".join(lines)
        + "\n\n`downrange COMMAND --help` says more.\n"
        "The cluster is that of -n, --context, $DOWNRANGE_NAME_SERVERS, the context in use,\n"
        "$NAMESRV_ADDR, else 127.0.0.1:9876.\n"
    )


class _Typer(Protocol):
    """`downrange.app.commands.frame`, as far as this module needs it."""

    def run(self, name: str, module: str, words: list[str]) -> int: ...

    def complete(self, rows: Sequence[Subcommand]) -> int: ...


def _typer() -> _Typer:
    return cast("_Typer", importlib.import_module(_COMMANDS + "frame"))


def _run_process(row: Subcommand, words: list[str]) -> int:
    import argparse  # noqa: PLC0415 - a third of what --help would take

    job = row.job()
    more = f"`downrange {row.name} {'|'.join(row.words)} --help`: the other commands"
    parser = argparse.ArgumentParser(
        prog=f"downrange {row.name}", description=row.about, epilog=more if row.words else None
    )
    job.add_arguments(parser)
    return job.run(parser.parse_args(words))


def _unknown(word: str) -> str:
    if word.startswith("-"):
        return f"no such option: {word}; options stand behind the command"
    import difflib  # noqa: PLC0415 - likewise

    near = difflib.get_close_matches(word, [row.name for row in SUBCOMMANDS], n=1)
    hint = f", did you mean {near[0]!r}?" if near else "; `downrange --help` lists them"
    return f"no such command: {word!r}{hint}"


def _version() -> str:
    return importlib.import_module("importlib.metadata").version("downrange")  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
