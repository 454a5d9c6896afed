"""Finds single messages: by physical offset, by time, by key."""

import bisect
import sys
from enum import Enum
from typing import NamedTuple

from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.properties import find_property, split_key_bytes
from downrange.protocol.record import (
    HOST_V6_SHIFT,
    STORE_TIME_POSITION_V4,
    Record,
    decode_record,
)
from downrange.protocol.sys_flag import BORN_HOST_V6
from downrange.store.commit_log import CommitLog
from downrange.store.consume_queue import HOLE_TAG, ConsumeQueue
from downrange.store.dispatch_entry import TAG_KEY_PREFIX
from downrange.store.key_index import KeyIndex
from downrange.store.queue_table import QueueTable

_SYS_FLAG_POSITION = 36
_NEVER = sys.maxsize  # no message is stored later than this


class Boundary(Enum):
    """Which end of the messages around a time is meant."""

    LOWER = "lower"  # the first that is not older
    UPPER = "upper"  # the last that is not newer


class QueryResult(NamedTuple):
    """Records that have a key, oldest first, and how far the index reaches.

    If there are more than were asked for, these are the newest.
    """

    records: list[memoryview]
    index_timestamp: int
    index_offset: int


class Lookup:
    """Reads of a store that do not go through a queue."""

    def __init__(
        self, log: CommitLog, queues: QueueTable, index: KeyIndex | None, query_count_max: int
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._query_count_max = query_count_max

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The record that starts here; None if none does."""
        size_field = self._log.view(physical_offset, 4)
        if size_field is None:
            return None
        view = self._log.view(physical_offset, int.from_bytes(size_field, "big", signed=True))
        if view is None:
            return None
        try:
            record = decode_record(view, check_crc=False)
        except RemoteProtocolError:
            return None
        return view if record.physical_offset == physical_offset else None

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """The queue offset that a time falls on; 0 for a queue without messages."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or queue.max_offset == queue.min_offset:
            return queue.max_offset if queue is not None else 0
        offsets = range(queue.min_offset, queue.max_offset)

        def stored_at(queue_offset: int) -> int:
            return self._store_timestamp(queue, queue_offset)

        if boundary is Boundary.LOWER:
            return queue.min_offset + bisect.bisect_left(offsets, timestamp, key=stored_at)
        found = bisect.bisect_right(offsets, timestamp, key=stored_at)
        return queue.min_offset + found - 1 if found else 0

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """When the oldest message of a queue was stored; -1 if it has none."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or queue.max_offset == queue.min_offset:
            return -1
        timestamp = self._store_timestamp(queue, queue.min_offset)
        return timestamp if timestamp != _NEVER else -1

    def store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """When a message was stored; -1 if the queue does not hold it."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return -1
        timestamp = self._read_store_timestamp(queue.entry(queue_offset)[0])
        return -1 if timestamp is None else timestamp

    def query(
        self,
        topic: str,
        key: str,
        begin_ms: int = 0,
        end_ms: int = _NEVER,
        count_max: int = 64,
        *,
        is_tag: bool = False,
    ) -> QueryResult:
        """The messages of a topic that have this key, this unique id or this tag."""
        index = self._index
        if index is None:
            return QueryResult([], 0, 0)
        count_max = min(count_max, self._query_count_max)
        name, wanted = topic.encode(), key.encode()
        indexed = TAG_KEY_PREFIX.decode() + key if is_tag else key
        records: dict[int, memoryview] = {}
        # Other keys may share the hash, so more is looked at than is returned.
        for physical_offset in index.find(topic, indexed, begin_ms, end_ms, count_max * 16):
            view = self.record_at(physical_offset)
            if view is None or physical_offset in records:
                continue
            record = decode_record(view, check_crc=False)
            if (
                record.topic == name
                and begin_ms <= record.store_timestamp <= end_ms
                and (_has_tag(record, wanted) if is_tag else _has_key(record, wanted))
            ):
                records[physical_offset] = view
                if len(records) >= count_max:
                    break
        in_order = [records[physical_offset] for physical_offset in sorted(records)]
        return QueryResult(in_order, index.end_timestamp, max(index.end_offset, 0))

    def _store_timestamp(self, queue: ConsumeQueue, queue_offset: int) -> int:
        """Store time of a message, or of the next one where this is lost."""
        for offset in range(queue_offset, queue.max_offset):
            physical_offset, _, tag_code = queue.entry(offset)
            if tag_code != HOLE_TAG:
                timestamp = self._read_store_timestamp(physical_offset)
                if timestamp is not None:
                    return timestamp
        return _NEVER

    def _read_store_timestamp(self, physical_offset: int) -> int | None:
        head = self._log.view(physical_offset, STORE_TIME_POSITION_V4 + HOST_V6_SHIFT + 8)
        if head is None:
            return None
        sys_flag = int.from_bytes(head[_SYS_FLAG_POSITION : _SYS_FLAG_POSITION + 4], "big")
        position = STORE_TIME_POSITION_V4 + (HOST_V6_SHIFT if sys_flag & BORN_HOST_V6 else 0)
        return int.from_bytes(head[position : position + 8], "big")


def _has_tag(record: Record, wanted: bytes) -> bool:
    return find_property(record.properties, b"TAGS") == wanted


def _has_key(record: Record, wanted: bytes) -> bool:
    if find_property(record.properties, b"UNIQ_KEY") == wanted:
        return True
    keys = find_property(record.properties, b"KEYS")
    return keys is not None and wanted in split_key_bytes(keys)
