"""One broker through several lives: every kind of request, and a death at a random instant.

Deaths are power cuts (between two steps of the drive, in the midst of a save, a sync or a
recovery), kills and graceful shutdowns. After each of them the broker must have kept what
docs/durability.md promises for its flush mode.
"""

import asyncio
import random
from collections import Counter
from dataclasses import replace

from simulation.ledger import ASYNC_WINDOW_S, BrokenPromiseError, Ledger
from simulation.machine import STORE_FILES, Machine
from simulation.requests import Driver
from simulation.trace import Trace
from simulation.waiting import pass_time
from simulation.wire import RefusedError, Wire

from downrange.broker.settings import BrokerSettings
from downrange.remoting.errors import RemotingError
from downrange.remoting.memory import MemoryNetwork
from downrange.store.settings import FlushMode
from downrange.testing.drive import FileSystem

PORT = 10911
LIVES = 3
CLIENTS = 3
LIFE_S_MAX = 30.0
SETTLE_S = 20.0  # for the longest delay that is used, and the round that finds it
STARTS_MAX = 20
RECONNECT_S = 0.05  # clients hear that their old connections are gone


class Rounds:
    """One seed: a broker, what it has promised, and what was done to it."""

    def __init__(self, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.rng = rng = random.Random(f"power cuts {seed}")
        mode, file_system = rng.choice(list(FlushMode)), rng.choice(list(FileSystem))
        self.network = MemoryNetwork()
        self.machine = Machine(
            rng,
            self.network,
            BrokerSettings(address="127.0.0.1", broker_name="b1", listen_port=PORT),
            store_files=replace(STORE_FILES, flush_mode=mode),
            file_system=file_system,
            isolate=self._isolate,
        )
        self.ledger = Ledger(window_s=ASYNC_WINDOW_S if mode is FlushMode.ASYNC else 0.0)
        self.driver = Driver(rng, Wire(self.network, PORT), self.ledger, self.machine.clock)
        self.trace = Trace(self.machine.clock.monotonic_s)
        self.about = f"a broker with {mode.name}_FLUSH on a {file_system.value} file system"
        self._died_s = 0.0
        self._started_ms = 0

    async def run(self) -> None:
        """Live and die; `BrokenPromiseError` if a promise was broken."""
        self.trace.say(self.about)
        for _ in range(LIVES):
            await self._start(may_fail=True)
            await self._check(is_settled=False)
            await self._live()
        await self._start(may_fail=False)
        await pass_time(SETTLE_S)
        await self._check(is_settled=True)
        await self._stop()
        self.driver.wire.close()

    # --- births ----------------------------------------------------------------------------

    async def _start(self, *, may_fail: bool) -> None:
        machine = self.machine
        machine.drive.before_step.clear()
        for _ in range(STARTS_MAX):
            if may_fail and self.rng.random() < 0.3:
                machine.cut_power_at_step(self.rng.randrange(1, 60))
            self._started_ms = machine.clock.wall_ms()
            try:
                await machine.start()
            except Exception as error:
                if machine.has_power:
                    raise BrokenPromiseError(f"the broker does not start: {error!r}") from error
                await machine.kill()
                self.counts["power cuts during recovery"] += 1
                self._note_death("the power failed during recovery")
            else:
                machine.drive.before_step.clear()
                self.trace.say("the broker serves")
                await pass_time(RECONNECT_S)
                return
        raise AssertionError("recovery never got through")

    async def _check(self, *, is_settled: bool) -> None:
        self._check_failures()
        await self.ledger.check(
            self.driver.wire, self._started_ms, self.driver.now_s, is_settled=is_settled
        )
        self.counts["promises checked"] += (
            len(self.ledger.messages) + len(self.ledger.offsets) + len(self.ledger.copies)
        )
        self.trace.say(f"checked: {len(self.ledger.messages)} messages are where they belong")

    def _check_failures(self) -> None:
        for failure in self.machine.failures:
            raise BrokenPromiseError(f"{failure.name} failed: {failure.error!r}") from failure.error

    # --- lives -----------------------------------------------------------------------------

    async def _live(self) -> None:
        rng, machine = self.rng, self.machine
        death = rng.choice(("step", "step", "step", "instant", "instant", "kill", "stop"))
        if death == "step":
            machine.cut_power_at_step(rng.randrange(1, 300))
        life_s = rng.uniform(0.1, LIFE_S_MAX)
        tasks = [asyncio.ensure_future(self._drive()) for _ in range(CLIENTS)]
        end_s = self.driver.now_s + life_s
        while machine.has_power and self.driver.now_s < end_s:
            await pass_time(min(0.5, max(end_s - self.driver.now_s, 0.001)))
        if machine.has_power:
            if death in {"step", "instant"}:
                machine.cut_power()
            elif death == "kill":
                await machine.kill()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if death == "stop" and machine.has_power:
            if rng.random() < 0.5:
                machine.cut_power_at_step(rng.randrange(1, 40))
            await self._stop()
            return
        await machine.kill()
        self._check_failures()
        self.counts[f"deaths by {death}"] += 1
        self._note_death(f"the broker died: {death}")

    async def _drive(self) -> None:
        """One client that does one thing after the other."""
        rng = self.rng
        while True:
            await pass_time(rng.choice((0.0, 0.0, 0.01, 0.3, 2.0)))
            try:
                name = await self.driver.step()
            except (RefusedError, RemotingError) as error:
                self.counts["requests that failed"] += 1
                self.trace.say(f"not answered with success: {error}")
                await pass_time(0.1)
            else:
                self.counts[name] += 1
                self.trace.say(f"answered: {name}")

    # --- deaths ----------------------------------------------------------------------------

    async def _stop(self) -> None:
        before = self.machine.power_cuts
        await self.machine.stop()
        if self.machine.power_cuts > before:
            self.counts["power cuts during shutdown"] += 1
            self._note_death("the power failed during shutdown")
        else:
            self.counts["graceful shutdowns"] += 1
            self.ledger.note_stop(self.driver.now_s)
            self.trace.say("the broker was shut down gracefully")
        self._check_failures()

    def _isolate(self) -> None:
        self._died_s = self.driver.now_s
        for link in self.network.links_to(PORT):
            link.is_deaf = True
        self.network.cut(PORT)
        self.network.doors.pop(PORT, None)
        self.network.doors.pop(PORT - 2, None)

    def _note_death(self, text: str) -> None:
        is_power_cut = not self.machine.has_power
        survival = self.machine.last_survival
        how = f"; of what was not synced, {survival.value} survived" if survival else ""
        self.trace.say(text + (how if is_power_cut else ""))
        self.counts["power cuts"] += is_power_cut
        self.ledger.note_death(self._died_s, is_power_cut=is_power_cut)
        if is_power_cut:
            self.driver.forget_lost()
