"""What a start, a stop and retention do for each queue must not open its files."""

from pathlib import Path

import pytest
from unit.store.building import small_settings

from downrange.store import retention
from downrange.store.message_store import MessageStore
from downrange.store.ownership import LastStop
from downrange.testing.clock import ManualClock
from downrange.testing.faulty_disk import FaultyDisk

QUEUES = 60
FEW = 12  # lock, log, index, and the small files


class Opened:
    """A store whose disk counts."""

    def __init__(self, folder: Path, clock: ManualClock) -> None:
        self.disk = FaultyDisk()
        settings = small_settings(folder, segment_bytes=64 * 1024, queue_entries=300)
        self.store = MessageStore(settings, self.disk, clock)
        self.report = self.store.open()

    def send_to_all(self, topic: str = "T") -> None:
        for queue_id in range(QUEUES):
            self.store.append(topic, queue_id, b"%d" % queue_id, b"")
        self.store.dispatch_some()

    def bounds(self) -> set[tuple[int, int, int]]:
        return {(q.min_offset, q.max_offset, q.next_offset) for q in self.store.queues}


def test_a_start_after_a_graceful_stop_reads_no_queue_to_find_its_end(
    tmp_path: Path, clock: ManualClock
) -> None:
    first = Opened(tmp_path, clock)
    for _ in range(3):
        first.send_to_all()
    first.store.close()
    again = Opened(tmp_path, clock)
    assert again.store.last_stop is LastStop.CLEAN
    assert again.bounds() == {(0, 3, 3)}
    assert again.report.entries_restored == 0
    assert again.disk.calls["read_at"] == 0  # positions are those that the stop has noted
    again.store.close()


def test_one_message_per_queue_is_compared_by_one_read_without_mapping(
    tmp_path: Path, clock: ManualClock
) -> None:
    first = Opened(tmp_path, clock)
    first.send_to_all()
    first.store.close()
    again = Opened(tmp_path, clock)
    assert again.bounds() == {(0, 1, 1)}
    assert again.disk.calls["map"] <= FEW
    assert again.disk.calls["open_file"] <= QUEUES + FEW
    again.disk.calls.clear()
    again.store.close()
    assert again.disk.calls["map"] == 0  # nothing has changed, so no checksum is computed


def test_a_start_after_a_kill_reads_ends_without_mapping(
    tmp_path: Path, clock: ManualClock
) -> None:
    first = Opened(tmp_path, clock)
    first.send_to_all()
    first.store.abandon()
    again = Opened(tmp_path, clock)
    assert again.store.last_stop is LastStop.PROCESS_DIED
    assert again.bounds() == {(0, 1, 1)}
    assert again.disk.calls["map"] <= FEW
    again.store.close()


def test_positions_of_an_older_stop_are_not_believed(tmp_path: Path, clock: ManualClock) -> None:
    first = Opened(tmp_path, clock)
    first.send_to_all()
    first.store.close()
    old = (tmp_path / "derived.json").read_bytes()
    second = Opened(tmp_path, clock)
    second.send_to_all()
    second.store.close()
    (tmp_path / "derived.json").write_bytes(old)  # as if another program had run meanwhile
    third = Opened(tmp_path, clock)
    assert third.bounds() == {(0, 2, 2)}
    third.store.close()


def test_queues_of_a_topic_are_found_without_looking_at_others(
    tmp_path: Path, clock: ManualClock
) -> None:
    opened = Opened(tmp_path, clock)
    opened.send_to_all("wide")
    opened.store.append("narrow", 3, b"", b"")
    opened.store.append("narrow", 1, b"", b"")
    queues = opened.store.queues
    assert [queue.queue_id for queue in queues.of_topic("narrow")] == [1, 3]
    assert queues.topics == ["wide", "narrow"]
    assert (queues.delete_topic("narrow"), queues.of_topic("narrow")) == (2, [])
    assert queues.topics == ["wide"]
    opened.store.close()


def test_retention_follows_the_log_some_queues_at_a_time(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "FOLLOW_TOGETHER", 25)
    opened = Opened(tmp_path, clock)
    store = opened.store
    opened.send_to_all()
    while len(store.log.chain.segments) < 3:
        store.append("filler", 0, bytes(1000), b"")
    store.dispatch_some()
    store.flush_now()
    store.log.chain.drop_first()
    store.retention.follow_log()
    assert {q.min_offset for q in store.queues.of_topic("T")} == {1}
    rounds = 1
    store.retention._begin_following()
    while store.retention.follow_some():
        rounds += 1
    assert rounds == 3
    store.close()
