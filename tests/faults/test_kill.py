"""A writing process killed at random instants: what it had acknowledged is there, in order."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from faults import writer
from faults.stores import Trial, abandon, the_seed, trial

from downrange.protocol.record import Record, decode_records
from downrange.store.message_store import MessageStore

ROUNDS = 50
LONG_ROUNDS = 1_000
ACKNOWLEDGED_MAX = 300  # in one round


class Killed:
    """One store over all rounds: what was acknowledged, and how far each queue was checked."""

    def __init__(self, root: Path, seed: int) -> None:
        self._root = root
        self._seed = seed
        self._acknowledged: set[int] = set()
        self._checked: dict[tuple[str, int], int] = {}
        self._found: set[int] = set()
        self.first = 0

    def run_and_kill(self, rng: Trial) -> None:
        """Start the writer, read some of its acknowledgements, kill it with SIGKILL."""
        stop_after = rng.choice((0, 1, 2, rng.randrange(ACKNOWLEDGED_MAX)))
        if rng.random() < 0.1:
            stop_after = -1  # while it recovers
        command = [sys.executable, writer.__file__, str(self._root), str(self._seed)]
        with subprocess.Popen([*command, str(self.first)], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            for line in child.stdout:
                text = line.decode().strip()
                stop_after -= text.isdigit()
                if text.isdigit():
                    self._acknowledged.add(int(text))
                elif text == "recovering" and stop_after >= 0:
                    continue
                if stop_after <= 0:
                    break
            for _ in range(rng.randrange(20_000)):
                pass  # some instants more
            child.send_signal(signal.SIGKILL)
            # What it had said before it died counts too.
            rest = child.stdout.read().decode().split("\n")[:-1]
            self._acknowledged.update(int(text) for text in rest if text.isdigit())
        assert child.returncode == -signal.SIGKILL, "the writer ended by itself"

    def check(self, *, whole: bool, close: bool) -> int:
        """Open the store as the next process would, and compare; returns the end of the log."""
        store = MessageStore(writer.kill_settings(self._root))
        report = store.open()
        assert report.damages == []
        if whole:
            self._checked.clear()
            self._found.clear()
        for topic, queue_id in writer.QUEUES:
            self._check_queue(store, topic, queue_id)
        assert self._acknowledged <= self._found, sorted(self._acknowledged - self._found)[:5]
        # Numbers go on behind all that were appended, acknowledged or not.
        self.first = max(self._found, default=-1) + 1
        end_offset = store.log.max_offset
        if close:
            store.close()
        else:
            abandon(store)
        return end_offset

    def _check_queue(self, store: MessageStore, topic: str, queue_id: int) -> None:
        queue = store.queues.get(topic, queue_id)
        if queue is None:
            return
        offset = self._checked.get((topic, queue_id), 0)
        assert queue.max_offset >= offset, "messages that were there are gone"
        while offset < queue.max_offset:
            result = store.read(topic, queue_id, offset, 32)
            for view in result.views:
                for record in decode_records(view):
                    assert record.queue_offset == offset, "queue offsets have a gap"
                    self._check_record(store, record)
                    offset += 1
            assert offset == result.next_offset, "a message is missing"
        self._checked[topic, queue_id] = offset

    def _check_record(self, store: MessageStore, record: Record) -> None:
        unique = record.properties.split(b"\x02")[0].partition(b"\x01")[2].decode()
        number = int(unique[1:])
        topic, queue_id, body, properties = writer.message(self._seed, number)
        assert (record.topic, record.queue_id) == (topic.encode(), queue_id)
        assert (record.body, record.properties) == (body, properties)
        assert number not in self._found, f"{number} is there twice"
        self._found.add(number)
        found = store.lookup.query(topic, unique).records
        assert len(found) == 1, f"{unique} is found {len(found)} times"


def kill_rounds(root: Path, rng: Trial, rounds: int) -> None:
    killed = Killed(root, the_seed())
    end_offset = 0
    for number in range(rounds):
        rng.case = f"round {number}"
        killed.run_and_kill(rng)
        # Sometimes the next writer finds what the killed one left, sometimes what we leave.
        if number % 50 == 49 or rng.random() < 0.7:
            found_end = killed.check(whole=number % 50 == 49, close=rng.random() < 0.5)
            assert found_end >= end_offset, "the log has become shorter"
            end_offset = found_end
        else:
            killed.first += 1_000_000  # more than anybody has written meanwhile
    assert killed.check(whole=True, close=True) > 0


def test_a_killed_writer_loses_nothing_that_it_acknowledged(scratch: Path) -> None:
    with trial("test_a_killed_writer_loses_nothing_that_it_acknowledged") as rng:
        kill_rounds(scratch / "store", rng, ROUNDS)


@pytest.mark.long
def test_a_writer_killed_a_thousand_times_loses_nothing_that_it_acknowledged(
    tmp_path: Path,
) -> None:
    name = "test_a_writer_killed_a_thousand_times_loses_nothing_that_it_acknowledged"
    with trial(name) as rng:
        kill_rounds(tmp_path / "store", rng, LONG_ROUNDS)
