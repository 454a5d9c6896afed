"""Puts appended records into consume queues and key index, in order, and tells listeners.

A queue that fails does not hold up others: its messages move to the backlog and are retried.
"""

import logging
from collections import deque
from collections.abc import Callable, Container
from itertools import islice

from downrange.runtime.clock import Clock
from downrange.store.commit_log import CommitLog
from downrange.store.consume_queue import ENTRY, ConsumeQueue
from downrange.store.dispatch_backlog import DispatchBacklog
from downrange.store.dispatch_entry import DispatchEntry, EntryReader, is_queued
from downrange.store.key_index import KeyIndex
from downrange.store.queue_table import QueueTable
from downrange.store.scanner import Damage, LogScanner, Scanned

_log = logging.getLogger(__name__)
# Entries that wait for their record to become durable; beyond that many they are read from the log
# again when their turn comes, so memory stays bounded.
PENDING_MAX = 1 << 16
_pack_entry = ENTRY.pack
_BATCH_MAX = 64  # records whose keys go into the index together

# Called with topic, queue id, queue offset, tag code, store time and property text.
ArrivalListener = Callable[[str, int, int, int, int, bytes], None]


class Dispatcher:
    """Makes records visible, each exactly once, those of a queue in the order of the log.

    `position` is the physical offset below which every record was looked at: it is visible, or its
    queue has failed and it waits in the backlog. If the key index fails, or the backlog is full,
    `position` stays where it is, and the next call tries again.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        index: KeyIndex | None,
        entries: EntryReader,
        clock: Clock,
        backlog: DispatchBacklog,
    ) -> None:
        self._monotonic_s = clock.monotonic_s
        self.backlog = backlog
        self._log = log
        self._queues = queues
        self._index = index
        self._entries = entries
        self._pending: deque[DispatchEntry] = deque()
        self._listeners: list[tuple[ArrivalListener, Container[str] | None]] = []
        self._rereads = False
        self.deleted_below: dict[str, int] = {}
        self.position = 0
        self._store_timestamp = 0

    def start_at(self, offset: int, store_timestamp: int) -> None:
        """Count everything below `offset` as dispatched."""
        self.position = offset
        self._store_timestamp = store_timestamp

    @property
    def offset(self) -> int:
        """The physical offset below which everything is visible."""
        return self.backlog.first()[0] if self.backlog else self.position

    @property
    def store_timestamp(self) -> int:
        """The store time up to which everything is visible."""
        return self.backlog.first()[1] - 1 if self.backlog else self._store_timestamp

    def add_listener(self, listener: ArrivalListener, topics: Container[str] | None = None) -> None:
        """Have `listener` called for every message that becomes visible.

        With `topics`, only for theirs; it is asked at each message, so its owner may change it.
        """
        self._listeners.append((listener, topics))

    @property
    def pending_count(self) -> int:
        """How many wait to be dispatched; those that are to be read again are not counted."""
        return len(self._pending) + self.backlog.count

    def offer(self, entry: DispatchEntry) -> None:
        """Take note of a record that was just appended."""
        if self._rereads or len(self._pending) >= PENDING_MAX:
            self._rereads = True
            return
        self._pending.append(entry)

    def offer_all(self, entries: list[DispatchEntry]) -> None:
        """Take note of records that were just appended side by side."""
        if self._rereads or len(self._pending) + len(entries) > PENDING_MAX:
            self._rereads = True
            return
        self._pending.extend(entries)

    def forget_topic(self, topic: str) -> None:
        """Give messages of a topic that are in the log by now no queue entry: it was deleted."""
        self.deleted_below[topic] = self._log.max_offset
        for _ in range(len(self._pending)):
            queue, queued, *_ = entry = self._pending.popleft()
            self._pending.append((queue, queued and queue.topic != topic, *entry[2:]))
        self.backlog.drop_topic(topic)

    def dispatch_some(self, limit_offset: int, count_max: int = 10_000) -> int:
        """Dispatch records that end at or below `limit_offset`; returns how many became visible.

        `OSError` if the key index does not take their keys.
        """
        pending = self._pending
        count = visible_count = 0
        batch_max = _BATCH_MAX
        if self.backlog:
            visible = self.backlog.retry(self._monotonic_s(), count_max)
            self._tell(visible)
            count = visible_count = len(visible)
            if self.backlog.is_full:
                return count
        while pending and count < count_max:
            batch = list(islice(pending, min(batch_max, count_max - count)))
            is_cut = batch[-1][3] + batch[-1][4] > limit_offset
            if is_cut:
                batch = [entry for entry in batch if entry[3] + entry[4] <= limit_offset]
            try:
                if batch:
                    visible_count += self._dispatch(batch)
            except OSError:
                if len(batch) == 1:
                    raise
                batch_max = 1  # as far as the disk lets us, and no further
                continue
            if len(batch) == len(pending):
                pending.clear()
            else:
                for _ in batch:
                    pending.popleft()
            count += len(batch)
            if is_cut or self.backlog.is_full:
                return visible_count
        if self._rereads and not pending and count < count_max:
            visible_count += self._reread(limit_offset, count_max - count)
        return visible_count

    def entry_of(self, scanned: Scanned) -> DispatchEntry:
        """What dispatch needs to know of a record that was read from the log."""
        physical_offset, size, queue_id, queue_offset, sys_flag, stored_ms, name, properties = (
            scanned
        )
        topic = name.decode("utf-8", "replace")
        tag_code, keys = self._entries.tag_code_and_keys(topic, sys_flag, properties, stored_ms)
        return (
            self._queues.ensure(topic, queue_id),
            is_queued(sys_flag) and physical_offset >= self.deleted_below.get(topic, 0),
            queue_offset,
            physical_offset,
            size,
            tag_code,
            stored_ms,
            keys,
            properties,
        )

    def _dispatch(self, batch: list[DispatchEntry]) -> int:
        # After a failure half-way the same entries come again: what they left behind is kept.
        rows: dict[ConsumeQueue, list[bytes]] = {}
        failures: dict[ConsumeQueue, OSError] = {}
        current: ConsumeQueue | None = None
        waiting: list[bytes] = []
        expected = 0
        everything = batch
        if self.backlog:
            batch = [entry for entry in batch if not entry[1] or entry[0] not in self.backlog]
        for queue, queued, queue_offset, physical_offset, size, tag_code, _, _, _ in batch:
            if queue is not current:
                current, waiting = queue, rows.setdefault(queue, [])
                expected = queue.max_offset + len(waiting)
            if not queued or queue_offset < expected:
                continue
            if queue_offset == expected:
                waiting.append(_pack_entry(physical_offset, size, tag_code))
                expected += 1
            elif queue not in failures:  # one before it was passed over, damaged
                try:
                    if waiting:
                        queue.put_all(waiting)
                    queue.restore(queue_offset, physical_offset, size, tag_code)
                except OSError as error:
                    failures[queue] = error
                waiting.clear()
                expected = queue.max_offset
        for queue, waiting in rows.items():
            if waiting and queue not in failures:
                try:
                    queue.put_all(waiting)
                except OSError as error:
                    failures[queue] = error
        if self._index is not None:
            self._index.put_batch(everything)
        *_, physical_offset, size, _, stored_ms, _, _ = everything[-1]
        self.position = physical_offset + size
        self._store_timestamp = stored_ms
        if failures or batch is not everything:
            batch = self._set_aside(everything, failures)
        self._tell(batch)
        return len(batch)

    def _set_aside(
        self, batch: list[DispatchEntry], failures: dict[ConsumeQueue, OSError]
    ) -> list[DispatchEntry]:
        """Keep in the backlog what its queue has not taken; returns the rest."""
        backlog, now_s = self.backlog, self._monotonic_s()
        visible: list[DispatchEntry] = []
        for entry in batch:
            queue, queued, queue_offset, *_ = entry
            if queued and queue_offset >= queue.max_offset:
                backlog.add((entry,), now_s, failures.get(queue))
            else:
                visible.append(entry)
        return visible

    def _tell(self, batch: list[DispatchEntry]) -> None:
        """Tell listeners of messages that have become visible."""
        seen = {entry[0].topic for entry in batch}
        for listener, topics in self._listeners:
            if topics is not None and not any(topic in topics for topic in seen):
                continue  # mostly nobody waits for any of them
            for queue, queued, queue_offset, _, _, tag_code, stored_ms, _, text in batch:
                if queued and (topics is None or queue.topic in topics):
                    listener(queue.topic, queue.queue_id, queue_offset, tag_code, stored_ms, text)

    def _reread(self, limit_offset: int, count_max: int) -> int:
        count = visible_count = 0
        scanner = LogScanner(self._log, _report, check_crc=False)
        records = scanner.scan(self.position, limit_offset)
        while count < count_max:
            batch = [
                self.entry_of(scanned)
                for scanned in islice(records, min(_BATCH_MAX, count_max - count))
            ]
            if not batch:
                if limit_offset >= self._log.max_offset:
                    self._rereads = False
                break
            visible_count += self._dispatch(batch)
            count += len(batch)
            if self.backlog.is_full:
                break
        return visible_count


def _report(damage: Damage, _offset: int) -> None:
    _log.error("damaged record passed over: %s", damage)
