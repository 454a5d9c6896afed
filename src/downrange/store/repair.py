"""Finds the true entry of a queue whose file says something that the log does not bear out."""

import logging

from downrange.protocol.record import decode_record
from downrange.store.commit_log import CommitLog
from downrange.store.consume_queue import ENTRY_BYTES, HOLE_TAG, ConsumeQueue
from downrange.store.dispatch_entry import EntryReader, is_queued
from downrange.store.entry_check import is_borne_out, is_light
from downrange.store.scanner import Damage, LogScanner

_log = logging.getLogger(__name__)
DAMAGES_MAX = 1_000  # a disk that is worse than that is known to be bad


class EntryRepair:
    """Reads the stretch of log between an entry's neighbours, where its record must stand."""

    def __init__(self, log: CommitLog, entries: EntryReader) -> None:
        self._log = log
        self._entries = entries
        self.damages: list[Damage] = []

    def __call__(self, queue: ConsumeQueue, queue_offset: int) -> tuple[int, int, int] | None:
        """Set the entry right and return it; None, and a hole, if the log has no such message."""
        wrong = queue.entry(queue_offset)
        reason = f"no record of {wrong[1]} bytes for it is at {wrong[0]}"
        self._report(queue, queue_offset, reason)
        start, end = self._bounds(queue, queue_offset)
        scanner = LogScanner(self._log, self._note, check_crc=True)
        name = queue.topic.encode()
        for (
            physical_offset,
            size,
            queue_id,
            number,
            sys_flag,
            stored_ms,
            topic,
            text,
        ) in scanner.scan(start, end):
            if number == queue_offset and queue_id == queue.queue_id and topic == name:
                if not is_queued(sys_flag):
                    continue
                tag_code = self._entries.tag_code(queue.topic, text, stored_ms)
                queue.restore(queue_offset, physical_offset, size, tag_code)
                return physical_offset, size, tag_code
        queue.make_hole(queue_offset, start, max(end - start, 1))
        return None

    def check_file(self, queue: ConsumeQueue, first: int, count: int) -> None:
        """Compare every entry of a file that is not what it was with the log, and set it right."""
        for queue_offset in range(first, min(first + count, queue.max_offset)):
            physical_offset, size, tag_code = queue.entry(queue_offset)
            if tag_code == HOLE_TAG or physical_offset < self._log.min_offset:
                continue  # lost, or gone by retention
            if not is_borne_out(self._log, queue, queue_offset):
                self(queue, queue_offset)
                continue
            view = self._log.view(physical_offset, size)
            assert view is not None
            record = decode_record(view, check_crc=False)
            right = self._entries.tag_code(queue.topic, record.properties, record.store_timestamp)
            if tag_code != right and not is_light(queue):
                self._report(queue, queue_offset, f"its tag code is {tag_code}, not {right}")
                queue.restore(queue_offset, physical_offset, size, right)

    def _bounds(self, queue: ConsumeQueue, queue_offset: int) -> tuple[int, int]:
        start, end = self._log.min_offset, self._log.max_offset
        if queue_offset > queue.min_offset:
            physical_offset, size, _ = queue.entry(queue_offset - 1)
            if start <= physical_offset < end and self._is_record(physical_offset, size):
                start = physical_offset + size
        if queue_offset + 1 < queue.max_offset:
            physical_offset, size, _ = queue.entry(queue_offset + 1)
            if start <= physical_offset < end and self._is_record(physical_offset, size):
                end = physical_offset
        return start, end

    def _is_record(self, physical_offset: int, size: int) -> bool:
        view = self._log.view(physical_offset, size)
        return view is not None and int.from_bytes(view[:4], "big") == size

    def _report(self, queue: ConsumeQueue, queue_offset: int, reason: str) -> None:
        segment = queue.chain.find(queue_offset * ENTRY_BYTES)
        assert segment is not None
        self._note(
            Damage(
                segment.path,
                queue_offset * ENTRY_BYTES - segment.base_offset,
                ENTRY_BYTES,
                f"entry {queue_offset}: {reason}",
            ),
            0,
        )

    def _note(self, damage: Damage, _offset: int) -> None:
        if damage not in self.damages and len(self.damages) < DAMAGES_MAX:
            self.damages.append(damage)
            _log.error("%s", damage)
