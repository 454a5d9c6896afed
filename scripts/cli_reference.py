"""Writes docs/cli-reference.md from the commands themselves; a test checks that it is up to date.

python scripts/cli_reference.py           writes the page
python scripts/cli_reference.py --print   prints it
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import typer

from downrange.app.cli import SUBCOMMANDS, Subcommand
from downrange.app.commands.frame import EXIT_CODES, root_app

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli-reference.md"
WIDTH = 100


def reference() -> str:
    """The whole page."""
    parts = [
        "# Commands\n\nWritten by `scripts/cli_reference.py` from the commands themselves. "
        "[cli.md](cli.md) says which one does which job.\n",
        "## Exit codes\n\n| code | meaning |\n| --- | --- |\n"
        + "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES.items()),
    ]
    for row in SUBCOMMANDS:
        if row.process:
            parts.append(_process(row))
        if row.commands:
            parts += _commands(row)
    return "\n".join(parts)


def _process(row: Subcommand) -> str:
    """A command that argparse reads; its own help differs from one Python to the next."""
    parser = argparse.ArgumentParser()
    row.job().add_arguments(parser)
    lines = []
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to list them
        if action.dest != "help":
            value = action.metavar or action.dest.upper()
            takes = "" if action.nargs == 0 else f" {value}"
            name = ", ".join(action.option_strings) + takes if action.option_strings else value
            about = (action.help or "").replace("%(default)s", str(action.default))
            lines.append(f"| `{name}` | {about} |")
    table = "| argument | meaning |\n| --- | --- |\n" + "\n".join(lines)
    about = row.about.split(";")[0]
    return f"## downrange {row.name}\n\n{about[0].upper()}{about[1:]}.\n\n{table}\n"


def _commands(row: Subcommand) -> Iterator[str]:
    root = typer.main.get_command(root_app([row], {row.name}))
    # An app with one command is that command.
    found = getattr(root, "commands", {}).get(row.name, root)
    yield from _help(found, f"downrange {row.name}")


def _help(command: "typer.core.TyperCommand | typer.core.TyperGroup", name: str) -> Iterator[str]:
    below = getattr(command, "commands", None)
    if below:
        for word, sub in below.items():
            yield from _help(sub, f"{name} {word}")
        return
    context = typer.Context(command, info_name=name, terminal_width=WIDTH, max_content_width=WIDTH)
    lines = [line.rstrip() for line in command.get_help(context).strip().splitlines()]
    yield f"## {name}\n\n```text\n" + "\n".join(lines) + "\n```\n"


def main() -> int:
    """Write or print the page."""
    if "--print" in sys.argv[1:]:
        sys.stdout.write(reference())
    else:
        PAGE.write_text(reference(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
