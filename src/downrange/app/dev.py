"""`downrange dev`: name server and brokers in one process, ready for a first message."""

import argparse
import logging
import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TextIO

from downrange.app.dev_text import DevAddresses, json_line, welcome
from downrange.app.process import StartError, run_service
from downrange.app.service_options import add_log_arguments, start_log
from downrange.broker.settings import BrokerSettings, StoreFileSettings
from downrange.embedded.addresses import EVERYWHERE, LOOPBACK, is_in_container
from downrange.embedded.cluster import ClusterError, EmbeddedCluster, PortTakenError
from downrange.embedded.plan import BROKERS_MAX, FIRST_BROKER_PORT, ClusterPlan, Parts
from downrange.embedded.ports import FREE_PORTS
from downrange.monitoring.http_server import HttpServer
from downrange.monitoring.observed_broker import ObservedBroker
from downrange.monitoring.observed_nameserver import ObservedNameServer
from downrange.monitoring.pages import Observed, Pages
from downrange.monitoring.readiness import Lifecycle, Phase
from downrange.remoting.server import CONNECTIONS_MAX
from downrange.runtime.descriptor_budget import divide, mappings_max
from downrange.runtime.open_files import raise_limit
from downrange.runtime.property_text import Property
from downrange.runtime.service import OnFailure
from downrange.runtime.settings import SettingsError, SettingsSource

_log = logging.getLogger(__name__)

NAME_SERVER_PORT: Final = 9876
PORT_MAX: Final = 65_535
NO_HTTP: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DevOptions:
    """What the command line says."""

    port: int = NAME_SERVER_PORT
    broker_port: int = FIRST_BROKER_PORT
    any_port: bool = False
    brokers: int = 1
    host: str = ""
    advertise: str = ""
    data: Path | None = None
    settings: tuple[str, ...] = ()
    http_port: int = 0
    as_json: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--port", type=int, default=NAME_SERVER_PORT, help="port of the name server (%(default)s)"
    )
    parser.add_argument(
        "--broker-port",
        type=int,
        default=FIRST_BROKER_PORT,
        help="port of the first broker (%(default)s); the next ones are 10 apart",
    )
    parser.add_argument("--any-port", action="store_true", help="take ports that are free")
    parser.add_argument(
        "-n", "--brokers", type=int, default=1, metavar="COUNT", help="number of brokers (1)"
    )
    parser.add_argument(
        "--host",
        default="",
        help="address to listen on (127.0.0.1; in a container 0.0.0.0)",
    )
    parser.add_argument(
        "--advertise",
        default="",
        metavar="ADDRESS",
        help="address that clients are told, if the one found out is not reached by them",
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="where to keep messages (a temporary directory)"
    )
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a broker setting under RocketMQ's name; may be repeated",
    )
    parser.add_argument(
        "--http-port",
        type=int,
        default=0,
        metavar="PORT",
        help="port of /healthz, /readyz and /metrics (a free one); -1 for none",
    )
    parser.add_argument("--json", dest="as_json", action="store_true", help="one line for scripts")
    add_log_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    options = DevOptions(
        port=arguments.port,
        broker_port=arguments.broker_port,
        any_port=arguments.any_port,
        brokers=arguments.brokers,
        host=arguments.host,
        advertise=arguments.advertise,
        data=arguments.data,
        settings=tuple(arguments.settings),
        http_port=arguments.http_port,
        as_json=arguments.as_json,
    )
    start_log(arguments, default="warning")
    return serve(options, sys.stdout)


def serve(options: DevOptions, out: TextIO) -> int:
    """Run the cluster until a signal comes; says on `out` where it is."""
    try:
        plan = plan_of(options)
    except (SettingsError, ValueError) as error:
        _log.critical("cannot start: %s", error)
        return 1
    # The name server and the brokers share the process, and what it may open.
    share = raise_limit() // (options.brokers + 1)
    budget = divide(share, mappings_max() // options.brokers, CONNECTIONS_MAX)
    parts = Parts(
        connections_max=budget.connections,
        open_files_max=budget.files,
        measures_requests=options.http_port >= 0,
    )
    return run_service(lambda on_failure: _DevService(plan, parts, options, out, on_failure))


def plan_of(options: DevOptions) -> ClusterPlan:
    """The cluster that the options describe; `SettingsError` or `ValueError` if none."""
    for name, port, least in (
        ("--port", options.port, 0),
        ("--broker-port", options.broker_port, 0),
        ("--http-port", options.http_port, NO_HTTP),
    ):
        if not least <= port <= PORT_MAX:
            raise ValueError(f"{name} is {port}, but must be from {least} to {PORT_MAX}")
    if not 1 <= options.brokers <= BROKERS_MAX:
        raise ValueError(f"-n is {options.brokers}, but must be from 1 to {BROKERS_MAX}")
    broker, store_files = _broker_settings(options.settings)
    return ClusterPlan(
        host=options.host or (EVERYWHERE if is_in_container() else LOOPBACK),
        advertise=options.advertise,
        name_server_port=0 if options.any_port else options.port,
        first_broker_port=0 if options.any_port else options.broker_port,
        broker_count=options.brokers,
        data=None if options.data is None else options.data.expanduser().absolute(),
        broker=broker,
        store_files=store_files,
    )


def _broker_settings(texts: tuple[str, ...]) -> tuple[BrokerSettings, StoreFileSettings]:
    # Filters by SQL92 work here without a search for the switch.
    source = SettingsSource([Property("enablePropertyFilter", "true", "downrange dev")])
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise SettingsError(f"--set {text}: write KEY=VALUE, for example fileReservedTime=1")
        source.add([Property(key.strip(), value.strip(), f"--set {text}")])
    settings = source.read(BrokerSettings), source.read(StoreFileSettings)
    if source.unused:
        names = ", ".join(entry.key for entry in source.unused)
        raise SettingsError(f"--set: no such setting of a broker: {names}")
    return settings


class _DevService:
    """The cluster as a process runs it."""

    def __init__(
        self,
        plan: ClusterPlan,
        parts: Parts,
        options: DevOptions,
        out: TextIO,
        on_failure: OnFailure,
    ) -> None:
        self._options = options
        self._out = out
        self._cluster = cluster = EmbeddedCluster(plan, parts, on_failure=on_failure)
        observed: list[Observed] = [ObservedNameServer(cluster.name_server_view)]
        observed += [
            ObservedBroker(name, partial(cluster.broker_view, name), parts.disk, parts.clock)
            for name in plan.broker_names
        ]
        # Its port opens when the cluster serves.
        pages = Pages(tuple(observed), Lifecycle(Phase.SERVING))
        self._http = HttpServer(parts.network, pages.by_path())

    async def start(self) -> str:
        """Start the servers and say where they are."""
        cluster = self._cluster
        try:
            address = await cluster.start()
        except PortTakenError as error:
            raise StartError(_taken(error)) from error
        except ClusterError as error:
            raise StartError(str(error)) from error
        http = await self._open_http()
        assert cluster.data is not None
        addresses = DevAddresses(
            name_servers=cluster.name_servers,
            brokers=cluster.broker_addresses,
            data=str(cluster.data),
            is_temporary=cluster.is_temporary,
            process_id=os.getpid(),
            http=http,
        )
        text = json_line(addresses) if self._options.as_json else welcome(addresses)
        print(text, file=self._out, flush=True)
        return address

    async def stop(self) -> None:
        """Stop the servers; a temporary directory goes with them."""
        self._http.close()
        await self._cluster.stop()

    async def _open_http(self) -> str | None:
        host, port = self._cluster.plan.host, self._options.http_port
        if port == NO_HTTP:
            return None
        try:
            await self._http.listen(host, port or FREE_PORTS.take(host))
        except OSError as error:
            await self._cluster.stop()
            raise StartError(
                f"the HTTP port {host}:{port} cannot be had ({error.strerror or error}); choose "
                f"another with --http-port, or 0 for a free one"
            ) from error
        return f"http://{self._cluster.advertised}:{self._http.port}"


def _taken(error: PortTakenError) -> str:
    option = "--port" if error.who == "name server" else "--broker-port"
    return (
        f"{error.host}:{error.port}, where the {error.who} should listen, cannot be had "
        f"({_reason(error)}); take free ports with --any-port, or choose one with {option}"
    )


def _reason(error: PortTakenError) -> str:
    cause = error.__cause__
    return (cause.strerror or str(cause)) if isinstance(cause, OSError) else str(error)
