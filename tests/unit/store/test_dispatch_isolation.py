"""A queue that fails holds up no other; if nothing helps, sends are refused and say why."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest
from unit.store.building import small_settings

from downrange.store import dispatch_backlog
from downrange.store.errors import AppendRefusedError, PutStatus
from downrange.store.message_store import MessageStore
from downrange.testing.clock import ManualClock
from downrange.testing.faulty_disk import FaultyDisk

STALL_MS = 10_000
Arrival = tuple[str, int, int]


class Isolated:
    """A store on a disk that fails on demand, and what its listener has heard."""

    def __init__(self, folder: Path, clock: ManualClock, open_files_max: int = 256) -> None:
        self.disk = FaultyDisk()
        self.clock = clock
        self.folder = folder
        self.settings = replace(
            small_settings(folder, queue_entries=300),
            dispatch_stall_ms=STALL_MS,
            open_files_max=open_files_max,
        )
        self.store = self.open()
        self.heard: list[Arrival] = []
        self.store.add_listener(self._hear)

    def _hear(self, topic: str, queue_id: int, offset: int, *_: object) -> None:
        self.heard.append((topic, queue_id, offset))

    def open(self) -> MessageStore:
        store = MessageStore(self.settings, self.disk, self.clock)
        store.open()
        return store

    @property
    def refusal_text(self) -> str:
        return str(self.store.refusal)

    @property
    def is_behind(self) -> bool:
        return self.store.is_dispatch_behind

    def send(self, topic: str, queue_id: int = 0, count: int = 1) -> None:
        for _ in range(count):
            self.store.append(topic, queue_id, b"x", b"")

    def flush_derived(self) -> bool:
        job = self.store.begin_derived_flush()
        return self.store.finish_derived_flush(job, job.try_run())


@pytest.fixture
def isolated(tmp_path: Path, clock: ManualClock) -> Isolated:
    return Isolated(tmp_path, clock)


def test_a_queue_without_space_holds_up_no_other(isolated: Isolated) -> None:
    isolated.disk.fail("allocate", errno.ENOSPC, path_contains="consumequeue/bad/")
    for topic in ("good", "bad", "good", "bad", "good"):
        isolated.send(topic)
    isolated.store.dispatch_some()
    assert isolated.heard == [("good", 0, 0), ("good", 0, 1), ("good", 0, 2)]
    assert isolated.store.queues.ensure("bad", 0).max_offset == 0
    isolated.send("good")
    isolated.store.dispatch_some()
    assert isolated.heard[3:] == [("good", 0, 3)]
    isolated.disk.heal()
    isolated.send("bad")
    isolated.store.dispatch_some()
    assert isolated.heard[4:] == [("bad", 0, 0), ("bad", 0, 1), ("bad", 0, 2)]
    assert isolated.store.dispatch_failure is None


def test_the_checkpoint_claims_nothing_behind_a_message_that_waits(isolated: Isolated) -> None:
    isolated.send("good")
    isolated.store.dispatch_some()
    claimed = isolated.store.log.max_offset
    isolated.disk.fail("open_file", errno.EIO, path_contains="consumequeue/bad/")
    isolated.send("bad")
    isolated.send("good")
    isolated.store.dispatch_some()
    assert isolated.store.dispatched_offset == claimed
    isolated.store.flush_now()
    assert isolated.flush_derived()
    assert isolated.store.checkpoint.queue_offset <= claimed
    isolated.disk.heal()
    isolated.store.dispatch_some()
    assert isolated.store.dispatched_offset == isolated.store.log.max_offset


def test_a_store_closed_while_a_queue_fails_gives_its_messages_at_the_next_start(
    isolated: Isolated,
) -> None:
    isolated.disk.fail("open_file", errno.EIO, path_contains="consumequeue/bad/")
    isolated.send("bad", count=3)
    isolated.send("good")
    isolated.store.dispatch_some()
    isolated.store.close()
    isolated.disk.heal()
    again = isolated.open()
    assert again.queues.ensure("bad", 0).max_offset == 3
    assert again.queues.ensure("good", 0).max_offset == 1
    again.close()


def test_without_descriptors_idle_queues_give_theirs_up(isolated: Isolated) -> None:
    for queue_id in range(30):
        isolated.send("T", queue_id)
    isolated.store.dispatch_some()
    assert isolated.flush_derived()
    isolated.disk.fail("open_file", errno.EMFILE, path_contains="consumequeue/new/", times=1)
    isolated.send("new")
    isolated.store.dispatch_some()
    assert isolated.heard[-1] == ("new", 0, 0)
    assert isolated.store.dispatch_failure is None


def test_a_deleted_topic_takes_its_waiting_messages_with_it(isolated: Isolated) -> None:
    isolated.disk.fail("allocate", errno.ENOSPC, path_contains="consumequeue/bad/")
    isolated.send("bad", count=3)
    isolated.store.dispatch_some()
    assert isolated.store.pending_count == 3
    isolated.store.delete_topic("bad")
    isolated.store.dispatch_some()
    assert not isolated.store.is_dispatch_behind
    assert isolated.store.pending_count == 0
    isolated.disk.heal()
    isolated.send("bad")
    isolated.store.dispatch_some()
    assert isolated.heard == [("bad", 0, 0)]


def test_dispatch_that_stalls_refuses_sends_until_it_has_caught_up(
    isolated: Isolated, caplog: pytest.LogCaptureFixture
) -> None:
    isolated.disk.fail("allocate", errno.ENOSPC, path_contains="consumequeue/bad/")
    isolated.send("bad")
    isolated.store.dispatch_some()
    assert isolated.refusal_text == "None"
    isolated.clock.advance(STALL_MS - 1)
    isolated.store.dispatch_some()
    assert isolated.refusal_text == "None"
    isolated.clock.advance(1)
    for _ in range(3):
        isolated.store.dispatch_some()
    refusal = isolated.store.refusal
    assert refusal is not None
    assert refusal.status is PutStatus.DISPATCH_STALLED
    assert "1 messages wait to become visible, the oldest for 10 s" in refusal.remark
    assert "No space left" in refusal.remark
    with pytest.raises(AppendRefusedError, match="resumes by itself"):
        isolated.send("good")
    isolated.disk.heal()
    isolated.store.dispatch_some()
    assert isolated.refusal_text == "None"
    isolated.send("good")
    stalls = [record.message for record in caplog.records if "sends are" in record.message]
    assert [text.split(",")[0] for text in stalls] == ["dispatch stalled", "dispatch has caught up"]


def test_a_failing_index_stalls_dispatch_too(isolated: Isolated) -> None:
    isolated.disk.fail("allocate", errno.ENOSPC, path_contains="index/")
    isolated.store.append("T", 0, b"x", b"KEYS\x01k\x02")
    isolated.store.dispatch_some()
    isolated.clock.advance(STALL_MS)
    isolated.store.dispatch_some()
    assert isolated.refusal_text != "None"
    isolated.disk.heal()
    isolated.store.dispatch_some()
    assert isolated.refusal_text == "None"
    assert isolated.heard == [("T", 0, 0)]


def test_more_waiting_messages_than_are_kept_refuse_sends_and_lose_nothing(
    isolated: Isolated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_backlog, "COUNT_MAX", 100)
    isolated.disk.fail("allocate", errno.ENOSPC, path_contains="consumequeue/bad/")
    isolated.send("bad", count=150)
    isolated.send("good")
    isolated.store.dispatch_some()
    assert isolated.refusal_text != "None"
    assert isolated.heard == []
    isolated.disk.heal()
    while isolated.store.dispatch_some():
        pass
    assert isolated.heard == [*(("bad", 0, n) for n in range(150)), ("good", 0, 0)]
    assert isolated.refusal_text == "None"


def synced_until_visible(isolated: Isolated) -> int:
    rounds = 0
    while isolated.store.is_dispatch_behind:
        assert isolated.flush_derived()
        isolated.store.dispatch_some()
        rounds += 1
    return rounds


def test_more_queues_than_files_take_turns_and_nothing_is_lost(
    tmp_path: Path, clock: ManualClock
) -> None:
    isolated = Isolated(tmp_path, clock, open_files_max=8)
    expected = [("T", queue_id, offset) for offset in range(2) for queue_id in range(40)]
    for _, queue_id, _ in expected:
        isolated.send("T", queue_id)
    isolated.store.dispatch_some()
    assert isolated.store.dirty_files.needs_sync
    assert isolated.store.dispatch_failure is None  # to wait for a sync is no failure
    isolated.send("other")
    isolated.store.dispatch_some()
    assert isolated.heard[-1] == ("other", 0, 0)  # though a wide topic waits
    assert synced_until_visible(isolated) > 5
    assert sorted(isolated.heard) == sorted([*expected, ("other", 0, 0)])
    descriptors = isolated.disk.calls["open_file"] - isolated.disk.calls["close_file"]
    assert descriptors <= 8 + 4  # lock, log and index are open, too
    isolated.store.close()
    again = isolated.open()
    assert [again.queues.ensure("T", queue_id).max_offset for queue_id in range(40)] == [2] * 40
    again.close()


def test_a_failed_sync_of_a_queue_keeps_the_checkpoint_where_it_was(isolated: Isolated) -> None:
    isolated.send("T")
    isolated.store.dispatch_some()
    assert isolated.flush_derived()
    claimed = isolated.store.checkpoint.queue_offset
    isolated.disk.fail("sync", errno.EIO, path_contains="consumequeue", times=1)
    isolated.send("T")
    isolated.store.dispatch_some()
    assert not isolated.flush_derived()
    isolated.send("T")
    isolated.store.dispatch_some()
    assert isolated.flush_derived()  # which proves nothing about what was not written
    assert isolated.store.checkpoint.queue_offset == claimed
    isolated.store.close()
    assert (isolated.folder / "abort").exists()
    again = isolated.open()
    assert again.last_stop.name == "UNKNOWN"
    assert again.queues.ensure("T", 0).max_offset == 3
    again.close()


def test_queues_that_wait_in_turn_for_a_slow_disk_are_no_stall(
    tmp_path: Path, clock: ManualClock
) -> None:
    isolated = Isolated(tmp_path, clock, open_files_max=8)
    for queue_id in range(40):
        isolated.send("T", queue_id)
    isolated.store.dispatch_some()
    while isolated.store.is_dispatch_behind:
        isolated.clock.advance(STALL_MS - 1)  # as long as this takes a sync
        assert isolated.flush_derived()
        isolated.store.dispatch_some()
        assert isolated.refusal_text == "None"
    assert len(isolated.heard) == 40


def test_a_sync_that_does_not_end_is_a_stall(tmp_path: Path, clock: ManualClock) -> None:
    isolated = Isolated(tmp_path, clock, open_files_max=8)
    for queue_id in range(40):
        isolated.send("T", queue_id)
    isolated.store.dispatch_some()
    isolated.clock.advance(STALL_MS)
    isolated.store.dispatch_some()
    assert "queue files are not synced fast enough" in isolated.refusal_text
    assert synced_until_visible(isolated)
    assert isolated.refusal_text == "None"
