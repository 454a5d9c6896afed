"""`downrange dev`: name server and brokers in one process, ready for a first message."""

import argparse
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from downrange.app.dev_text import DevAddresses, json_line, welcome
from downrange.app.process import StartError, log_to_stderr, run_service
from downrange.broker.settings import BrokerSettings, StoreFileSettings
from downrange.embedded.addresses import EVERYWHERE, LOOPBACK, is_in_container
from downrange.embedded.cluster import ClusterError, EmbeddedCluster, PortTakenError
from downrange.embedded.plan import BROKERS_MAX, FIRST_BROKER_PORT, ClusterPlan, Parts
from downrange.remoting.server import CONNECTIONS_MAX
from downrange.runtime.open_files import raise_limit
from downrange.runtime.property_text import Property
from downrange.runtime.service import OnFailure
from downrange.runtime.settings import SettingsError, SettingsSource

_log = logging.getLogger(__name__)

NAME_SERVER_PORT: Final = 9876
PORT_MAX: Final = 65_535


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
    as_json: bool = False
    verbose: bool = False


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
    parser.add_argument("--json", dest="as_json", action="store_true", help="one line for scripts")
    parser.add_argument("-v", "--verbose", action="store_true", help="show what the servers log")


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
        as_json=arguments.as_json,
        verbose=arguments.verbose,
    )
    return serve(options, sys.stdout)


def serve(options: DevOptions, out: TextIO) -> int:
    """Run the cluster until a signal comes; says on `out` where it is."""
    log_to_stderr(logging.INFO if options.verbose else logging.WARNING)
    try:
        plan = plan_of(options)
    except (SettingsError, ValueError) as error:
        _log.critical("cannot start: %s", error)
        return 1
    parts = Parts(connections_max=min(raise_limit() // 2, CONNECTIONS_MAX))
    return run_service(lambda on_failure: _DevService(plan, parts, options, out, on_failure))


def plan_of(options: DevOptions) -> ClusterPlan:
    """The cluster that the options describe; `SettingsError` or `ValueError` if none."""
    for name, port in (("--port", options.port), ("--broker-port", options.broker_port)):
        if not 0 <= port <= PORT_MAX:
            raise ValueError(f"{name} is {port}, but must be from 0 to {PORT_MAX}")
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
        self._cluster = EmbeddedCluster(plan, parts, on_failure=on_failure)

    async def start(self) -> str:
        """Start the servers and say where they are."""
        cluster = self._cluster
        try:
            address = await cluster.start()
        except PortTakenError as error:
            raise StartError(_taken(error)) from error
        except ClusterError as error:
            raise StartError(str(error)) from error
        assert cluster.data is not None
        addresses = DevAddresses(
            name_servers=cluster.name_servers,
            brokers=cluster.broker_addresses,
            data=str(cluster.data),
            is_temporary=cluster.is_temporary,
            process_id=os.getpid(),
        )
        text = json_line(addresses) if self._options.as_json else welcome(addresses)
        print(text, file=self._out, flush=True)
        return address

    async def stop(self) -> None:
        """Stop the servers; a temporary directory goes with them."""
        await self._cluster.stop()


def _taken(error: PortTakenError) -> str:
    option = "--port" if error.who == "name server" else "--broker-port"
    return (
        f"{error.host}:{error.port}, where the {error.who} should listen, cannot be had "
        f"({_reason(error)}); take free ports with --any-port, or choose one with {option}"
    )


def _reason(error: PortTakenError) -> str:
    cause = error.__cause__
    return (cause.strerror or str(cause)) if isinstance(cause, OSError) else str(error)
