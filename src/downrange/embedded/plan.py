"""What an embedded cluster is made of; values that its owner chooses."""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from downrange.broker.hooks import BrokerHooks
from downrange.broker.settings import BrokerSettings, StoreFileSettings
from downrange.embedded.addresses import LOOPBACK
from downrange.remoting.network import Network, TcpNetwork
from downrange.remoting.server import CONNECTIONS_MAX
from downrange.runtime.blocking import BlockingRunner, BlockingThread
from downrange.runtime.clock import Clock, SystemClock
from downrange.runtime.disk import Disk
from downrange.store.settings import OPEN_FILES_MAX

BROKERS_MAX: Final = 26  # named by letters
BROKER_PORT_DISTANCE: Final = 10
FIRST_BROKER_PORT: Final = 10_911


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """How many, where, and under which names. A port of 0 is a free one."""

    host: str = LOOPBACK
    advertise: str = ""  # the address that clients are told; found out if empty
    name_server_port: int = 0
    first_broker_port: int = 0  # the next ones are 10 apart
    broker_count: int = 1
    data: Path | None = None  # None: a temporary directory, gone with the cluster
    broker: BrokerSettings = field(default_factory=lambda: BrokerSettings(sql92_enabled=True))
    store_files: StoreFileSettings = field(default_factory=StoreFileSettings)

    def __post_init__(self) -> None:
        if not 1 <= self.broker_count <= BROKERS_MAX:
            raise ValueError(f"a cluster has 1 to {BROKERS_MAX} brokers, not {self.broker_count}")

    @property
    def broker_names(self) -> tuple[str, ...]:
        """broker-a, broker-b and so on."""
        return tuple(f"broker-{chr(ord('a') + index)}" for index in range(self.broker_count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the servers stand in; a test brings its own."""

    network: Network = field(default_factory=TcpNetwork)
    clock: Clock = field(default_factory=SystemClock)
    disk: Disk = field(default_factory=Disk)
    chance: random.Random = field(default_factory=random.Random)
    syncs: Callable[[], BlockingRunner] = lambda: BlockingThread("sync")
    hooks: BrokerHooks = field(default_factory=BrokerHooks)
    process_id: int = field(default_factory=os.getpid)
    connections_max: int = CONNECTIONS_MAX
    open_files_max: int = OPEN_FILES_MAX  # of each broker's store
    measures_requests: bool = False  # how long each takes, for who shows it
