"""A simulated machine: its drive outlives its broker, which can die at any instant."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from simulation.waiting import pass_time

from downrange.broker.server import Broker, Surroundings
from downrange.broker.settings import BrokerSettings, StoreFileSettings
from downrange.remoting.network import Network
from downrange.testing.drive import Drive, FileSystem, Survival
from downrange.testing.simulated_disk import SimulatedDisk
from downrange.testing.virtual_time import VirtualClock

STORE = Path("/var/store")
# So small that a few dozen messages fill several files of each kind.
STORE_FILES = StoreFileSettings(
    root=str(STORE), segment_bytes=16_384, queue_bytes=200, index_slots=20, index_items=60
)
SYNC_S_MAX = 0.03


class MachineClock(VirtualClock):
    """The time of the loop, on a wall clock that somebody may set wrong."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        """What the machine believes the time to be."""
        return super().wall_ms() + self.ahead_ms


class SimulatedThread:
    """A `BlockingRunner` without a thread: the work takes virtual time, then happens at once."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds

    async def run(self, work: Callable[[], None]) -> None:
        """Wait as long as the disk takes, and do it."""
        seconds = self._seconds()
        if seconds:
            await pass_time(seconds)
        work()

    def close(self) -> None:
        """Nothing runs here."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A part of a broker that failed although its machine was fine."""

    name: str
    error: BaseException


class Machine:
    """Starts a broker, kills it, cuts its power; `broker` is None while none runs.

    `isolate` is called the moment the power goes: nothing the dead broker still says may be heard.
    """

    def __init__(
        self,
        rng: random.Random,
        network: Network,
        settings: BrokerSettings,
        *,
        store_files: StoreFileSettings = STORE_FILES,
        file_system: FileSystem = FileSystem.STRICT,
        isolate: Callable[[], None],
    ) -> None:
        self.rng = rng
        self.clock = MachineClock()
        self.drive = Drive(rng, file_system=file_system, now_ms=self.clock.wall_ms)
        self.settings = settings
        self.store_files = replace(store_files, root=str(STORE))
        self.broker: Broker | None = None
        self.failures: list[Failure] = []
        self.sync_s_max = SYNC_S_MAX  # how long the disk takes for a sync or a save
        self.power_cuts = 0
        self.last_survival: Survival | None = None
        self._network = network
        self._isolate = isolate
        self._disk = SimulatedDisk(self.drive)

    @property
    def has_power(self) -> bool:
        """Whether the broker's machine still runs."""
        return not self._disk.is_dead

    async def start(self) -> None:
        """Start a broker; `OSError` if the power failed meanwhile, or the store cannot be used."""
        assert self.broker is None
        self._disk = disk = SimulatedDisk(self.drive)

        def on_failure(name: str, error: BaseException) -> None:
            if not disk.is_dead:
                self.failures.append(Failure(name, error))

        self.broker = broker = Broker(
            self.settings,
            self.store_files,
            Surroundings(
                network=self._network,
                clock=self.clock,
                disk=disk,
                chance=random.Random(self.rng.getrandbits(32)),
                syncs=SimulatedThread(self._disk_s),
                saves=SimulatedThread(self._disk_s),
                scrubs=SimulatedThread(self._disk_s),
                process_id=7,
            ),
            on_failure=on_failure,
        )
        await broker.start()

    async def stop(self) -> None:
        """Shut the broker down gracefully; dies with the power if that fails meanwhile."""
        broker, self.broker = self.broker, None
        assert broker is not None
        try:
            await broker.stop()
        except OSError:
            if self.has_power:
                raise
            await self._bury(broker)

    async def kill(self) -> None:
        """End the broker as `kill -9` does; what it wrote to the page cache stays."""
        broker, self.broker = self.broker, None
        if broker is not None:
            self._isolate()
            await self._bury(broker)

    def cut_power(self, survival: Survival | None = None) -> None:
        """Lose what was not synced, now; `kill` buries the broker afterwards."""
        self.last_survival = self.drive.cut_power(survival)
        self.power_cuts += 1
        self._isolate()

    def cut_power_at_step(self, number: int) -> None:
        """Cut the power before the n-th step that the drive takes from now on."""
        left = number

        def count(_operation: str, _path: Path) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self.cut_power()

        self.drive.before_step[:] = [count]

    def _disk_s(self) -> float:
        return self.rng.choice((0.0, self.sync_s_max * self.rng.random()))

    async def _bury(self, broker: Broker) -> None:
        await broker.crash()
        self._disk.end_process()
