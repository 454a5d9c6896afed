"""Runs the command `downrange` inside a test: what it prints, how it ends."""

import json
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from downrange.app.cli import SUBCOMMANDS
from downrange.app.commands.frame import root_app

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Json:
        """What `-o json` has printed."""
        found: Json = json.loads(self.out)
        return found

    @property
    def rows(self) -> list[dict[str, Json]]:
        """What `-o jsonl` has printed."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Somebody with a terminal: a name server, and a folder for settings."""

    name_server: str
    config_folder: Path

    def run(self, *words: str, stdin: str | bytes = "") -> Ended:
        """Run a command to its end, whatever that is."""
        environment = {
            "DOWNRANGE_CONFIG_DIR": str(self.config_folder),
            "DOWNRANGE_NAME_SERVERS": self.name_server,
            "DOWNRANGE_CONTEXT": None,
            "NAMESRV_ADDR": None,
        }
        app = root_app(SUBCOMMANDS, {words[0]})
        done = CliRunner().invoke(app, list(words), input=stdin, env=environment)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Ended(done.exit_code, done.stdout, done.stderr)

    def do(self, *words: str, stdin: str | bytes = "") -> Ended:
        """Run a command that has to succeed."""
        done = self.run(*words, stdin=stdin)
        assert done.code == 0, (words, done)
        return done

    def json(self, *words: str, stdin: str | bytes = "") -> Json:
        """What a command that succeeds prints as JSON."""
        return self.do(*words, "-o", "json", stdin=stdin).json

    def rows(self, *words: str, stdin: str | bytes = "") -> list[dict[str, Json]]:
        """What a command that succeeds prints as JSON lines."""
        return self.do(*words, "-o", "jsonl", stdin=stdin).rows
