"""`downrange namesrv`: a name server as a process."""

import argparse
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from downrange.app.monitored import MonitoredService
from downrange.app.process import Service, run_service
from downrange.app.service_options import (
    Given,
    add_service_arguments,
    http_options,
    layered,
    report_foreign,
    start_log,
)
from downrange.monitoring.observed_nameserver import ObservedNameServer
from downrange.monitoring.settings import MonitoringSettings
from downrange.nameserver.server import NameServer
from downrange.nameserver.settings import WITHOUT_EFFECT, NameServerSettings
from downrange.remoting.network import TcpNetwork
from downrange.remoting.server import CONNECTIONS_MAX
from downrange.remoting.settings import ConnectionSettings
from downrange.runtime.clock import SystemClock
from downrange.runtime.disk import Disk
from downrange.runtime.open_files import raise_limit
from downrange.runtime.service import OnFailure
from downrange.runtime.settings import SettingsError, SettingsSource, keys_of, nearest_key

_log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments; each wins over the file."""
    parser.add_argument("--port", help="port to listen on (9876)")
    parser.add_argument("--host", help="address to listen on (0.0.0.0)")
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="property file, as for mqnamesrv -c"
    )
    add_service_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    start_log(arguments)
    try:
        settings, monitoring, connections = read_settings(
            arguments.config,
            port=arguments.port,
            host=arguments.host,
            more=http_options(arguments),
            environ=os.environ,
        )
    except SettingsError as error:
        _log.critical("cannot start: %s", error)
        return 1
    connections_max = min(raise_limit() * 3 // 4, CONNECTIONS_MAX)
    network, door = TcpNetwork(), monitoring.door

    def build(on_failure: OnFailure) -> Service:
        server = NameServer(
            settings,
            network,
            SystemClock(),
            Disk(),
            on_failure=on_failure,
            connections_max=connections_max,
            connections=connections,
        )
        if door is None:
            return server
        return MonitoredService(server, (ObservedNameServer(server.view),), network, door)

    return run_service(build)


def read_settings(
    file: Path | None,
    *,
    port: str | None = None,
    host: str | None = None,
    more: tuple[tuple[str, str, str | None], ...] = (),
    environ: Mapping[str, str] | None = None,
) -> tuple[NameServerSettings, MonitoringSettings, ConnectionSettings]:
    """Settings of a file, under the environment's, under the command line's.

    Keys without effect and unknown ones are logged.
    """
    source = SettingsSource() if file is None else SettingsSource.from_file(file)
    given = Given(
        (
            ("listenPort", "--port", port),
            ("bindAddress", "--host", host),
            # A change at run time goes into the file that the process was started with, as in
            # RocketMQ.
            ("configStorePath", "--config", None if file is None else str(file.absolute())),
            *more,
        )
    )
    keys = keys_of(NameServerSettings, MonitoringSettings, ConnectionSettings)
    layered(source, keys, given, environ or {})
    settings = (
        source.read(NameServerSettings),
        source.read(MonitoringSettings),
        source.read(ConnectionSettings),
    )
    known = WITHOUT_EFFECT.union(keys)
    report_foreign(
        [entry for entry in source.unused if entry.key in WITHOUT_EFFECT],
        [
            (entry, nearest_key(entry.key, known))
            for entry in source.unused
            if entry.key not in WITHOUT_EFFECT
        ],
    )
    return settings
