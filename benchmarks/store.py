"""How fast the store is, and where the time goes.

usage: store.py [--messages N] [--runs 3] [--body 128] [--recovery-mib 1024] [--directory DIR]

Appends messages with a unique id to four queues, dispatches every 32, reads them back in
batches of 32, then measures each step alone, and the recovery of a log of 300-byte records after a
crash. Figures are medians of many slices; `x bare` is the ratio to a loop of plain Python measured
beside each slice, which is what to compare between machines and moments.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from zlib import crc32

from machine import anonymous_memory_mib, bare_loop_us, facts

from downrange.protocol.delay_levels import DelayLevels
from downrange.protocol.record import HEAD_V4, MAGIC_V1, tail, topic_field
from downrange.store.dispatch_entry import EntryReader
from downrange.store.message_store import MessageStore
from downrange.store.settings import StoreSettings

TOPIC = "BenchmarkTest"
QUEUES = 4
BATCH = 32
SLICE = 100 * BATCH
HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"


TAG = b"TAGS\x01TagA\x02"


def property_text(number: int, more: bytes = b"") -> bytes:
    """What a Java client writes for a message: unique id and wait flag."""
    return b"UNIQ_KEY\x017F0000010001%020X\x02WAIT\x01true\x02" % number + more


def fresh_store(directory: Path) -> MessageStore:
    """An empty store with RocketMQ's file sizes."""
    shutil.rmtree(directory, ignore_errors=True)
    store = MessageStore(StoreSettings(root=directory))
    store.open()
    return store


class Samples:
    """Times of slices, each beside a bare loop of the same moment."""

    def __init__(self) -> None:
        self._times_us: list[float] = []
        self._ratios: list[float] = []

    def take(self, work: Callable[[], int]) -> None:
        """Run a slice of work, which says how many messages it did."""
        bare_us = bare_loop_us()
        start = time.perf_counter()
        count = work()
        us = (time.perf_counter() - start) / count * 1e6
        self._times_us.append(us)
        self._ratios.append(us / min(bare_us, bare_loop_us()))

    def row(self, name: str) -> str:
        """A line of the table: medians of all slices."""
        us = statistics.median(self._times_us)
        ratio = statistics.median(self._ratios)
        return f"  {name:<48} {us:7.2f} us {1e6 / us:12,.0f}/s {ratio:7.1f} x bare"


def append_slice(store: MessageStore, texts: list[bytes], body: bytes) -> int:
    """Append and dispatch; returns how many."""
    append = store.append
    for first in range(0, len(texts), BATCH):
        for number in range(first, min(first + BATCH, len(texts))):
            append(TOPIC, number & 3, body, texts[number], 0, 0, 1_700_000_000_000, HOST)
        store.dispatch_some()
    return len(texts)


def read_slice(store: MessageStore, offsets: list[int]) -> int:
    """Read on in every queue, in batches, to its end; returns how many."""
    count = 0
    for queue_id in range(QUEUES):
        while True:
            result = store.read(TOPIC, queue_id, offsets[queue_id], BATCH)
            if not result.message_count:
                break
            count += result.message_count
            offsets[queue_id] = result.next_offset
    return count


def steps(
    store: MessageStore, texts: list[bytes], body: bytes, samples: dict[str, Samples]
) -> None:
    """Each step of an append, taken alone."""
    count = len(texts)

    def measure(name: str, work: Callable[[], None]) -> None:
        def slice_of_work() -> int:
            work()
            return count

        samples.setdefault(name, Samples()).take(slice_of_work)

    _, name = topic_field(TOPIC.encode())
    rests = [tail(body, name, text) for text in texts]
    size = HEAD_V4.size + len(rests[0])
    packed = HEAD_V4.pack(
        size, MAGIC_V1, 0, 0, 0, 0, 0, 0, 0, HOST, 0, HOST, 0, 0, len(body)
    )  # fmt: skip
    entries = EntryReader(DelayLevels.parse())
    queue = store.queues.ensure("steps", 0)
    index = store.index
    assert index is not None
    log = store.log

    def encode() -> None:
        for text in texts:
            rest = tail(body, name, text)
            HEAD_V4.pack(
                HEAD_V4.size + len(rest), MAGIC_V1, crc32(body) & 0x7FFFFFFF, 0, 0, 0, 0, 0, 0,
                HOST, 0, HOST, 0, 0, len(body),
            )  # fmt: skip

    def write() -> None:
        for rest in rests:
            log.place(size)
            log.write(packed, rest)

    def tag_and_keys() -> None:
        for text in texts:
            entries.tag_code_and_keys(TOPIC, 0, text, 0)

    def queue_entry() -> None:
        for number in range(count):
            queue.put(number, size, 0)

    def index_entry() -> None:
        for number, text in enumerate(texts):
            index.put(TOPIC, [text[9:41]], number, 1_700_000_000_000)

    measure("record encoded (parts joined, body CRC, head)", encode)
    measure("record placed and copied into the log", write)
    measure("tag code and keys found", tag_and_keys)
    measure("queue entry", queue_entry)
    measure("key hashed and indexed", index_entry)


def recovery_s(directory: Path, log_bytes: int) -> tuple[float, int]:
    """Seconds to open a store of that size after its process died, and the records it held."""
    store = fresh_store(directory)
    text = property_text(0)
    body = bytes(300 - HEAD_V4.size - 1 - len(TOPIC) - 2 - len(text))
    count = 0
    while store.log.max_offset < log_bytes - 400:
        for _ in range(1024):
            store.append(TOPIC, count & 3, body, property_text(count))
            count += 1
            if store.log.max_offset >= log_bytes - 400:
                break
        store.dispatch_some()
    store.flush_now()
    mark = (directory / "abort").read_bytes()
    store.close()
    (directory / "abort").write_bytes(mark)
    (directory / "checkpoint").unlink()  # nothing vouched for: every record is read again
    start = time.perf_counter()
    store = MessageStore(StoreSettings(root=directory))
    report = store.open()
    elapsed = time.perf_counter() - start
    assert report.record_count == count, (report, count)
    store.close()
    return elapsed, count


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--body", type=int, default=128)
    parser.add_argument("--recovery-mib", type=int, default=1023)
    parser.add_argument("--directory", type=Path, default=None)
    options = parser.parse_args()
    print(facts())
    print(f"{options.runs} runs of {options.messages:,} messages of {options.body} bytes")
    body = bytes(options.body)
    appends, tagged, reads = Samples(), Samples(), Samples()
    step_samples: dict[str, Samples] = {}
    memory: list[str] = []
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        directory = Path(folder) / "store"
        for _ in range(options.runs):
            store = fresh_store(directory)
            before = anonymous_memory_mib()
            offsets = [0] * QUEUES
            for first in range(0, options.messages, SLICE):
                texts = [property_text(number) for number in range(first, first + SLICE)]
                appends.take(partial(append_slice, store, texts, body))
                reads.take(partial(read_slice, store, offsets))
                texts = [property_text(number, TAG) for number in range(first, first + SLICE)]
                tagged.take(partial(append_slice, store, texts, body))
            memory.append(f"{before:.0f} -> {anonymous_memory_mib():.0f}")
            for first in range(0, SLICE * 5, SLICE):
                texts = [property_text(number) for number in range(first, first + SLICE)]
                steps(store, texts, body, step_samples)
            store.close()
        print(appends.row("append, queue entry and index"))
        print(tagged.row("the same with a tag, which is indexed too"))
        print(reads.row(f"read in batches of {BATCH}"))
        print("steps of an append, each alone:")
        for name, samples in step_samples.items():
            print(samples.row(name))
        print(f"memory without mapped files, MiB, before -> after appending: {', '.join(memory)}")
        if options.recovery_mib:
            bare_us = bare_loop_us()
            seconds, count = recovery_s(directory, options.recovery_mib << 20)
            print(
                f"crash recovery of {options.recovery_mib} MiB in {count:,} records of 300 bytes: "
                f"{seconds:.1f} s, {seconds / count * 1e6:.2f} us a record, "
                f"{seconds / count * 1e6 / min(bare_us, bare_loop_us()):.1f} x bare"
            )


if __name__ == "__main__":
    main()
