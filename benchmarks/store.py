"""How fast the store is, and where the time goes.

usage: store.py [--messages N] [--runs 3] [--body 128] [--recovery-mib 1024] [--directory DIR]

Appends messages with a unique id and a tag to four queues, dispatches every 32, reads them back in
batches of 32, then measures each step alone, and the recovery of a log of 300-byte records after a
crash. Figures are medians of the runs; `x bare` is the ratio to a loop of plain Python measured in
the same run, which is what to compare between machines.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
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
HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"


def property_text(number: int) -> bytes:
    """What a Java client writes for a message with a tag: unique id, wait flag, tag."""
    return b"UNIQ_KEY\x017F0000010001%020X\x02WAIT\x01true\x02TAGS\x01TagA\x02" % number


def fresh_store(directory: Path) -> MessageStore:
    """An empty store with RocketMQ's file sizes."""
    shutil.rmtree(directory, ignore_errors=True)
    store = MessageStore(StoreSettings(root=directory))
    store.open()
    return store


def append_all(store: MessageStore, texts: list[bytes], body: bytes) -> float:
    """Append and dispatch; microseconds a message."""
    append = store.append
    start = time.perf_counter()
    for first in range(0, len(texts), BATCH):
        for number in range(first, min(first + BATCH, len(texts))):
            append(TOPIC, number & 3, body, texts[number], 0, 0, 1_700_000_000_000, HOST)
        store.dispatch_some()
    return (time.perf_counter() - start) / len(texts) * 1e6


def read_all(store: MessageStore) -> float:
    """Read every queue in batches; microseconds a message."""
    count = 0
    start = time.perf_counter()
    for queue_id in range(QUEUES):
        offset = 0
        while True:
            result = store.read(TOPIC, queue_id, offset, BATCH)
            if not result.message_count:
                break
            count += result.message_count
            offset = result.next_offset
    return (time.perf_counter() - start) / count * 1e6


def steps(store: MessageStore, texts: list[bytes], body: bytes) -> dict[str, float]:
    """Microseconds of each step of an append, taken alone."""
    count = len(texts)
    rows: dict[str, float] = {}

    def measure(name: str, work: Callable[[], None]) -> None:
        start = time.perf_counter()
        work()
        rows[name] = (time.perf_counter() - start) / count * 1e6

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
            entries.tag_code(TOPIC, text, 0)
            entries.keys(0, text)

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
    return rows


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


def row(name: str, us: float, bare_us: float, unit: str = "") -> str:
    """A line of the table."""
    return f"  {name:<48} {us:7.2f} us {1e6 / us:12,.0f}/s {us / bare_us:7.1f} x bare {unit}"


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
    texts = [property_text(number) for number in range(options.messages)]
    body = bytes(options.body)
    bare: list[float] = []
    appends: list[float] = []
    reads: list[float] = []
    step_rows: dict[str, list[float]] = {}
    memory: list[str] = []
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        directory = Path(folder) / "store"
        for _ in range(options.runs):
            bare.append(bare_loop_us())
            store = fresh_store(directory)
            before = anonymous_memory_mib()
            appends.append(append_all(store, texts, body))
            memory.append(f"{before:.0f} -> {anonymous_memory_mib():.0f}")
            reads.append(read_all(store))
            for name, us in steps(store, texts, body).items():
                step_rows.setdefault(name, []).append(us)
            store.close()
        bare_us = statistics.median(bare)
        print(f"bare loop {bare_us:.3f} us; {options.messages:,} messages of {options.body} bytes")
        print(row("append, queue entry and index", statistics.median(appends), bare_us))
        print(row(f"read in batches of {BATCH}", statistics.median(reads), bare_us))
        print("steps of an append, each alone:")
        for name, values in step_rows.items():
            print(row(name, statistics.median(values), bare_us))
        print(f"memory without mapped files, MiB, before -> after appending: {', '.join(memory)}")
        if options.recovery_mib:
            seconds, count = recovery_s(directory, options.recovery_mib << 20)
            print(
                f"crash recovery of {options.recovery_mib} MiB in {count:,} records of 300 bytes: "
                f"{seconds:.1f} s, {seconds / count * 1e6:.2f} us a record, "
                f"{seconds / count * 1e6 / bare_us:.1f} x bare"
            )


if __name__ == "__main__":
    main()
