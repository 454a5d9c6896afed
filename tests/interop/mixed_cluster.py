"""One Apache broker and one of ours under one name server, of either make."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from interop import apache, our_processes
from interop.admin_console import AdminConsole
from interop.client_cluster import SETTINGS, ClientCluster

OURS, APACHES = "broker-ours", "broker-apaches"
GRACEFUL = {"enableShutdownGracefully": "true", "shutdownWaitTimeSeconds": "5"}


@dataclass(frozen=True, slots=True)
class MixedCluster:
    """Where clients find both brokers; a broker that was killed can be started again."""

    name_server: str
    folder: Path
    servers: dict[str, apache.Server]
    starts: dict[str, Callable[[], apache.Server]]

    @property
    def for_clients(self) -> ClientCluster:
        """What a client has to know."""
        return ClientCluster(self.name_server, "", self.folder)

    def kill(self, name: str) -> None:
        """End a broker as a crash does."""
        self.servers[name].kill()

    def stop(self, name: str) -> None:
        """Stop a broker cleanly; ours sends its clients away first."""
        self.servers[name].stop()

    def restart(self, name: str) -> None:
        """Start a broker again with its own store at its own address."""
        self.servers[name] = self.starts[name]()

    def stop_brokers(self) -> None:
        """Stop both, cleanly; one that was killed stays so."""
        for server in self.servers.values():
            if server.process.poll() is None:
                server.stop()


@contextlib.contextmanager
def running_mixed_cluster(folder: Path, *, apaches_names: bool) -> Iterator[MixedCluster]:
    """A name server and both brokers while the block runs."""
    make = apache if apaches_names else our_processes
    with make.start_name_server(folder / "name-server") as names:
        store = folder / APACHES / "store"
        plan = apache.plan_broker(
            folder / APACHES, store, names.address, {**SETTINGS, "brokerName": APACHES}
        )
        port = apache.free_broker_port()

        def start_ours() -> apache.Server:
            settings = {**SETTINGS, "brokerName": OURS, **GRACEFUL}
            return our_processes.start_broker(folder / OURS, names.address, settings, port=port)

        starts = {OURS: start_ours, APACHES: lambda: apache.start_broker(plan)}
        cluster = MixedCluster(names.address, folder, {}, starts)
        try:
            for name in starts:
                cluster.restart(name)
            yield cluster
        finally:
            cluster.stop_brokers()


def route_of(console: AdminConsole, name_server: str, topic: str) -> str:
    """What `mqadmin topicRoute` prints, without blanks."""
    return "".join(console.mqadmin(name_server, "topicRoute", "-t", topic).output.split())
