"""Seeded small stores for fault tests: what was put into them, and whether it is still there."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from downrange.protocol.batch import encode_batch
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.java_hash import java_hash_bytes
from downrange.protocol.record import decode_record, record_size
from downrange.protocol.sys_flag import BORN_HOST_V6, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from downrange.runtime.disk import Disk
from downrange.store.consume_queue import HOLE_TAG
from downrange.store.message_store import MessageStore
from downrange.store.recovery import RecoveryReport
from downrange.store.settings import KIB, FlushMode, FlushSettings, ReadSettings, StoreSettings
from downrange.testing.clock import ManualClock

DEFAULT_SEED = 20_260_101
LONG_TOPIC = "%RETRY%" + "g" * 130  # too long for a V1 record
TOPICS = ("orders", "payments", "audit", LONG_TOPIC)
TAGS = (b"", b"paid", b"open", b"late")
Place = tuple[str, int, int]  # topic, queue id, queue offset


def the_seed() -> int:
    """The seed of this run; set DOWNRANGE_SEED to repeat another one."""
    return int(os.environ.get("DOWNRANGE_SEED", str(DEFAULT_SEED)))


class Trial(random.Random):
    """The random source of a test; `case` says what is being tried, for the report of a failure."""

    case = ""


@contextmanager
def trial(name: str) -> Iterator[Trial]:
    """A random source for a test; prints seed and verdict, and how to repeat a failure."""
    seed = the_seed()
    rng = Trial(f"{seed} {name}")
    outcome = f"FAILED at {{}}; repeat with DOWNRANGE_SEED={seed} pytest -n0 -k {name}"
    try:
        yield rng
        outcome = "passed"
    finally:
        print(f"{name}: seed={seed} {outcome.format(rng.case or 'the start')}")  # noqa: T201


class QuickDisk(Disk):
    """A disk without syncs: what the page cache has is what the next open sees anyway."""

    def write(self, path: Path, data: bytes) -> None:
        """Replace a file, as durable as the page cache."""
        path.write_bytes(data)

    def sync(self, descriptor: int) -> None:
        """Take it for done."""

    def fsync_directory(self, path: Path) -> None:
        """Take it for done."""


@dataclass(frozen=True)
class Sent:
    """A message that a store has taken."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    tag_code: int
    body: bytes
    properties: bytes
    keys: tuple[str, ...]
    queued: bool = True

    @property
    def place(self) -> Place:
        """Where a reader finds it."""
        return self.topic, self.queue_id, self.queue_offset

    @property
    def content(self) -> tuple[bytes, bytes, int]:
        """What a reader must get."""
        return self.body, self.properties, self.physical_offset


@dataclass
class Served:
    """What a reader got: sound messages, and records that do not pass the client's checks."""

    messages: dict[Place, tuple[bytes, bytes, int]] = field(default_factory=dict)
    refused: list[int] = field(default_factory=list)


def small_settings(root: Path) -> StoreSettings:
    """Files so small that a few hundred messages fill several of each kind."""
    return StoreSettings(
        root=root,
        segment_bytes=64 * KIB,
        queue_entries=40,
        index_slots=64,
        index_items=150,
        read=ReadSettings(memory_bytes=1 << 30),
    )


def tiny_settings(root: Path) -> StoreSettings:
    """Files so small that each single byte of them can be tried."""
    return replace(
        small_settings(root), segment_bytes=2 * KIB, queue_entries=8, index_slots=5, index_items=12
    )


def sync_settings(root: Path) -> StoreSettings:
    """Small files, and nothing visible before it is durable."""
    return replace(small_settings(root), flush=FlushSettings(mode=FlushMode.SYNC))


def open_store(settings: StoreSettings, disk: Disk | None = None) -> MessageStore:
    """An open store on a quick disk."""
    store, _ = reopen(settings, disk)
    return store


def reopen(
    settings: StoreSettings, disk: Disk | None = None
) -> tuple[MessageStore, RecoveryReport]:
    """An open store, and what its recovery saw."""
    store = MessageStore(settings, disk or QuickDisk(), ManualClock())
    return store, store.open()


def abandon(store: MessageStore) -> None:
    """Leave a store as a killed process leaves it: the files as they are, the abort file there."""
    store._is_open = False
    store._unmap()


def lose_power(store: MessageStore) -> None:
    """Leave a store so that the next start takes the machine for crashed and trusts no queue."""
    abandon(store)
    (store.settings.root / "abort").write_bytes(b"1\n")


class Sender:
    """Puts random messages into a store and remembers them."""

    def __init__(self, store: MessageStore, rng: random.Random, body_max: int = 1_200) -> None:
        self._store = store
        self._rng = rng
        self._body_max = body_max
        self._number = 0
        self.sent: list[Sent] = []

    def send(self, count: int) -> list[Sent]:
        """Append and dispatch so many messages, some of them in batches."""
        first = len(self.sent)
        while len(self.sent) < first + count:
            clock = self._store._clock
            assert isinstance(clock, ManualClock)
            clock.advance(self._rng.choice((0, 1, 40, 1_500)))
            topic, queue_id = self._rng.choice(TOPICS), self._rng.randrange(2)
            kind = self._rng.random()
            if kind < 0.1 and topic != LONG_TOPIC:
                self._batch(topic, queue_id)
            elif kind < 0.15:
                self._one(topic, queue_id, TRANSACTION_PREPARED)
            elif kind < 0.18:
                self._one(topic, queue_id, TRANSACTION_ROLLBACK)
            elif kind < 0.3:
                self._one(topic, queue_id, BORN_HOST_V6)
            else:
                self._one(topic, queue_id, 0)
        self._store.flush_now()
        self._store.dispatch_some()
        return self.sent[first:]

    def small(self, topic: str, queue_id: int, count: int = 1) -> list[Sent]:
        """Append and dispatch messages of a few bytes."""
        first = len(self.sent)
        for _ in range(count):
            self._one(topic, queue_id, 0, body_max=8)
        self._store.flush_now()
        self._store.dispatch_some()
        return self.sent[first:]

    def _message(self, body_max: int) -> tuple[bytes, bytes, tuple[str, ...], int]:
        self._number += 1
        tag = self._rng.choice(TAGS)
        unique = f"U{self._rng.getrandbits(40):010X}"
        keys = [f"k{self._rng.randrange(30)}" for _ in range(self._rng.randrange(3))]
        parts = [b"UNIQ_KEY\x01" + unique.encode()]
        parts += [b"KEYS\x01" + " ".join(keys).encode()] if keys else []
        parts += [b"TAGS\x01" + tag] if tag else []
        body = self._rng.randbytes(self._rng.randrange(body_max + 1))
        return body, b"\x02".join(parts), (unique, *keys), java_hash_bytes(tag) if tag else 0

    def _one(self, topic: str, queue_id: int, sys_flag: int, body_max: int = 0) -> None:
        body, properties, keys, tag_code = self._message(body_max or self._body_max)
        born_host = bytes(20 if sys_flag & BORN_HOST_V6 else 8)
        put = self._store.append(
            topic, queue_id, body, properties, sys_flag, 0, 1_700_000_000_000, born_host
        )
        queued = sys_flag in {0, BORN_HOST_V6}
        if sys_flag == TRANSACTION_ROLLBACK:
            keys = ()
        self.sent.append(
            Sent(
                topic,
                queue_id,
                put.queue_offset,
                put.physical_offset,
                put.size,
                tag_code,
                body,
                properties,
                keys,
                queued,
            )
        )

    def _batch(self, topic: str, queue_id: int) -> None:
        made = [self._message(self._body_max // 4) for _ in range(self._rng.randrange(2, 6))]
        batch = encode_batch((0, body, properties) for body, properties, _, _ in made)
        places = self._store.append_batch(topic, queue_id, batch)
        for put, (body, properties, keys, tag_code) in zip(places, made, strict=True):
            place = (put.queue_offset, put.physical_offset, put.size)
            self.sent.append(Sent(topic, queue_id, *place, tag_code, body, properties, keys))


def read_all(store: MessageStore) -> Served:
    """Everything that a client gets when it reads each queue from its first offset to its last."""
    served = Served()
    for queue in list(store.queues):
        offset = queue.min_offset
        while offset < queue.max_offset:
            result = store.read(queue.topic, queue.queue_id, offset, 32)
            assert result.next_offset > offset, result
            for view in result.views:
                _take_records(view, served)
            offset = result.next_offset
    return served


def _take_records(view: memoryview, served: Served) -> None:
    start = 0
    while start < len(view):
        size = record_size(view, start)
        try:
            record = decode_record(view[start : start + size])
        except RemoteProtocolError:
            served.refused.append(start)
        else:
            place = (
                record.topic.decode("utf-8", "replace"),
                record.queue_id,
                record.queue_offset,
            )
            content = (record.body, record.properties, record.physical_offset)
            assert place not in served.messages, f"served twice: {place}"
            served.messages[place] = content
        start += size


def check_served(store: MessageStore, sent: list[Sent], *, but: list[Sent] | None = None) -> Served:
    """Each message is served as it was sent, except those in `but`, which may be missing."""
    served = read_all(store)
    excepted = {message.place for message in but or [] if message.queued}
    for message in sent:
        if message.queued and message.place not in excepted:
            got = served.messages.get(message.place)
            assert got == message.content, f"{message.place}: {'lost' if got is None else got[2]}"
    return served


def check_entries(store: MessageStore, sent: list[Sent], *, but: list[Sent] | None = None) -> None:
    """Each queue entry is what the message says, and no queue has more entries than messages.

    Where the newest message of a queue is in `but`, its entry may be missing; and one in `but`
    may have become the newest of another queue, whose name its damaged record now bears.
    """
    excepted = {message.place for message in but or [] if message.queued}
    strayed = {message.physical_offset for message in but or []}
    ends: dict[tuple[str, int], tuple[str, int, int, int]] = {}
    for message in sent:
        if not message.queued:
            continue
        ends[message.topic, message.queue_id] = (*message.place, message.physical_offset)
        if message.place in excepted:
            continue
        queue = store.queues.get(message.topic, message.queue_id)
        assert queue is not None, message.place
        assert queue.min_offset <= message.queue_offset < queue.max_offset, message.place
        expected = (message.physical_offset, message.size, message.tag_code)
        assert queue.entry(message.queue_offset) == expected, message.place
    for (topic, queue_id), last in ends.items():
        queue = store.queues.get(topic, queue_id)
        end = queue.max_offset if queue is not None else 0
        if queue is not None and end and queue.entry(end - 1)[0] in strayed - {last[3]}:
            end -= 1
        may_be_missing = last[:3] in excepted
        assert end == last[2] + 1 or (may_be_missing and end == last[2]), f"{last}: {end}"


def check_keys(store: MessageStore, sent: list[Sent], *, but: list[Sent] | None = None) -> None:
    """Each message is found by each of its keys."""
    excepted = {message.physical_offset for message in but or []}
    wanted: dict[tuple[str, str], set[int]] = {}
    for message in sent:
        if message.physical_offset not in excepted:
            for key in message.keys:
                wanted.setdefault((message.topic, key), set()).add(message.physical_offset)
    for (topic, key), offsets in wanted.items():
        found = {
            decode_record(view, check_crc=False).physical_offset
            for view in store.lookup.query(topic, key).records
        }
        assert offsets <= found, f"{topic} {key}: {offsets - found} not found"


def check_all(store: MessageStore, sent: list[Sent], *, but: list[Sent] | None = None) -> None:
    """Messages, entries and keys are all as they were sent."""
    check_entries(store, sent, but=but)
    check_served(store, sent, but=but)
    check_keys(store, sent, but=but)


def is_hole(store: MessageStore, message: Sent) -> bool:
    """Whether the queue says that the message is lost."""
    queue = store.queues.get(message.topic, message.queue_id)
    return queue is not None and queue.entry(message.queue_offset)[2] == HOLE_TAG


@dataclass(frozen=True)
class Template:
    """A store whose files are kept in memory, to be laid out again for each case."""

    settings: StoreSettings
    sent: tuple[Sent, ...]
    files: dict[str, bytes]

    def lay_out(self, root: Path, changed: dict[str, bytes | None] | None = None) -> StoreSettings:
        """Write the files below `root`, some of them changed, or left out where None."""
        for name, data in (self.files | (changed or {})).items():
            path = root / name
            if data is None:
                path.unlink(missing_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return replace(self.settings, root=root)

    def names(self, kind: str) -> list[str]:
        """The files of one kind, by the directory or file name they begin with."""
        return sorted(name for name in self.files if name.startswith(kind))


def take_template(settings: StoreSettings, sent: list[Sent]) -> Template:
    """Keep the files of a store that nobody has open."""
    files = {
        str(path.relative_to(settings.root)): path.read_bytes()
        for path in sorted(settings.root.rglob("*"))
        if path.is_file()
    }
    return Template(settings, tuple(sent), files)
