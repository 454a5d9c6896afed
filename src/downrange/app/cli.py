"""The command `downrange`: one subcommand a process or job."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from downrange.app import broker, nameserver, run


@dataclass(frozen=True, slots=True)
class Subcommand:
    """A row of the table below: what it is called, what it takes, what it does."""

    name: str
    about: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


SUBCOMMANDS = (
    Subcommand("namesrv", "run a name server", nameserver.add_arguments, nameserver.run),
    Subcommand("broker", "run a broker", broker.add_arguments, broker.run),
    Subcommand("run", "run the handlers of an App", run.add_arguments, run.run),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns the exit code."""
    parser = argparse.ArgumentParser(prog="downrange", description="RocketMQ in Python")
    commands = parser.add_subparsers(dest="command", required=True)
    table = {command.name: command for command in SUBCOMMANDS}
    for command in SUBCOMMANDS:
        subparser = commands.add_parser(command.name, help=command.about, description=command.about)
        command.add_arguments(subparser)
    arguments = parser.parse_args(argv)
    return table[arguments.command].run(arguments)


if __name__ == "__main__":
    sys.exit(main())
