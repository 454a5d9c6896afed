"""`downrange namesrv`: a name server as a process."""

import argparse
import logging
from pathlib import Path

from downrange.app.process import log_to_stderr, run_service
from downrange.nameserver.server import NameServer
from downrange.nameserver.settings import WITHOUT_EFFECT, NameServerSettings
from downrange.remoting.network import TcpNetwork
from downrange.remoting.server import CONNECTIONS_MAX
from downrange.runtime.clock import SystemClock
from downrange.runtime.disk import Disk
from downrange.runtime.open_files import raise_limit
from downrange.runtime.property_text import Property
from downrange.runtime.settings import SettingsError, SettingsSource

_log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments; each wins over the file."""
    parser.add_argument("--port", help="port to listen on (9876)")
    parser.add_argument("--host", help="address to listen on (0.0.0.0)")
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="property file, as for mqnamesrv -c"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    log_to_stderr()
    try:
        settings = read_settings(arguments.config, port=arguments.port, host=arguments.host)
    except SettingsError as error:
        _log.critical("cannot start: %s", error)
        return 1

    connections_max = min(raise_limit() * 3 // 4, CONNECTIONS_MAX)
    return run_service(
        lambda on_failure: NameServer(
            settings,
            TcpNetwork(),
            SystemClock(),
            Disk(),
            on_failure=on_failure,
            connections_max=connections_max,
        )
    )


def read_settings(
    file: Path | None, *, port: str | None = None, host: str | None = None
) -> NameServerSettings:
    """Settings of a file and of the command line; what nobody knows is logged."""
    source = SettingsSource() if file is None else SettingsSource.from_file(file)
    given = {"listenPort": ("--port", port), "bindAddress": ("--host", host)}
    # A change at run time goes into the file that the process was started with, as in RocketMQ.
    given["configStorePath"] = ("--config", None if file is None else str(file.absolute()))
    source.add(
        Property(key, value, option) for key, (option, value) in given.items() if value is not None
    )
    settings = source.read(NameServerSettings)
    for entry in source.unused:
        if entry.key in WITHOUT_EFFECT:
            _log.info("%s: %s has no effect in this name server", entry.place, entry.key)
        else:
            _log.warning("%s: no such setting: %s", entry.place, entry.key)
    return settings
