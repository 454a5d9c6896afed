"""Power failures in any order with kills and restarts: what was said to be durable is there."""

from dataclasses import replace
from pathlib import Path

import pytest
from faults.stores import abandon, trial

from downrange.protocol.record import decode_records
from downrange.store.message_store import MessageStore
from downrange.store.settings import FlushMode, FlushSettings, StoreSettings
from downrange.testing.clock import ManualClock
from downrange.testing.power_cut_disk import PowerCutDisk

SETTINGS = StoreSettings(
    root=Path(), segment_bytes=4096, queue_entries=10, index_slots=13, index_items=21
)
ROUNDS = 40
LONG_ROUNDS = 1_000
CHECK_EVERY = 8  # rounds
MINUTE_MS = 60_000


class Machine:
    """One store on one disk: what was put into it, and what must survive a power failure."""

    def __init__(self, root: Path, mode: FlushMode = FlushMode.ASYNC) -> None:
        self._settings = replace(
            SETTINGS, root=root / "var" / "store", flush=FlushSettings(mode=mode)
        )
        self.disk = PowerCutDisk(root)
        self._clock = ManualClock()
        self.sent: list[tuple[int, str, int, int, bytes]] = []
        self.start()

    def start(self) -> None:
        """The store opens."""
        self.store = MessageStore(self._settings, self.disk, self._clock)
        self.report = self.store.open()

    def put(self, count: int, topic: str = "orders", queue_id: int = 0) -> None:
        """Messages arrive and become visible."""
        for _ in range(count):
            self._clock.advance(1_000)
            body = b"%06d" % len(self.sent)
            put = self.store.append(topic, queue_id, body, b"KEYS\x01k%b\x02" % body)
            self.sent.append((put.end_offset, topic, queue_id, put.queue_offset, body))
        if self._settings.flush.mode is FlushMode.SYNC:
            self.store.flush_now()
        self.store.dispatch_some()

    def flush_derived(self) -> None:
        """Queues and index are synced, and the checkpoint is written."""
        job = self.store.begin_derived_flush()
        job.run()
        self.store.finish_derived_flush(job)

    def kill(self) -> None:
        """The process dies and starts again; the machine goes on."""
        abandon(self.store)
        self.start()

    def restart(self) -> None:
        """A graceful shutdown, and a start."""
        self.store.close()
        self.start()

    def cut_power(self) -> None:
        """The machine dies and starts again; forgets the messages that may be lost."""
        durable = self.store.durable_offset
        abandon(self.store)
        self.disk.cut_power()
        self._clock.advance(MINUTE_MS)
        self.start()
        kept = self.store.log.max_offset
        self.sent = [sent for sent in self.sent if sent[0] <= max(durable, kept)]

    def check(self) -> None:
        """Every message is visible where it was put, and is found by its key."""
        for end_offset, topic, queue_id, queue_offset, body in self.sent:
            result = self.store.read(topic, queue_id, queue_offset, 1)
            read = [record.body for view in result.views for record in decode_records(view)]
            assert read == [body], (end_offset, topic, queue_id, queue_offset)
            found = self.store.lookup.query(topic, f"k{body.decode()}").records
            assert found, (topic, body)


@pytest.fixture
def machine(scratch: Path) -> Machine:
    return Machine(scratch)


def test_log_files_of_a_killed_process_are_durable_once_the_next_one_is_open(
    machine: Machine,
) -> None:
    machine.put(120)
    assert len(machine.store.log.chain.segments) > 3
    machine.kill()
    machine.cut_power()
    assert len(machine.sent) == 120
    machine.check()


def test_after_two_kills_too(machine: Machine) -> None:
    machine.put(60)
    machine.kill()
    machine.put(60)
    machine.kill()
    machine.cut_power()
    assert len(machine.sent) == 120
    machine.check()


@pytest.mark.parametrize("abort", [None, "4711"])
def test_log_files_that_an_apache_broker_left_are_durable_once_the_store_is_open(
    machine: Machine, abort: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That broker syncs no names, and after its own restart it takes older files for synced."""
    with monkeypatch.context() as apache:
        apache.setattr(machine.disk, "fsync_directory", lambda _path: None)
        machine.put(120)
    root = machine.store.settings.root
    abandon(machine.store)
    machine.disk.unlink(root / "checkpoint")
    machine.disk.unlink(root / "abort")
    if abort is not None:
        machine.disk.write(root / "abort", abort.encode())
    machine.start()
    machine.cut_power()
    assert len(machine.sent) == 120
    machine.check()


def test_clean_start_syncs_no_older_log_file(machine: Machine) -> None:
    machine.put(120)
    machine.restart()
    machine.disk.synced.clear()
    machine.restart()
    machine.flush_derived()
    synced = [path for path in machine.disk.synced if "index" not in path.parts]
    assert {path.name for path in synced} == {machine.store.log.chain.segments[-1].path.name}


def test_queue_that_was_quiet_for_long_survives(machine: Machine) -> None:
    """Recovery after a power failure does not read the old part of the log again."""
    machine.put(25, "quiet", 3)
    machine.flush_derived()
    machine.put(200)
    machine.store.flush_now()
    machine.flush_derived()
    machine.cut_power()
    assert machine.report.start_offset > machine.sent[25][0]
    assert len(machine.sent) == 225
    machine.check()


@pytest.mark.parametrize("mode", FlushMode)
@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(LONG_ROUNDS, marks=pytest.mark.long)])
def test_no_order_of_kills_restarts_and_power_failures_loses_what_was_durable(
    scratch: Path, mode: FlushMode, rounds: int
) -> None:
    with trial(f"power-cut-{mode.name}-{rounds}") as rng:
        machine = Machine(scratch, mode)
        for number in range(rounds):
            rng.case = f"round {number}"
            for _ in range(rng.randrange(6)):
                machine.put(rng.randrange(20), rng.choice(("a", "b", "c")), rng.randrange(3))
                if rng.random() < 0.3:
                    machine.store.flush_now()
                if rng.random() < 0.3:
                    machine.flush_derived()
            rng.choice((machine.kill, machine.restart, machine.cut_power))()
            if number % CHECK_EVERY == 0:
                machine.check()
            if mode is FlushMode.SYNC:
                assert machine.store.durable_offset == machine.store.log.max_offset
        machine.check()
