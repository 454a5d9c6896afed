"""A whole cluster in memory and virtual time: name servers, brokers, and what a client needs.

async def main() -> None:
    async with MemoryCluster(tmp_path, broker_names=("a", "b")) as cluster:
        session = Session(cluster.client_settings(), "10.0.0.1@test", cluster.surroundings())

virtual_time.run(main())
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from downrange.broker.server import Broker, Surroundings
from downrange.broker.settings import BrokerSettings, StoreFileSettings
from downrange.client.session import ClientSurroundings
from downrange.client.settings import ClientSettings
from downrange.nameserver.server import NameServer
from downrange.nameserver.settings import NameServerSettings
from downrange.remoting.memory import MemoryNetwork
from downrange.runtime.blocking import InLine
from downrange.runtime.disk import Disk
from downrange.testing.virtual_time import VirtualClock

NAME_SERVER_PORT: Final = 9876
FIRST_BROKER_PORT: Final = 10911
PORT_DISTANCE: Final = 10


class MemoryCluster:
    """Started by `async with`; brokers and name servers can be stopped and started one by one.

    The n-th broker listens on port 10911 + 10 n, the n-th name server on 9876 + n. `network` has
    the knobs that delay, stall and cut connections to a port.
    """

    def __init__(
        self,
        root: Path,
        *,
        broker_names: Sequence[str] = ("b1",),
        name_server_count: int = 1,
        broker_settings: BrokerSettings | None = None,
        store_files: StoreFileSettings | None = None,
        seed: int = 1,
        disk: Disk | None = None,
    ) -> None:
        self.disk = disk or Disk()
        self.network = MemoryNetwork()
        self.clock = VirtualClock()
        self.chance = random.Random(seed)  # noqa: S311 - a seed repeats the run
        self._root = root
        self._names = tuple(broker_names)
        self._name_server_count = name_server_count
        self._broker_settings = broker_settings or BrokerSettings()
        self._store_files = store_files or StoreFileSettings(
            segment_bytes=1 << 20, queue_bytes=20_000, index_slots=100, index_items=1_000
        )
        self.brokers: dict[str, Broker] = {}
        self.name_servers: dict[int, NameServer] = {}

    async def __aenter__(self) -> Self:
        for index in range(self._name_server_count):
            await self.start_name_server(index)
        for name in self._names:
            await self.start_broker(name)
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in list(self.brokers):
            await self.stop_broker(name)
        for index in list(self.name_servers):
            await self.stop_name_server(index)

    @property
    def name_server_addresses(self) -> tuple[str, ...]:
        """All name servers, running or not."""
        return tuple(
            f"127.0.0.1:{NAME_SERVER_PORT + index}" for index in range(self._name_server_count)
        )

    def broker_port(self, name: str) -> int:
        """Where a broker listens."""
        return FIRST_BROKER_PORT + PORT_DISTANCE * self._names.index(name)

    def broker_address(self, name: str) -> str:
        """The address of a broker."""
        return f"127.0.0.1:{self.broker_port(name)}"

    def client_settings(self) -> ClientSettings:
        """Settings of a client of this cluster."""
        return ClientSettings(name_servers=self.name_server_addresses, client_ip="10.0.0.1")

    def surroundings(self) -> ClientSurroundings:
        """Network, time and chance for a client of this cluster."""
        return ClientSurroundings(network=self.network, clock=self.clock, chance=self.chance)

    async def start_broker(self, name: str, *, as_name: str | None = None) -> Broker:
        """Start a broker; its store is where it was. `as_name` is what it calls itself instead."""
        settings = replace(
            self._broker_settings,
            address="127.0.0.1",
            broker_name=as_name or name,
            listen_port=self.broker_port(name),
            name_servers=";".join(self.name_server_addresses),
        )
        broker = Broker(
            settings,
            replace(self._store_files, root=str(self._root / name)),
            Surroundings(
                network=self.network,
                clock=self.clock,
                disk=self.disk,
                chance=self.chance,
                syncs=InLine(),
                saves=InLine(),
                scrubs=InLine(),
                process_id=7,
            ),
            on_failure=_fail,
        )
        await broker.start()
        self.brokers[name] = broker
        return broker

    async def stop_broker(self, name: str) -> None:
        """Stop a broker in good order: it leaves the name servers."""
        await self.brokers.pop(name).stop()

    async def start_name_server(self, index: int = 0) -> None:
        """Start a name server; it knows nothing until the brokers register again."""
        settings = NameServerSettings(
            port=NAME_SERVER_PORT + index,
            kv_config_path=self._root / f"kv-{index}.json",
            config_store_path=self._root / f"namesrv-{index}.properties",
        )
        server = NameServer(settings, self.network, self.clock, Disk(), on_failure=_fail)
        await server.start()
        self.name_servers[index] = server

    async def stop_name_server(self, index: int = 0) -> None:
        """Stop a name server."""
        await self.name_servers.pop(index).stop()


def _fail(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name} failed") from error
