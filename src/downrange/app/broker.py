"""`downrange broker`: a broker as a process."""

import argparse
import logging
import os
import random
from pathlib import Path

from downrange.app.process import log_to_stderr, run_service
from downrange.broker.server import DEFAULT_CONFIG_NAME, Broker, Surroundings
from downrange.broker.settings import BrokerSettings, StoreFileSettings
from downrange.remoting.network import TcpNetwork
from downrange.remoting.server import CONNECTIONS_MAX
from downrange.runtime.blocking import BlockingThread
from downrange.runtime.clock import SystemClock
from downrange.runtime.disk import Disk
from downrange.runtime.open_files import raise_limit
from downrange.runtime.property_text import Property
from downrange.runtime.settings import SettingsError, SettingsSource

_log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments; each wins over the file."""
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="property file, as for mqbroker -c"
    )
    parser.add_argument("-n", "--namesrv", help="name servers, separated by semicolons")
    parser.add_argument("--port", help="port to listen on (10911)")
    parser.add_argument("--store", help="directory of the store")


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    log_to_stderr()
    try:
        settings, store_files = read_settings(
            arguments.config,
            name_servers=arguments.namesrv,
            port=arguments.port,
            store=arguments.store,
        )
    except SettingsError as error:
        _log.critical("cannot start: %s", error)
        return 1
    around = Surroundings(
        network=TcpNetwork(),
        clock=SystemClock(),
        disk=Disk(),
        chance=random.Random(),  # noqa: S311 - spreads load, guards nothing
        syncs=BlockingThread("sync"),
        process_id=os.getpid(),
        # Logs and queues are files too, and those of a full broker are more than a few.
        connections_max=min(raise_limit() // 2, CONNECTIONS_MAX),
    )
    return run_service(
        lambda on_failure: Broker(
            settings,
            store_files,
            around,
            on_failure=on_failure,
            config_file=arguments.config,
        )
    )


def read_settings(
    file: Path | None,
    *,
    name_servers: str | None = None,
    port: str | None = None,
    store: str | None = None,
) -> tuple[BrokerSettings, StoreFileSettings]:
    """Settings of a file and of the command line; what nobody knows is logged."""
    if file is None:
        # What an operator changed at run time was saved in the store, if no file was given then.
        root = Path(store) if store else StoreFileSettings().root_path
        saved = root / "config" / DEFAULT_CONFIG_NAME
        file = saved if saved.exists() else None
    source = SettingsSource() if file is None else SettingsSource.from_file(file)
    given = {
        "namesrvAddr": ("--namesrv", name_servers),
        "listenPort": ("--port", port),
        "storePathRootDir": ("--store", store),
    }
    source.add(
        Property(key, value, option) for key, (option, value) in given.items() if value is not None
    )
    settings = source.read(BrokerSettings), source.read(StoreFileSettings)
    for entry in source.unused:
        _log.warning("%s: no such setting: %s", entry.place, entry.key)
    return settings
