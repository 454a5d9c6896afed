"""A signal while a broker still reads its log: it stops at once, and nothing is lost."""

import signal
import time
from pathlib import Path

import pytest
from faults.broker.cluster import Cluster
from faults.broker.peers import RecordProperty
from faults.stores import QuickDisk, abandon, trial
from processes import POLL_SECONDS

from downrange.store.message_store import MessageStore
from downrange.store.settings import StoreSettings

RECORDS = 40_000  # half a second of reading, or more
STOP_SECONDS_MAX = 30.0
SEGMENT_BYTES = 64 << 20
QUEUE_ENTRIES = 20_000
LARGE_FILES = {
    "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
    "mappedFileSizeConsumeQueue": str(QUEUE_ENTRIES * 20),
}


def fill(root: Path) -> None:
    """A store as a killed process leaves it, with no checkpoint: all of it must be read again."""
    settings = StoreSettings(
        root=root,
        segment_bytes=SEGMENT_BYTES,
        queue_entries=QUEUE_ENTRIES,
        index_slots=500,
        index_items=2_000,
    )
    store = MessageStore(settings, QuickDisk())
    store.open()
    for number in range(RECORDS):
        store.append("orders", number % 4, b"body", b"")
    store.dispatch_some(RECORDS)
    abandon(store)
    (root / "checkpoint").unlink(missing_ok=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_recovery_ends_the_start(
    scratch: Path, record_property: RecordProperty, number: signal.Signals
) -> None:
    with (
        trial("test_a_signal_during_recovery_ends_the_start"),
        Cluster(scratch, LARGE_FILES) as cluster,
    ):
        cluster.store.mkdir(parents=True)
        fill(cluster.store)
        broker = cluster.start_broker(ready="")
        lock = cluster.store / "lock"
        taken = lock.stat().st_mtime_ns
        while lock.stat().st_mtime_ns == taken:  # written anew when the log is about to be read
            assert broker.process.poll() is None, broker.log
            time.sleep(POLL_SECONDS / 10)
        start_s = time.monotonic()
        broker.process.send_signal(number)
        assert broker.process.wait(STOP_SECONDS_MAX) == 0
        took_s = time.monotonic() - start_s
        assert f"stopping on {number.name}" in broker.log
        assert "the start is given up" in broker.log
        assert "recovered" not in broker.log
        # The next start reads everything.
        cluster.start_names()
        again = cluster.start_broker()
        assert f"records={RECORDS}" in again.log
        again.stop()
        cluster.check_logs()
        record_property("seen", f"stopped_in={took_s:.2f}s")
