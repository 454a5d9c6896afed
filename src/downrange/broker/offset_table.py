"""How far each consumer group has come in each queue.

An administrator resets an offset for everybody at once: the new offset waits here until the next
pull of the queue takes it, and until then commits of consumers that do not know of it yet are
ignored. Waiting resets are saved beside the offsets, unlike in RocketMQ: after a crash a consumer
that is online would go on where it was and commit over them. Pull offsets live in memory only.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from downrange.broker.saved_table import SavedTable, SaveJob
from downrange.model.topics import DataVersion
from downrange.runtime.clock import Clock
from downrange.runtime.slices import Steps
from downrange.store.json_tables import TableFile
from downrange.store.offset_tables import (
    TOPIC_GROUP_SEPARATOR,
    ConsumerOffsets,
    PendingResets,
    group_topics_steps,
)

_log = logging.getLogger(__name__)

UNKNOWN = -1
COMMITS_PER_VERSION = 500  # consumerOffsetUpdateVersionStep

_Offsets = dict[str, dict[int, int]]  # "topic@group" -> queue -> offset


class OffsetTable(SavedTable[ConsumerOffsets]):
    """The offsets in memory. Owned by the thread of the broker."""

    def __init__(
        self,
        file: TableFile[ConsumerOffsets],
        clock: Clock,
        resets_file: TableFile[PendingResets],
        *,
        commits_per_version: int = COMMITS_PER_VERSION,
    ) -> None:
        super().__init__(file, is_new=False)
        self._resets_file = resets_file
        self._has_resets_file = False
        self._clock = clock
        self._commits_per_version = commits_per_version
        self._commits = 0
        self._offsets: _Offsets = {}
        self._pull_offsets: _Offsets = {}
        self._resets: _Offsets = {}
        self.data_version = DataVersion(timestamp=clock.wall_ms())

    # --- persistence -----------------------------------------------------------------------

    def load(self) -> None:
        """Take what the file holds."""
        table = self._file.load()
        if table is not None:
            self._take(table)
            self._note_loaded()
        resets = self._resets_file.load()
        if resets is not None:
            self._has_resets_file = True
            self._resets = {key: dict(queues) for key, queues in resets.resets.items()}

    def to_file(self) -> ConsumerOffsets:
        """The table as its file and its slaves see it."""
        return self._snapshot().with_group_topics()

    def to_file_steps(self) -> Steps[ConsumerOffsets]:
        """The same in steps; offsets that move meanwhile are new or old, each for itself."""
        version, copies = self.data_version, []
        for table in (self._offsets, self._pull_offsets):
            copied: _Offsets = {}
            for key, queues in list(table.items()):
                copied[key] = dict(queues)
                yield
            copies.append(copied)
        offsets, pull_offsets = copies
        return ConsumerOffsets(
            data_version=version,
            group_topics=(yield from group_topics_steps(offsets)),
            offsets=offsets,
            pull_offsets=pull_offsets,
        )

    def begin_save(self) -> SaveJob:
        """The work that makes every change so far durable."""
        # The topics of each group follow from the offsets and take as long as the encoding.
        job = self._job(self._snapshot(), ConsumerOffsets.with_group_topics)
        if not self._resets and not self._has_resets_file:
            return job
        self._has_resets_file = True
        resets = PendingResets(resets={key: dict(one) for key, one in self._resets.items()})

        def run() -> None:
            job.run()
            self._resets_file.save(resets)

        return SaveJob(job.generation, run, job.finish)

    def _snapshot(self) -> ConsumerOffsets:
        return ConsumerOffsets(
            data_version=self.data_version,
            offsets={key: dict(queues) for key, queues in self._offsets.items()},
            pull_offsets={key: dict(queues) for key, queues in self._pull_offsets.items()},
        )

    def take_over(self, table: ConsumerOffsets) -> None:
        """Become what a master's table is."""
        self._take(table)
        self._note_change()

    # --- consumers -------------------------------------------------------------------------

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note that the group consumes from `offset` on; nothing happens while a reset waits.

        An offset may go back: a consumer that lost its queue and got it again may commit less.
        """
        key = f"{topic}{TOPIC_GROUP_SEPARATOR}{group}"
        if self._resets and queue_id in self._resets.get(key, ()):
            return
        queues = self._offsets.get(key)
        if queues is None:
            queues = self._offsets[key] = {}
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self.generation += 1
        self._commits += 1
        if self._commits % self._commits_per_version == 0:
            self._next_version()

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The next offset to consume, that of a waiting reset first; -1 if none is known."""
        key = f"{topic}{TOPIC_GROUP_SEPARATOR}{group}"
        if self._resets:
            reset = self._resets.get(key, {}).get(queue_id)
            if reset is not None:
                return reset
        queues = self._offsets.get(key)
        return UNKNOWN if queues is None else queues.get(queue_id, UNKNOWN)

    def note_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note how far the group has pulled, which may be ahead of what it has consumed."""
        key = f"{topic}{TOPIC_GROUP_SEPARATOR}{group}"
        queues = self._pull_offsets.get(key)
        if queues is None:
            queues = self._pull_offsets[key] = {}
        queues[queue_id] = offset

    def query_pull(self, group: str, topic: str, queue_id: int) -> int:
        """How far the group has pulled, or consumed if nothing else is known; -1 if neither."""
        offset = self._pull_offsets.get(_key(topic, group), {}).get(queue_id)
        return offset if offset is not None else self.query(group, topic, queue_id)

    def clear_pull(self, group: str, topic: str) -> None:
        """Forget how far the group has pulled."""
        self._pull_offsets.pop(_key(topic, group), None)

    # --- resets ----------------------------------------------------------------------------

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Have the next pull of this queue go on at `offset`, whatever the consumer asks for."""
        assert queue_id >= 0, queue_id
        assert offset >= 0, offset
        key = _key(topic, group)
        self._resets.setdefault(key, {})[queue_id] = offset
        # Consumers that are not running find the offset in the table when they start.
        self._offsets.setdefault(key, {})[queue_id] = offset
        self._next_version()
        _log.info("offset reset: topic=%s group=%s queue=%d to=%d", topic, group, queue_id, offset)

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset of this queue waits for the next pull."""
        return bool(self._resets) and queue_id in self._resets.get(_key(topic, group), ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset at which this pull has to go on; None, nearly always, if it may choose."""
        if not self._resets:
            return None
        key = _key(topic, group)
        queues = self._resets.get(key)
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._resets[key]
        if offset is not None:
            self._note_change()
        return offset

    # --- administration --------------------------------------------------------------------

    def of_queues(self, group: str, topic: str) -> dict[int, int]:
        """The committed offset of each queue of a topic that has one."""
        return dict(self._offsets.get(_key(topic, group), {}))

    def pairs(self) -> Iterable[tuple[str, str]]:
        """Topic and group of all offsets there are now; the table may change meanwhile."""
        return _pairs(list(self._offsets))

    def topics_of(self, group: str) -> set[str]:
        """The topics in which a group has offsets."""
        return {topic for topic, owner in _pairs(self._offsets) if owner == group}

    def groups_of(self, topic: str) -> set[str]:
        """The groups that have offsets in a topic."""
        return {group for name, group in _pairs(self._offsets) if name == topic}

    def min_offsets(
        self,
        topic: str,
        excluded_groups: Collection[str],
        first_kept: Callable[[int], int],
    ) -> dict[int, int]:
        """How far the slowest group is in each queue, those left aside that hang behind the data.

        RocketMQ forgets the offsets of the excluded groups; here they are only left out.
        """
        slowest: dict[int, int] = {}
        for name, group in _pairs(self._offsets):
            if name != topic or group in excluded_groups:
                continue
            for queue_id, offset in self._offsets[_key(topic, group)].items():
                if offset >= first_kept(queue_id):
                    slowest[queue_id] = min(offset, slowest.get(queue_id, offset))
        return slowest

    def clone(self, source_group: str, target_group: str, topic: str) -> None:
        """Let one group stand in a topic where another one stands."""
        offsets = self._offsets.get(_key(topic, source_group))
        if offsets is not None:
            self._offsets[_key(topic, target_group)] = dict(offsets)
            self._next_version()

    def put_all(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Set the offsets of several queues."""
        self._offsets.setdefault(_key(topic, group), {}).update(offsets)
        self._next_version()

    def remove_group(self, group: str) -> None:
        """Forget everything of a group."""
        self._remove(lambda _, owner: owner == group)

    def remove_topic(self, topic: str) -> None:
        """Forget everything in a topic."""
        self._remove(lambda name, _: name == topic)

    def remove_stale(
        self,
        is_subscribed: Callable[[str, str], bool],
        first_kept: Callable[[str, int], int],
    ) -> int:
        """Forget the groups that nobody runs and whose messages are gone; returns how many.

        `is_subscribed` gets group and topic, `first_kept` topic and queue.
        """
        stale = [
            _key(topic, group)
            for topic, group in _pairs(self._offsets)
            if not is_subscribed(group, topic)
            and all(
                offset <= first_kept(topic, queue_id)
                for queue_id, offset in self._offsets[_key(topic, group)].items()
            )
        ]
        for key in stale:
            del self._offsets[key]
            _log.info("offsets removed, their messages are gone: %s", key)
        if stale:
            self._next_version()
        return len(stale)

    # --- inside ----------------------------------------------------------------------------

    def _take(self, table: ConsumerOffsets) -> None:
        self._offsets = {key: dict(queues) for key, queues in table.offsets.items()}
        self.data_version = table.data_version

    def _remove(self, matches: Callable[[str, str], bool]) -> None:
        for table in (self._offsets, self._pull_offsets, self._resets):
            for topic, group in list(_pairs(table)):
                if matches(topic, group):
                    del table[_key(topic, group)]
        self._next_version()

    def _next_version(self) -> None:
        self.data_version = self.data_version.next(self._clock.wall_ms())
        self._note_change()


def _key(topic: str, group: str) -> str:
    return f"{topic}{TOPIC_GROUP_SEPARATOR}{group}"


def _pairs(keys: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Topic and group of each key; neither may hold the separator."""
    for key in keys:
        topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
        yield topic, group
