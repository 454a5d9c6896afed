"""When old files go, and when the disk is too full to take more.

Three thresholds, as RocketMQ has them: above 75 % used, expired files go at any hour instead of
only at `deleteWhen`; above 85 % the oldest files go, expired or not; above 90 % no message is
taken. The newest file of the log always stays, and so does one that a reader looks at.
"""

import logging
from collections import deque
from datetime import datetime
from pathlib import Path

from downrange.runtime.clock import Clock
from downrange.runtime.disk import Disk
from downrange.store.commit_log import CommitLog
from downrange.store.consume_queue import ConsumeQueue
from downrange.store.disk_watch import DiskState, DiskWatch
from downrange.store.expiry_clock import ExpiryClock
from downrange.store.key_index import KeyIndex
from downrange.store.queue_table import QueueTable
from downrange.store.settings import RetentionSettings

_log = logging.getLogger(__name__)
HOUR_MS = 3_600_000
FOLLOW_TOGETHER = 1_000  # queues that are looked at before others get their turn
MANUAL_ROUNDS = 20  # an operator's request is worked on for this many rounds, as in RocketMQ


class Retention:
    """Deletes what has expired; a passive part, called every `interval_ms`."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        log: CommitLog,
        queues: QueueTable,
        index: KeyIndex | None,
        watch: DiskWatch,
        settings: RetentionSettings,
    ) -> None:
        self._disk = disk
        self._watch = watch
        self._clock = clock
        self._log = log
        self._queues = queues
        self._index = index
        self._manual_rounds = 0
        self._following: deque[ConsumeQueue] = deque()
        self._undeletable: Path | None = None  # reported
        self._expiry_clock = ExpiryClock(clock)
        self.change(settings)
        self.disk_state = DiskState(log.chain.directory, 0.0, settings.full_ratio)

    def change(self, settings: RetentionSettings) -> None:
        """Follow other rules from now on."""
        self._settings = settings
        self._hours = parse_hours(settings.delete_when)
        self._kept_ms = settings.file_reserved_hours * HOUR_MS

    def start(self, last_ms: int) -> None:
        """The store opens, its last message is from `last_ms`; drop what the log does not hold."""
        self._expiry_clock.start(last_ms, self._kept_ms)
        self.follow_log()

    def request_now(self) -> None:
        """Delete expired files without waiting for the hour, as an operator may ask."""
        self._manual_rounds = MANUAL_ROUNDS

    def look_at_disk(self) -> DiskState:
        """Measure how full the disks are; writing stops and resumes by this."""
        settings, before, chain = self._settings, self.disk_state, self._log.chain
        state, full_paths = self._watch.measure(settings.force_ratio, settings.full_ratio)
        for path in sorted(full_paths - chain.full_paths) if chain.has_other_path() else ():
            _log.warning("%s is nearly full, other paths of the commit log are preferred", path)
        self.disk_state, chain.full_paths = state, full_paths
        if state.is_full and not before.is_full:
            _log.error("no more messages are taken: %s", state)
        elif before.is_full and not state.is_full:
            percent = 100 * state.used_ratio
            _log.warning("messages are taken again: %s is %.1f%% full", state.directory, percent)
        return state

    def expire_some(self, settled_offset: int) -> int:
        """Delete what is due now; returns how many files of the log went.

        A file that reaches beyond `settled_offset` stays: it may be being synced, and closing it
        meanwhile would look like a failed disk.
        """
        ratio = self.look_at_disk().used_ratio
        settings = self._settings
        force = settings.force_enabled and ratio > settings.force_ratio
        manual = self._manual_rounds > 0
        self._manual_rounds -= manual
        # Each round, so that a step of the clock is noticed when it happens.
        expired_before = self._expiry_clock.now_ms(self._kept_ms) - self._kept_ms
        dropped = 0
        if manual or force or ratio > settings.clean_ratio or self._is_the_hour():
            dropped = self._drop_segments(settled_offset, expired_before, regardless_of_age=force)
            if not dropped and force:
                _log.error("the disk fills up and no file of the log can be deleted: %s", ratio)
        if dropped:
            self._begin_following()
            self.follow_some()
        return dropped

    def follow_log(self) -> None:
        """Let queues and index forget what the log no longer holds."""
        self._begin_following()
        while self.follow_some():
            pass

    def follow_some(self) -> bool:
        """Do the same for some of the queues, of which there may be very many.

        Returns whether others are left. Until their turn comes, readers of these are told that the
        messages are gone.
        """
        min_offset = self._log.min_offset
        for _ in range(min(len(self._following), FOLLOW_TOGETHER)):
            queue = self._following.popleft()
            if queue.chain.segments:  # else it was deleted meanwhile
                queue.drop_files_below(min_offset)
                queue.correct_min(min_offset)
        return bool(self._following)

    def _begin_following(self) -> None:
        self._following = deque(self._queues)
        if self._index is not None:
            self._index.drop_files_below(self._log.min_offset)

    def _drop_segments(
        self, settled_offset: int, expired_before: int, *, regardless_of_age: bool
    ) -> int:
        chain = self._log.chain
        dropped = 0
        while len(chain.segments) > 1 and dropped < self._settings.delete_batch_max:
            path = chain.segments[0].path
            if chain.segments[0].end_offset > settled_offset:
                break
            if not regardless_of_age and self._disk.modified_ms(path) > expired_before:
                break
            try:
                is_dropped = chain.drop_first()
            except OSError as error:
                if path != self._undeletable:
                    _log.error("%s has expired, but cannot be deleted: %s", path, error)
                self._undeletable = path
                break
            if not is_dropped:
                _log.info("%s is being read and stays for now", path)
                break
            _log.info("deleted %s", path)
            dropped += 1
        return dropped

    def _is_the_hour(self) -> bool:
        moment = datetime.fromtimestamp(self._clock.wall_ms() / 1000).astimezone()
        return moment.hour in self._hours


def parse_hours(text: str) -> frozenset[int]:
    """The hours of the day in a text like "04" or "04;16"; `ValueError` says what is wrong."""
    hours = set()
    for part in text.split(";"):
        if not part.strip().isdigit() or int(part) > 23:  # noqa: PLR2004 - the last hour
            raise ValueError(f"deleteWhen={text!r}: {part!r} is not an hour from 00 to 23")
        hours.add(int(part))
    return frozenset(hours)
