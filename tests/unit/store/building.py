"""Small stores for unit tests: files of a few entries, a clock and a disk that a test directs."""

import errno
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack

import pytest

from downrange.protocol.record import Record, decode_records
from downrange.runtime.clock import Clock
from downrange.runtime.disk import Disk, DiskUsage
from downrange.store.consume_queue import ConsumeQueue
from downrange.store.log_paths import LogPaths
from downrange.store.message_store import MessageStore
from downrange.store.reader import ReadResult, ReadStatus
from downrange.store.recovery import RecoveryReport
from downrange.store.settings import (
    FlushSettings,
    ReadSettings,
    RetentionSettings,
    StoreSettings,
)
from downrange.testing.clock import ManualClock

SEGMENT_BYTES = 4096
QUEUE_ENTRIES = 10
INDEX_SLOTS = 13
INDEX_ITEMS = 21  # item 0 is never used, so 20 keys fit
TOPIC = "T"
HEAD_AND_LENGTHS = 91  # a record without body, topic and properties
FULL_PERCENT = 100


class StagedDisk(Disk):
    """The real files, with room, usage and ages as a test says; nothing waits for the hardware."""

    def __init__(self) -> None:
        self.used_ratio = 0.10
        self.boot = "boot-1"
        self.modified: dict[str, int] = {}  # file name -> time, where a test wants another
        self.allocations: list[tuple[int, int]] = []
        self.on_allocate: Callable[[], None] = lambda: None
        self.on_sync: Callable[[], None] = lambda: None
        self.open_descriptors: set[int] = set()

    def usage(self, path: Path) -> DiskUsage:
        del path
        used = round(FULL_PERCENT * 10 * self.used_ratio)
        return DiskUsage(total_bytes=FULL_PERCENT * 10, free_bytes=FULL_PERCENT * 10 - used)

    def boot_id(self) -> str:
        return self.boot

    def modified_ms(self, path: Path) -> int:
        return self.modified.get(path.name, super().modified_ms(path))

    def allocate(self, descriptor: int, offset: int, length: int) -> None:
        del descriptor
        self.allocations.append((offset, length))
        self.on_allocate()

    def sync(self, descriptor: int) -> None:
        del descriptor
        self.on_sync()

    def fsync_directory(self, path: Path) -> None:
        del path

    def write(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)

    def open_file(self, path: Path, *, create: bool, writable: bool = True) -> int:
        descriptor = super().open_file(path, create=create, writable=writable)
        self.open_descriptors.add(descriptor)
        return descriptor

    def close_file(self, descriptor: int) -> None:
        super().close_file(descriptor)
        self.open_descriptors.discard(descriptor)


def no_space() -> None:
    """What a disk does when it is full."""
    raise OSError(errno.ENOSPC, "No space left on device")


def input_output_error() -> None:
    """What a disk does when it is broken."""
    raise OSError(errno.EIO, "Input/output error")


def make_writes_slow(
    store: MessageStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, slow: list[int]
) -> None:
    """Let each write take as many milliseconds as the list says, then none."""
    write = store.log.write

    def slow_write(head: bytes, rest: bytes) -> None:
        clock.advance(slow.pop(0) if slow else 0)
        write(head, rest)

    monkeypatch.setattr(store.log, "write", slow_write)


class Changes(TypedDict, total=False):
    """Settings that a test may want otherwise than `small_settings` has them."""

    commit_log: LogPaths
    starts_without_log: bool
    segment_bytes: int
    queue_entries: int
    index_slots: int
    index_items: int
    index_enabled: bool
    message_bytes_max: int
    is_slave: bool
    store_host: bytes
    long_topics_enabled: bool
    page_cache_busy_ms: int
    check_whole_on_recover: bool
    append_record_crc: bool
    flush: FlushSettings
    retention: RetentionSettings
    read: ReadSettings


def small_settings(root: Path, **changes: Unpack[Changes]) -> StoreSettings:
    """Files so small that a few messages fill them."""
    settings = StoreSettings(
        root=root,
        segment_bytes=SEGMENT_BYTES,
        queue_entries=QUEUE_ENTRIES,
        index_slots=INDEX_SLOTS,
        index_items=INDEX_ITEMS,
        read=ReadSettings(memory_bytes=1 << 30),
    )
    return replace(settings, **changes)


def open_store(
    root: Path,
    clock: Clock | None = None,
    disk: Disk | None = None,
    **changes: Unpack[Changes],
) -> MessageStore:
    """A store that is open."""
    store = MessageStore(
        small_settings(root, **changes), disk or StagedDisk(), clock or ManualClock()
    )
    store.open()
    return store


def fill(
    store: MessageStore,
    bodies: Iterable[bytes],
    topic: str = TOPIC,
    queue_id: int = 0,
    properties: bytes = b"",
) -> None:
    """Append messages and make them visible."""
    for body in bodies:
        store.append(topic, queue_id, body, properties)
    assert store.flush_now()
    store.dispatch_some()


def numbered(count: int, size: int = 4) -> list[bytes]:
    """Bodies that tell which one they are."""
    return [f"{number:0{size}d}".encode() for number in range(count)]


def records_of(result: ReadResult) -> list[Record]:
    """The records of a read."""
    return [record for view in result.views for record in decode_records(view)]


def bodies_of(result: ReadResult) -> list[bytes]:
    """The bodies of a read."""
    return [record.body for record in records_of(result)]


def crash(store: MessageStore) -> None:
    """Leave the store as a killed process does: nothing is closed, the abort file stays."""
    store._unmap()


# --- files on the disk, for tests of what a start makes of them ---------------------------

KEYS = b"KEYS\x01k\x02"
RECORD_BYTES = HEAD_AND_LENGTHS + 1 + 4 + len(KEYS)  # topic "T", a body of four bytes, one key


def written(root: Path, disk: StagedDisk, count: int) -> None:
    """A store of so many numbered messages, closed in order."""
    store = open_store(root, disk=disk)
    fill(store, numbered(count), properties=KEYS)
    store.close()


def reopen(
    root: Path, disk: StagedDisk, clock: ManualClock | None = None
) -> tuple[MessageStore, RecoveryReport]:
    """The store on these files, and what its recovery saw."""
    store = MessageStore(small_settings(root), disk, clock or ManualClock())
    return store, store.open()


def all_bodies(store: MessageStore, topic: str = TOPIC, queue_id: int = 0) -> list[bytes]:
    """Everything that a consumer would get."""
    bodies: list[bytes] = []
    offset = 0
    while (result := store.read(topic, queue_id, offset, 32)).next_offset > offset:
        bodies += bodies_of(result)
        offset = result.next_offset
    return bodies


def log_file(root: Path, number: int = 0) -> Path:
    """A file of the log by its number."""
    return sorted((root / "commitlog").iterdir())[number]


def damage(path: Path, position: int, data: bytes) -> None:
    """Write over a part of a file."""
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def files_of(root: Path) -> dict[str, bytes]:
    """What log, queues and index have on disk."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for part in ("commitlog", "consumequeue", "index")
        for path in sorted((root / part).rglob("*"))
        if path.is_file()
    }


def queue_of(store: MessageStore) -> ConsumeQueue:
    """The first queue of topic T."""
    queue = store.queues.get("T", 0)
    assert queue is not None
    return queue


def bounds(result: ReadResult) -> tuple[ReadStatus, int, int, int]:
    """The status of a read and its offsets: next, least, most."""
    return result.status, result.next_offset, result.min_offset, result.max_offset
