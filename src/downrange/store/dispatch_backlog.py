"""Messages whose queue could not take them yet, so that those of other queues need not wait.

A queue fails alone: its file cannot be opened or extended, or too many files wait to be synced. Its
messages are kept here in the order of the log and are tried again; everything that the checkpoint
may claim stays below the oldest of them.
"""

from collections import deque
from collections.abc import Iterable
from itertools import islice

from downrange.store.consume_queue import ENTRY, ConsumeQueue
from downrange.store.dirty_files import DirtyFiles, FilesBusyError
from downrange.store.dispatch_entry import DispatchEntry

COUNT_MAX = 1 << 16
BYTES_MAX = 64 << 20
_ENTRY_BYTES = 512  # in memory, without the property text
_PUT_TOGETHER_MAX = 64
_pack_entry = ENTRY.pack


class _Waiting:
    """The messages of one queue, and since when its first one has been waiting."""

    __slots__ = ("entries", "since_s")

    def __init__(self, since_s: float) -> None:
        self.entries: deque[DispatchEntry] = deque()
        self.since_s = since_s


class DispatchBacklog:
    """Owned by the dispatcher; `dirty` says whether one more file may be written to."""

    def __init__(self, dirty: DirtyFiles) -> None:
        self._dirty = dirty
        self._queues: dict[ConsumeQueue, _Waiting] = {}
        self._busy: dict[str, deque[ConsumeQueue]] = {}  # by topic: those that only wait for a file
        self._failed: deque[ConsumeQueue] = deque()
        self._failures: dict[ConsumeQueue, OSError] = {}
        self._moved_s = 0.0  # when one of the busy queues last went on
        self.count = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._queues)

    def __contains__(self, queue: ConsumeQueue) -> bool:
        return queue in self._queues

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be added."""
        return self.count >= COUNT_MAX or self._bytes >= BYTES_MAX

    @property
    def since_s(self) -> float | None:
        """Since when nothing has helped: a queue fails, or no sync has let another one go on.

        None if nothing waits. A slow disk that many queues wait for in turn is not a stall.
        """
        failed = next(iter(self._failures), None)
        if failed is None:
            return self._moved_s if self._busy else None
        since_s = self._queues[failed].since_s
        return min(since_s, self._moved_s) if self._busy else since_s

    @property
    def failure(self) -> OSError | None:
        """Why a queue does not take its messages; None if all only wait for a sync."""
        return next(iter(self._failures.values()), None)

    def first(self) -> tuple[int, int]:
        """Physical offset and store time of the oldest message; there must be one."""
        heads = [waiting.entries[0] for waiting in self._queues.values()]
        return min(head[3] for head in heads), min(head[6] for head in heads)

    def add(self, entries: Iterable[DispatchEntry], now_s: float, error: OSError | None) -> None:
        """Keep messages that follow those kept so far; `error` says why their queue failed."""
        for entry in entries:
            queue = entry[0]
            waiting = self._queues.get(queue)
            if waiting is None:
                assert error is not None, "the first message of a queue waits for a reason"
                waiting = self._queues[queue] = _Waiting(now_s)
                self._note_failure(queue, error, now_s)
            waiting.entries.append(entry)
            self._count(entry, 1)

    def retry(self, now_s: float, count_max: int) -> list[DispatchEntry]:
        """Put what can be put by now, about `count_max`; returns what has become visible.

        At most one failed queue is tried in vain, and another one by the next call. Topics take
        turns, so that one with many queues that wait for files does not hold up another.
        """
        visible: list[DispatchEntry] = []
        while self._failed and len(visible) < count_max and not self._dirty.is_full:
            if not self._put(self._failed.popleft(), now_s, visible):
                break
        topics = deque(self._busy)
        while topics and len(visible) < count_max and not self._dirty.is_full:
            topic = topics.popleft()
            queues = self._busy[topic]
            is_put = self._put(queues.popleft(), now_s, visible)
            if not queues:
                del self._busy[topic]
            elif is_put:
                topics.append(topic)
        return visible

    def drop_topic(self, topic: str) -> None:
        """Forget the messages of a topic that was deleted."""
        for queue in [queue for queue in self._queues if queue.topic == topic]:
            for entry in self._queues.pop(queue).entries:
                self._count(entry, -1)
            self._failures.pop(queue, None)
        self._busy.pop(topic, None)
        self._failed = deque(queue for queue in self._failed if queue in self._queues)

    def _put(self, queue: ConsumeQueue, now_s: float, visible: list[DispatchEntry]) -> bool:
        """Put messages of a queue; False if it does not take all of them."""
        waiting = self._queues[queue]
        error: OSError | None = None
        before = len(visible)
        try:
            put_entries(queue, waiting.entries)
        except OSError as caught:
            error = caught
        while waiting.entries and waiting.entries[0][2] < queue.max_offset:
            entry = waiting.entries.popleft()
            self._count(entry, -1)
            visible.append(entry)
        if len(visible) > before:
            self._failures.pop(queue, None)
            waiting.since_s = self._moved_s = now_s  # what is left has not waited for as long
        if error is None:
            del self._queues[queue]
            return True
        self._note_failure(queue, error, now_s)
        return False

    def _note_failure(self, queue: ConsumeQueue, error: OSError, now_s: float) -> None:
        if isinstance(error, FilesBusyError):
            self._failures.pop(queue, None)
            if not self._busy:
                self._moved_s = now_s
            self._busy.setdefault(queue.topic, deque()).append(queue)
        else:
            self._failures[queue] = error
            self._failed.append(queue)

    def _count(self, entry: DispatchEntry, sign: int) -> None:
        self.count += sign
        self._bytes += sign * (_ENTRY_BYTES + len(entry[8]))


def put_entries(queue: ConsumeQueue, entries: Iterable[DispatchEntry]) -> None:
    """Give a queue the entries of messages; those that it has already are passed over.

    `OSError` if it does not take all of them; what it took is below its `max_offset`.
    """
    remaining = iter(entries)
    while some := list(islice(remaining, _PUT_TOGETHER_MAX)):
        packed: list[bytes] = []
        expected = queue.max_offset
        for _, _, queue_offset, physical_offset, size, tag_code, *_ in some:
            if queue_offset == expected:
                packed.append(_pack_entry(physical_offset, size, tag_code))
                expected += 1
            elif queue_offset > expected:  # one before it was passed over, damaged
                if packed:
                    queue.put_all(packed)
                packed = []
                queue.restore(queue_offset, physical_offset, size, tag_code)
                expected = queue.max_offset
        if packed:
            queue.put_all(packed)
