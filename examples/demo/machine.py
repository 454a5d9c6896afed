"""What the demonstration needs of the machine, and how to get what is missing."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from typing import Final

JAVA_MIN: Final = 17
ASK_S_MAX: Final = 30.0
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_INSTALLERS: Final = {
    "apt-get": "sudo apt-get install -y openjdk-17-jre-headless",
    "dnf": "sudo dnf install -y java-17-openjdk-headless",
    "apk": "sudo apk add openjdk17-jre-headless",
    "pacman": "sudo pacman -S jre17-openjdk-headless",
    "brew": "brew install openjdk@17",
}


class MissingError(Exception):
    """Something is not there; the text says what, and the command that installs it."""


def find_java(
    environment: Mapping[str, str] = os.environ,
    which: Callable[[str], str | None] = shutil.which,
) -> int:
    """The version of the Java that Spark will run on; `MissingError` if there is none for it."""
    home = environment.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else which("java")
    if java is None:
        raise MissingError(
            f"Spark needs Java {JAVA_MIN} or newer, and there is none. {_how(which)}"
        )
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=ASK_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        hint = " Mend or unset JAVA_HOME." if home else ""
        raise MissingError(f"{java} cannot be run: {error}.{hint} {_how(which)}") from None
    found = _VERSION.search(done.stderr + done.stdout)
    if found is None:
        raise MissingError(f"{java} does not say its version, so it is no Java. {_how(which)}")
    version = int(found.group(1))
    if version < JAVA_MIN:
        raise MissingError(
            f"Spark needs Java {JAVA_MIN} or newer, and {java} is {version}. {_how(which)}"
        )
    return version


def _how(which: Callable[[str], str | None]) -> str:
    for tool, command in _INSTALLERS.items():
        if which(tool) is not None:
            return f"Install it with\n    {command}"
    return f"Install a JDK {JAVA_MIN}, for example from https://adoptium.net"
