"""Reads the log slowly, again and again, to find damage before a consumer does.

Passive like the rest of the store: `begin` names the next slice, the slice runs wherever the caller
wants, `finish` takes note. Only what is dispatched is read, so a record that is being written is
never taken for damage.
"""

import logging
from pathlib import Path
from typing import Protocol

import msgspec

from downrange.protocol.record import RECORD_BYTES_MIN
from downrange.runtime.clock import Clock
from downrange.runtime.disk import Disk
from downrange.store.commit_log import CommitLog
from downrange.store.consume_queue import ENTRY_BYTES, HOLE_TAG
from downrange.store.entry_check import is_light
from downrange.store.queue_table import QueueTable
from downrange.store.scanner import Damage
from downrange.store.scrub_slice import ScrubSlice, StrayEntry
from downrange.store.segment import segment_name
from downrange.store.settings import KIB, StoreSettings

_log = logging.getLogger(__name__)
FILE_NAME = "scrub.json"
SLICE_BYTES = 64 * KIB  # some dozen records: checking them holds the interpreter
DAMAGES_MAX = 1_000  # that are remembered; the others are logged again in the next pass


class ScrubProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the scrubber has come; `scrub.json`, our own."""

    offset: int = 0
    pass_count: int = 0


class Deletions(Protocol):
    """What scrubbing needs of the dispatcher."""

    deleted_below: dict[str, int]  # topic -> the physical offset below which it was deleted


class Scrubber:
    """Passes over the log of one store. Owned by the store's thread; slices may run in another."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        log: CommitLog,
        queues: QueueTable,
        settings: StoreSettings,
        deletions: Deletions,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._log = log
        self._queues = queues
        self._settings = settings
        self._deletions = deletions
        self._path = settings.root / FILE_NAME
        self._offset = 0
        self._slice_bytes = SLICE_BYTES
        self._in_damage = False
        self._pass_began_s = 0.0
        self._known: dict[tuple[Path, int], Damage] = {}
        self.record_count = 0  # since the start
        self.pass_count = 0
        self.pass_s = 0.0  # how long the last whole pass took

    @property
    def damages(self) -> list[Damage]:
        """What was found and is still there, as far as passes have come."""
        return list(self._known.values())

    @property
    def offset(self) -> int:
        """Physical offset up to which the current pass has come."""
        return max(self._offset, self._log.min_offset)

    def load(self) -> None:
        """Go on where the last process stopped; a file that cannot be read says nothing."""
        self._pass_began_s = self._clock.monotonic_s()
        try:
            progress = msgspec.json.decode(self._disk.read(self._path), type=ScrubProgress)
        except (OSError, msgspec.MsgspecError):
            return
        self._offset, self.pass_count = max(progress.offset, 0), max(progress.pass_count, 0)

    def save(self) -> None:
        """Remember the progress; `OSError` costs nothing but the repetition of some work."""
        progress = ScrubProgress(offset=self._offset, pass_count=self.pass_count)
        fresh = self._path.with_name(FILE_NAME + ".new")
        self._disk.write(fresh, msgspec.json.encode(progress))
        self._disk.rename(fresh, self._path)

    def begin(self, stop: int) -> ScrubSlice | None:
        """The next part of the log below `stop`, where its dispatched part ends.

        None at the end of a pass; the next call begins another.
        """
        start = self.offset
        segment = self._log.chain.find(start)
        if segment is None or start >= stop:
            self._end_pass()
            return None
        length = max(self._slice_bytes, RECORD_BYTES_MIN)
        end = min(start + length, segment.base_offset + segment.size, stop)
        return ScrubSlice(
            self._disk,
            segment.path,
            segment.base_offset,
            segment.size,
            start,
            end,
            stop,
            self._settings.consume_queue_path,
            self._settings.queue_entries * ENTRY_BYTES,
            self._settings.checks_whole_records,
            self._in_damage,
        )

    def finish(self, checked: ScrubSlice) -> None:
        """Take note of a slice that has run; reports what nobody knows yet."""
        if self._log.chain.find(checked.start) is None or checked.is_gone:
            self._in_damage = False  # retention was faster
            self._offset = max(self._log.min_offset, checked.file_start + checked.file_bytes)
            return
        self._offset = checked.next_offset
        self._in_damage = checked.in_damage
        self._slice_bytes = max(SLICE_BYTES, checked.bytes_wanted)
        self.record_count += checked.record_count
        for damage in checked.damages:
            self._note(damage)
        for stray in checked.strays:
            damage_of_queue = self._confirm(stray)
            if damage_of_queue is not None:
                self._note(damage_of_queue)

    def _end_pass(self) -> None:
        now_s = self._clock.monotonic_s()
        self.pass_count += 1
        self.pass_s = now_s - self._pass_began_s
        self._pass_began_s = now_s
        self._offset = self._log.min_offset
        self._in_damage = False
        # What retention has deleted, or a restart repaired, is not counted any longer.
        self._known = {
            key: damage for key, damage in self._known.items() if self._disk.exists(damage.path)
        }

    def _note(self, damage: Damage) -> None:
        key = (damage.path, damage.position)
        if key in self._known:
            return
        if len(self._known) < DAMAGES_MAX:
            self._known[key] = damage
        _log.error("scrubber: damaged: %s", damage)

    def _confirm(self, stray: StrayEntry) -> Damage | None:
        """Whether an entry that seemed wrong is; its queue may have been deleted meanwhile."""
        queue = self._queues.get(stray.topic, stray.queue_id)
        if queue is None or is_light(queue):
            return None
        if stray.physical_offset < self._deletions.deleted_below.get(stray.topic, 0):
            return None
        position = stray.queue_offset * ENTRY_BYTES
        if stray.queue_offset < queue.min_offset or position < queue.chain.min_offset:
            return None
        reason = f"entry {stray.queue_offset} is missing"
        if stray.queue_offset < queue.max_offset:
            physical_offset, _, tag_code = queue.entry(stray.queue_offset)
            if physical_offset == stray.physical_offset or tag_code == HOLE_TAG:
                return None
            reason = (
                f"entry {stray.queue_offset} points at {physical_offset}, its message is at "
                f"{stray.physical_offset}"
            )
        base = position - position % queue.chain.segment_bytes
        path = queue.chain.directory / segment_name(base)
        return Damage(path, position - base, ENTRY_BYTES, reason)
