"""The command `downrange`: one subcommand a process or job."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast


class Job(Protocol):
    """What the module of a subcommand has."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare what the subcommand takes."""
        ...

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it; returns the exit code."""
        ...


@dataclass(frozen=True, slots=True)
class Subcommand:
    """A row of the table below: what it is called, what it does, which module does it."""

    name: str
    about: str
    module: str

    def job(self) -> Job:
        """The module, imported now: a name server need not load a broker to start."""
        return cast("Job", importlib.import_module(self.module))


SUBCOMMANDS = (
    Subcommand("namesrv", "run a name server", "downrange.app.nameserver"),
    Subcommand("broker", "run a broker", "downrange.app.broker"),
    Subcommand("dev", "run a whole cluster for development", "downrange.app.dev"),
    Subcommand("run", "run the handlers of an App", "downrange.app.run"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog="downrange", description="RocketMQ in Python")
    commands = parser.add_subparsers(dest="command", required=True)
    chosen = next((word for word in argv if not word.startswith("-")), None)
    job: Job | None = None
    for command in SUBCOMMANDS:
        subparser = commands.add_parser(command.name, help=command.about, description=command.about)
        if command.name == chosen:
            job = command.job()
            job.add_arguments(subparser)
    arguments = parser.parse_args(argv)
    assert job is not None, "the parser lets only subcommands through"
    return job.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
