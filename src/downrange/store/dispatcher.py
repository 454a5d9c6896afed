"""Brings appended records, in order, into consume queues, key index and the ears of listeners."""

import logging
from collections import deque
from collections.abc import Callable

from downrange.store.commit_log import CommitLog
from downrange.store.dispatch_entry import DispatchEntry, EntryReader, is_queued
from downrange.store.key_index import KeyIndex
from downrange.store.queue_table import QueueTable
from downrange.store.scanner import Damage, LogScanner, Scanned

_log = logging.getLogger(__name__)
# Entries that wait for their record to become durable; beyond that many they are read from the log
# again when their turn comes, so memory stays bounded.
PENDING_MAX = 1 << 16

# Called with topic, queue id, queue offset, tag code, store time and property text.
ArrivalListener = Callable[[str, int, int, int, int, bytes], None]


class Dispatcher:
    """Makes records visible, each exactly once and in the order of the log.

    `offset` is the physical offset up to which everything is dispatched. A failure of the disk
    leaves it where it was, and the next call tries again.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        index: KeyIndex | None,
        entries: EntryReader,
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._entries = entries
        self._pending: deque[DispatchEntry] = deque()
        self._listeners: list[ArrivalListener] = []
        self._rereads = False
        self.deleted_below: dict[str, int] = {}
        self.offset = 0
        self.store_timestamp = 0

    def start_at(self, offset: int, store_timestamp: int) -> None:
        """Count everything below `offset` as dispatched."""
        self.offset = offset
        self.store_timestamp = store_timestamp

    def add_listener(self, listener: ArrivalListener) -> None:
        """Have `listener` called for every message that becomes visible."""
        self._listeners.append(listener)

    def offer(self, entry: DispatchEntry) -> None:
        """Take note of a record that was just appended."""
        if self._rereads or len(self._pending) >= PENDING_MAX:
            self._rereads = True
            return
        self._pending.append(entry)

    def forget_topic(self, topic: str) -> None:
        """Give messages of a topic that are in the log by now no queue entry: it was deleted."""
        self.deleted_below[topic] = self._log.max_offset
        for _ in range(len(self._pending)):
            queue, queued, *_ = entry = self._pending.popleft()
            self._pending.append((queue, queued and queue.topic != topic, *entry[2:]))

    def dispatch_some(self, limit_offset: int, count_max: int = 10_000) -> int:
        """Dispatch records that end at or below `limit_offset`; returns how many."""
        pending = self._pending
        count = 0
        while pending and count < count_max:
            entry = pending[0]
            if entry[3] + entry[4] > limit_offset:
                return count
            self._dispatch(entry)
            pending.popleft()
            count += 1
        if self._rereads and not pending and count < count_max:
            count += self._reread(limit_offset, count_max - count)
        return count

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

    def _dispatch(self, entry: DispatchEntry) -> None:
        queue, queued, queue_offset, physical_offset, size, tag_code, stored_ms, keys, text = entry
        # After a failure half-way the same entry comes again: what it has left behind is kept.
        if queued and queue_offset >= queue.max_offset:
            if queue_offset == queue.max_offset:
                queue.put(physical_offset, size, tag_code)
            else:  # one before it was passed over, damaged
                queue.restore(queue_offset, physical_offset, size, tag_code)
        if keys and self._index is not None:
            self._index.put(queue.topic, keys, physical_offset, stored_ms)
        self.offset = physical_offset + size
        self.store_timestamp = stored_ms
        if queued:
            for listener in self._listeners:
                listener(queue.topic, queue.queue_id, queue_offset, tag_code, stored_ms, text)

    def _reread(self, limit_offset: int, count_max: int) -> int:
        count = 0
        scanner = LogScanner(self._log, _report, check_crc=False)
        for scanned in scanner.scan(self.offset, limit_offset):
            if count >= count_max:
                return count
            self._dispatch(self.entry_of(scanned))
            count += 1
        if limit_offset >= self._log.max_offset:
            self._rereads = False
        return count


def _report(damage: Damage, _offset: int) -> None:
    _log.error("damaged record passed over: %s", damage)
