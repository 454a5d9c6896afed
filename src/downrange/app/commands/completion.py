"""`downrange completion`: what makes a shell complete our commands."""

import sys
from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]

from downrange.app.commands.frame import local_command, new_app
from downrange.app.commands.output import Form, Shown

app = new_app("Completion for shells.")


class Shell(StrEnum):
    """Shells that can be served."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@local_command(app, "completion")
def completion(
    form: Form, shell: Annotated[Shell, typer.Argument(help="Your shell.")]
) -> Shown | None:
    """Print a script that makes a shell complete commands and options.

    For bash: downrange completion bash > ~/.local/share/bash-completion/completions/downrange
    """
    del form
    script = get_completion_script(
        prog_name="downrange", complete_var="_DOWNRANGE_COMPLETE", shell=shell.value
    )
    sys.stdout.write(script + "\n")
    return None
