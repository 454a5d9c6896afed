"""Name server and brokers on the running event loop; whoever owns the loop owns the cluster."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from downrange.broker.request_times import RequestTimes
from downrange.broker.server import Broker, Surroundings
from downrange.broker.view import BrokerView
from downrange.embedded.addresses import advertised_address
from downrange.embedded.plan import BROKER_PORT_DISTANCE, ClusterPlan, Parts
from downrange.embedded.ports import FREE_PORTS
from downrange.nameserver.server import NameServer
from downrange.nameserver.settings import NameServerSettings
from downrange.nameserver.view import NameServerView
from downrange.protocol.hosts import format_address
from downrange.runtime.service import OnFailure

TEMPORARY_PREFIX: Final = "downrange-dev-"


class ClusterError(Exception):
    """A cluster cannot do what it was asked; the text says why and what to do."""


class PortTakenError(ClusterError):
    """Somebody listens where a server should."""

    def __init__(self, who: str, host: str, port: int, error: OSError) -> None:
        super().__init__(f"the {who} cannot listen on {format_address(host, port)}: {error}")
        self.who = who
        self.host = host
        self.port = port


class EmbeddedCluster:
    """Started and stopped once, by `async with` or by hand; its servers any number of times.

    Ports are chosen when the cluster is made and stay: a server that starts again is where it was.
    """

    def __init__(
        self,
        plan: ClusterPlan | None = None,
        parts: Parts | None = None,
        *,
        on_failure: OnFailure | None = None,
    ) -> None:
        self.plan = plan = plan or ClusterPlan()
        self._parts = parts or Parts()
        self._on_failure: OnFailure = on_failure or (lambda _name, _error: None)
        self.is_temporary = plan.data is None
        self.data: Path | None = plan.data
        self.advertised = advertised_address(plan.host, plan.advertise)
        self.name_server_port = plan.name_server_port or FREE_PORTS.take(plan.host)
        self.broker_ports = {
            name: plan.first_broker_port + BROKER_PORT_DISTANCE * index
            if plan.first_broker_port
            else FREE_PORTS.take(plan.host)
            for index, name in enumerate(plan.broker_names)
        }
        self.name_server: NameServer | None = None
        self.brokers: dict[str, Broker] = {}

    # --- life ------------------------------------------------------------------------------

    async def start(self) -> str:
        """Start everything; returns the address of the name server."""
        if self.data is None:
            self.data = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX))
        try:
            await self.start_name_server()
            for name in self.broker_ports:
                await self.start_broker(name)
        except BaseException:
            await self.stop()
            raise
        return self.name_servers

    async def stop(self) -> None:
        """Stop everything; a temporary directory goes with it."""
        try:
            for name in list(self.brokers):
                await self.stop_broker(name)
            await self.stop_name_server()
        finally:
            if self.is_temporary and self.data is not None:
                shutil.rmtree(self.data, ignore_errors=True)
                self.data = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # --- where it is -----------------------------------------------------------------------

    @property
    def name_servers(self) -> str:
        """What a client is given."""
        return format_address(self.advertised, self.name_server_port)

    @property
    def broker_addresses(self) -> dict[str, str]:
        """Where the brokers are, running or not."""
        return {
            name: format_address(self.advertised, port) for name, port in self.broker_ports.items()
        }

    # --- servers one by one ----------------------------------------------------------------

    async def start_name_server(self) -> None:
        """Start the name server; it knows nothing until the brokers register."""
        if self.name_server is not None:
            raise ClusterError("the name server runs already")
        folder = self._folder("namesrv")
        settings = NameServerSettings(
            host=self.plan.host,
            port=self.name_server_port,
            kv_config_path=folder / "kvConfig.json",
            config_store_path=folder / "namesrv.properties",
        )
        parts = self._parts
        server = NameServer(
            settings,
            parts.network,
            parts.clock,
            parts.disk,
            on_failure=self._on_failure,
            connections_max=parts.connections_max,
        )
        try:
            await server.start()
        except OSError as error:
            await server.stop()
            raise PortTakenError(
                "name server", self.plan.host, self.name_server_port, error
            ) from error
        self.name_server = server

    async def stop_name_server(self) -> None:
        """Stop the name server if it runs."""
        server, self.name_server = self.name_server, None
        if server is not None:
            await server.stop()

    async def start_broker(self, name: str) -> None:
        """Start a broker; its messages are where they were."""
        if name in self.brokers:
            raise ClusterError(f"{name} runs already")
        broker = self._build_broker(name, self._port_of(name))
        try:
            await broker.start()
        except OSError as error:
            await broker.stop()
            raise PortTakenError(name, self.plan.host, self._port_of(name), error) from error
        except BaseException:
            await broker.stop()
            raise
        self.brokers[name] = broker

    async def stop_broker(self, name: str) -> None:
        """Stop a broker in good order: it leaves the name server, everything becomes durable."""
        await self._taken_out(name).stop()

    async def kill_broker(self, name: str) -> None:
        """End a broker as `kill -9` would: no farewell, nothing saved that was not."""
        await self._taken_out(name).crash()

    def broker(self, name: str) -> Broker:
        """A running broker."""
        self._port_of(name)
        if name not in self.brokers:
            raise ClusterError(f"{name} does not run; start it again with start_broker({name!r})")
        return self.brokers[name]

    def broker_view(self, name: str) -> BrokerView | None:
        """What there is to see of a broker; None if it does not run."""
        broker = self.brokers.get(name)
        return None if broker is None else broker.view()

    def name_server_view(self) -> NameServerView | None:
        """What there is to see of the name server; None if it does not run."""
        return None if self.name_server is None else self.name_server.view()

    # --- inside ----------------------------------------------------------------------------

    def _taken_out(self, name: str) -> Broker:
        broker = self.broker(name)
        del self.brokers[name]
        return broker

    def _port_of(self, name: str) -> int:
        if name not in self.broker_ports:
            raise ClusterError(f"no broker {name!r}; there are {', '.join(self.broker_ports)}")
        return self.broker_ports[name]

    def _folder(self, name: str) -> Path:
        assert self.data is not None, "the cluster is started first"
        folder = self.data / name
        self._parts.disk.make_directory(folder)
        return folder

    def _build_broker(self, name: str, port: int) -> Broker:
        parts, plan = self._parts, self.plan
        settings = replace(
            plan.broker,
            broker_name=name,
            address=self.advertised,
            bind_address=plan.host,
            listen_port=port,
            # Its own name server is next door, whatever the clients are told.
            name_servers=format_address(_door(plan.host), self.name_server_port),
        )
        return Broker(
            settings,
            replace(plan.store_files, root=str(self._folder(name))),
            Surroundings(
                network=parts.network,
                clock=parts.clock,
                disk=parts.disk,
                chance=parts.chance,
                syncs=parts.syncs(),
                saves=parts.syncs(),
                scrubs=parts.syncs(),
                process_id=parts.process_id,
                connections_max=parts.connections_max,
                open_files_max=parts.open_files_max,
            ),
            on_failure=self._on_failure,
            hooks=parts.hooks,
            request_times=RequestTimes() if parts.measures_requests else None,
        )


def _door(host: str) -> str:
    """Where a server that listens on `host` is reached from this machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104
