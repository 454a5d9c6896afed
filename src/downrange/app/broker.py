"""`downrange broker`: a broker as a process."""

import argparse
import logging
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from downrange.app.environment import PREFIX
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
from downrange.broker.foreign_settings import judge
from downrange.broker.host_names import ip_of
from downrange.broker.request_times import RequestTimes
from downrange.broker.server import DEFAULT_CONFIG_NAME, Broker, Surroundings
from downrange.broker.settings import BrokerSettings, StoreFileSettings
from downrange.monitoring.observed_broker import ObservedBroker
from downrange.monitoring.settings import MonitoringSettings
from downrange.remoting.network import TcpNetwork
from downrange.remoting.server import CONNECTIONS_MAX
from downrange.remoting.settings import ConnectionSettings
from downrange.runtime.blocking import BlockingThread
from downrange.runtime.clock import SystemClock
from downrange.runtime.descriptor_budget import divide, mappings_max
from downrange.runtime.disk import Disk
from downrange.runtime.open_files import raise_limit
from downrange.runtime.service import OnFailure
from downrange.runtime.settings import SettingsError, SettingsSource, keys_of

_log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments; each wins over the file."""
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="property file, as for mqbroker -c"
    )
    parser.add_argument("-n", "--namesrv", help="name servers, separated by semicolons")
    parser.add_argument("--port", help="port to listen on (10911)")
    parser.add_argument("--store", help="directory of the store")
    add_service_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    start_log(arguments)
    try:
        settings = read_settings(
            arguments.config,
            name_servers=arguments.namesrv,
            port=arguments.port,
            store=arguments.store,
            more=http_options(arguments),
            environ=os.environ,
        )
    except SettingsError as error:
        _log.critical("cannot start: %s", error)
        return 1
    budget = divide(raise_limit(), mappings_max(), CONNECTIONS_MAX)
    around = Surroundings(
        network=TcpNetwork(),
        clock=SystemClock(),
        disk=Disk(),
        chance=random.Random(),  # noqa: S311 - spreads load, guards nothing
        syncs=BlockingThread("sync"),
        saves=BlockingThread("save tables"),
        scrubs=BlockingThread("scrub log"),
        process_id=os.getpid(),
        connections_max=budget.connections,
        connections=settings.connections,
        open_files_max=budget.files,
    )
    door = settings.monitoring.door

    def build(on_failure: OnFailure) -> Service:
        broker = Broker(
            settings.broker,
            settings.store_files,
            around,
            on_failure=on_failure,
            config_file=arguments.config,
            request_times=None if door is None else RequestTimes(),
        )
        if door is None:
            return broker
        name = settings.broker.effective_name
        observed = ObservedBroker(name, broker.view, around.disk, around.clock)
        return MonitoredService(broker, (observed,), around.network, door)

    return run_service(build)


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """All that a broker process is told."""

    broker: BrokerSettings
    store_files: StoreFileSettings
    monitoring: MonitoringSettings
    connections: ConnectionSettings


def read_settings(
    file: Path | None,
    *,
    name_servers: str | None = None,
    port: str | None = None,
    store: str | None = None,
    more: tuple[tuple[str, str, str | None], ...] = (),
    environ: Mapping[str, str] | None = None,
) -> ProcessSettings:
    """Settings of a file, under the environment's, under the command line's.

    Keys without effect and unknown ones are logged; `SettingsError` if a value is invalid, or if a
    setting of RocketMQ decides about the data and is not supported.
    """
    environ = environ or {}
    if file is None:
        # What an operator changed at run time was saved in the store, if no file was given then.
        place = store or environ.get(f"{PREFIX}STOREPATHROOTDIR")
        root = Path(place) if place else StoreFileSettings().root_path
        saved = root / "config" / DEFAULT_CONFIG_NAME
        file = saved if saved.exists() else None
    source = SettingsSource() if file is None else SettingsSource.from_file(file)
    given = Given(
        (
            ("namesrvAddr", "--namesrv", name_servers),
            ("listenPort", "--port", port),
            ("storePathRootDir", "--store", store),
            *more,
        )
    )
    keys = keys_of(BrokerSettings, StoreFileSettings, MonitoringSettings, ConnectionSettings)
    layered(source, keys, given, environ)
    settings = ProcessSettings(
        source.read(BrokerSettings),
        source.read(StoreFileSettings),
        source.read(MonitoringSettings),
        source.read(ConnectionSettings),
    )
    judgement = judge(source.entries, keys)
    if judgement.refusals:
        raise SettingsError("; ".join(judgement.refusals))
    ip_of(settings.broker.effective_address)  # which every record carries
    report_foreign(judgement.without_effect, judgement.unknown)
    return settings
