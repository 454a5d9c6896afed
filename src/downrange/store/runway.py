"""The stretch of the log that lies ahead of its writer, made ready before the writer is there.

The first write to a page that is not in memory makes the kernel fetch it, and megabytes behind it,
in the thread that writes: tens of milliseconds in which nobody is served. Here the work is named;
whoever owns the log has it done in another thread.
"""

from collections.abc import Callable

from downrange.store.commit_log import CommitLog
from downrange.store.segment import Segment
from downrange.store.settings import MIB

AHEAD_BYTES = 16 * MIB
STRETCH_BYTES = 4 * MIB  # made ready at once; a sync may wait for as long as this takes
QUIET_BYTES = MIB  # who writes less needs no memory kept ready


class Runway:
    """Knows how far ahead the log's newest file is in memory. Owned by the log's owner."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._segment: Segment | None = None
        self._first = 0  # where the writer stood when this file became the newest
        self._ready = 0

    def next_stretch(self) -> Callable[[], None] | None:
        """The work to be done next, in any thread, before the file is closed; None for none."""
        segment = self._log.last
        if segment is None:
            return None
        position = segment.write_position
        if segment is not self._segment:
            self._segment = segment
            self._first = self._ready = position
        start = max(self._ready, position)
        if start >= min(position + AHEAD_BYTES, segment.size):
            return None
        if position - self._first < QUIET_BYTES:
            return None
        end = min(start + STRETCH_BYTES, segment.size)
        self._ready = end
        try:
            segment.reserve(end)
        except OSError:
            return None  # who appends finds out, and says so
        return lambda: segment.fetch(start, end)
