"""What the command line of every server has: its HTTP door and its log."""

import argparse
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from downrange.app.environment import PREFIX, environment_properties
from downrange.app.process import LOG_FORMATS, log_to_stderr
from downrange.runtime.property_text import Property
from downrange.runtime.settings import SettingsSource

_log = logging.getLogger(__name__)
_LEVELS: Final = ("debug", "info", "warning", "error")


def add_service_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument(
        "--http-port",
        metavar="PORT",
        help="port of /healthz, /readyz and /metrics (none); 0 takes a free one",
    )
    parser.add_argument("--http-host", metavar="HOST", help="address of that port (127.0.0.1)")
    add_log_arguments(parser)


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare those of the log; in the environment DOWNRANGE_LOG_FORMAT, DOWNRANGE_LOG_LEVEL."""
    parser.add_argument("--log-format", choices=LOG_FORMATS, help="text (default) or json")
    parser.add_argument("--log-level", choices=_LEVELS, help="least important line to log (info)")


def start_log(
    arguments: argparse.Namespace, environ: Mapping[str, str] | None = None, default: str = "info"
) -> None:
    """Log as asked for; a value of the environment that is none is as if it were not there."""
    environ = os.environ if environ is None else environ
    form = arguments.log_format or environ.get(PREFIX + "LOG_FORMAT", "")
    level = arguments.log_level or environ.get(PREFIX + "LOG_LEVEL", "").lower()
    log_to_stderr(
        logging.getLevelNamesMapping()[(level if level in _LEVELS else default).upper()],
        form if form in LOG_FORMATS else LOG_FORMATS[0],
    )


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line says about settings: key, option, value; None was not said."""

    entries: tuple[tuple[str, str, str | None], ...]

    def properties(self) -> list[Property]:
        """What was said."""
        return [
            Property(key, value, option) for key, option, value in self.entries if value is not None
        ]


def http_options(arguments: argparse.Namespace) -> tuple[tuple[str, str, str | None], ...]:
    """The HTTP door as the command line wants it."""
    return (
        ("httpPort", "--http-port", arguments.http_port),
        ("httpHost", "--http-host", arguments.http_host),
    )


def report_foreign(
    without_effect: Sequence[Property], unknown: Iterable[tuple[Property, str | None]]
) -> None:
    """Log what a start read and does not use: RocketMQ's own keys in one line, others one by one.

    An unknown key comes with the one that may have been meant.
    """
    if without_effect:
        places = ", ".join(dict.fromkeys(entry.source for entry in without_effect))
        names = ", ".join(sorted(entry.key for entry in without_effect))
        _log.warning("%s: settings of RocketMQ without effect here: %s", places, names)
    for entry, meant in unknown:
        hint = f"; did you mean {meant}?" if meant else ""
        _log.warning("%s: unknown setting %s is ignored%s", entry.place, entry.key, hint)


def layered(
    source: SettingsSource, keys: Iterable[str], given: Given, environ: Mapping[str, str]
) -> SettingsSource:
    """A file's settings, under the environment's, under the command line's."""
    source.add(environment_properties(environ, keys))
    source.add(given.properties())
    return source
