"""Reads the log of ends: which half messages are done with, and which ends are done with too."""

import logging
from typing import Protocol

from downrange.broker.half_messages import END_TAG, HALF_QUEUE, whole_number
from downrange.model.names import OP_HALF_TOPIC
from downrange.protocol.errors import RemoteProtocolError
from downrange.protocol.properties import find_property
from downrange.protocol.record import Record, decode_records
from downrange.store.reader import ReadResult

_log = logging.getLogger(__name__)

READ_COUNT_MAX = 32


class Read(Protocol):
    """Reads messages of a queue."""

    def __call__(self, topic: str, queue_id: int, offset: int, count_max: int) -> ReadResult:
        """Messages from `offset` on."""
        ...


class EndedHalves:
    """The ends from an offset on, as far as a round of checks needs them; made anew for each round.

    `early` are ends of half messages in front of those that the round looks at: of no use, except
    for one that was put again under a new offset while its producer knows the old one.
    """

    def __init__(self, read: Read, end_offset: int, half_offset: int) -> None:
        self._read = read
        self._half_offset = half_offset
        self._start_offset = self._next_offset = end_offset
        self._end_of: dict[int, int] = {}  # half offset -> offset of the end that names it
        self._left: dict[int, set[int]] = {}  # end -> half messages that the round has not met
        self._done: set[int] = set()
        self.early: set[int] = set()

    @property
    def start_offset(self) -> int:
        """The first end that was there."""
        return self._start_offset

    @property
    def done_offset(self) -> int:
        """The first end that is still needed."""
        offset = self._start_offset
        while offset in self._done:
            offset += 1
        return offset

    def take(self, half_offset: int) -> bool:
        """Whether this half message has ended; the round has then met it."""
        if not self.knows(half_offset):
            return False
        end = self._end_of.pop(half_offset, None)
        if end is not None:
            left = self._left[end]
            left.discard(half_offset)
            if not left:
                del self._left[end]
                self._done.add(end)
        return True

    def knows(self, half_offset: int) -> bool:
        """Whether this half message has ended, by all ends that are there."""
        while half_offset not in self._end_of and half_offset not in self.early:
            if not self._read_more():
                return False
        return True

    def _read_more(self) -> bool:
        """Read some more ends; False if there are none."""
        start = self._next_offset
        result = self._read(OP_HALF_TOPIC, HALF_QUEUE, start, READ_COUNT_MAX)
        if result.next_offset <= start:
            if result.next_offset < start and result.max_offset:
                # The log of ends is shorter than somebody has said: what comes next is new.
                self._start_offset = self._next_offset = result.next_offset
            return False
        self._next_offset = result.next_offset
        missing = set()
        if not result.views and start == self._start_offset:
            self._start_offset = result.next_offset
        else:
            missing = set(range(start, result.next_offset))
        for record in self._records(result):
            missing.discard(record.queue_offset)
            self._note(record)
        self._done |= missing  # holes, damage, removed by retention
        return True

    def _records(self, result: ReadResult) -> list[Record]:
        records: list[Record] = []
        for view in result.views:
            try:
                records.extend(decode_records(view))
            except RemoteProtocolError as error:
                _log.error("ends of transactions are lost: %s", error)
        return records

    def _note(self, record: Record) -> None:
        left = set()
        if find_property(record.properties, b"TAGS") == END_TAG:
            # Releases before 5.0 wrote one offset a message, without a comma.
            for text in record.body.split(b","):
                offset = whole_number(text)
                if offset is None:
                    continue
                if offset < self._half_offset:
                    self.early.add(offset)
                else:
                    left.add(offset)
                    self._end_of[offset] = record.queue_offset
        else:
            _log.error("message %d of %s has no known tag", record.queue_offset, OP_HALF_TOPIC)
        if left:
            self._left[record.queue_offset] = left
        else:
            self._done.add(record.queue_offset)
