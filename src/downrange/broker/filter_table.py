"""The SQL92 subscriptions of groups, kept in consumerFilter.json for Apache brokers as for ours.

Pulls are filtered by what the puller itself subscribes (`consumer_table`); here is what the group
as a whole was registered with, by topic. A subscription outlives its group by a day.
"""

import logging
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from downrange.broker.saved_table import SavedTable, SaveJob
from downrange.filtering.bloom import BITS, BITS_PER_ENTRY, bit_positions
from downrange.filtering.tags import is_tag_type
from downrange.protocol.bodies.heartbeat import Subscription
from downrange.remoting.errors import Refused
from downrange.runtime.clock import Clock
from downrange.store.filter_tables import BloomBits, ConsumerFilters, GroupFilter, TopicFilters
from downrange.store.json_tables import TableFile

_log = logging.getLogger(__name__)

DEAD_KEPT_MS = 24 * 3_600_000  # filterDataCleanTimeSpan
_SILENT_MS = 30_000  # clients that were there before a restart are taken for dead since then


class FilterTable(SavedTable[ConsumerFilters]):
    """The subscriptions in memory. Owned by the thread of the broker.

    `compile_text` raises `Refused` for an expression that is none.
    """

    def __init__(
        self,
        file: TableFile[ConsumerFilters],
        clock: Clock,
        compile_text: Callable[[str], object],
    ) -> None:
        super().__init__(file, is_new=False)
        self._clock = clock
        self._compile = compile_text
        self._topics: dict[str, dict[str, GroupFilter]] = {}

    @property
    def is_dirty(self) -> bool:
        """Whether something is not saved, or saved and too old."""
        return super().is_dirty or any(
            self._is_forgotten(one) for groups in self._topics.values() for one in groups.values()
        )

    def load(self) -> None:
        """Take what the file holds; all of it or, if its bits are of another filter, nothing."""
        table = self._file.load()
        if table is None:
            return
        found = {topic: dict(filters.groups) for topic, filters in table.topics.items()}
        for groups in found.values():
            for group, one in groups.items():
                bits = one.bits
                if bits is None or (bits.bit_count, len(bits.positions)) != (BITS, BITS_PER_ENTRY):
                    _log.info("subscriptions of another Bloom filter are forgotten: %s", one)
                    return
                if not one.dead_ms:
                    dead_ms = max(self._clock.wall_ms() - _SILENT_MS, one.born_ms)
                    groups[group] = _with_death(one, dead_ms)
        self._topics = found

    def begin_save(self) -> SaveJob:
        """The work that makes every change so far durable, without what is long dead."""
        if not super().is_dirty:
            self._note_change()  # something is too old
        for topic, groups in list(self._topics.items()):
            alive = {group: one for group, one in groups.items() if not self._is_forgotten(one)}
            if alive:
                self._topics[topic] = alive
            else:
                del self._topics[topic]
        return super().begin_save()

    def to_file(self) -> ConsumerFilters:
        """The table as its file has it."""
        return ConsumerFilters(
            topics={
                topic: TopicFilters(topic=topic, groups=dict(groups))
                for topic, groups in self._topics.items()
            }
        )

    def get(self, topic: str, group: str) -> GroupFilter | None:
        """What a group was registered with for a topic."""
        groups = self._topics.get(topic)
        return groups.get(group) if groups is not None else None

    def register(self, group: str, subscriptions: Iterable[Subscription]) -> None:
        """A heartbeat says what the group subscribes; what it no longer does is dead."""
        topics = set()
        for one in subscriptions:
            topics.add(one.topic)
            if not is_tag_type(one.expression_type) and one.sub_string:
                self._register(group, one, one.sub_string)
        if self._topics:
            self._end(group, lambda topic: topic not in topics)

    def unregister(self, group: str) -> None:
        """The last client of a group is gone."""
        self._end(group, lambda _: True)

    def _register(self, group: str, subscription: Subscription, text: str) -> None:
        topic, version = subscription.topic, subscription.sub_version
        old = self.get(topic, group)
        if old is not None and version < old.client_version:
            return
        kind = subscription.expression_type
        is_same = old is not None and (old.expression, old.expression_type) == (text, kind)
        if old is not None and (is_same or version == old.client_version):
            new = replace(old, client_version=version, dead_ms=0, is_dead=False)
        elif self._is_expression(text, group, topic):
            new = GroupFilter(
                topic=topic,
                group=group,
                expression=text,
                expression_type=kind,
                born_ms=self._clock.wall_ms(),
                client_version=version,
                bits=BloomBits(bit_count=BITS, positions=bit_positions(group, topic)),
            )
        else:
            # The pulls of the group are told; an older expression would give it other messages.
            if old is not None:
                del self._topics[topic][group]
                self._note_change()
            return
        if new != old:
            self._topics.setdefault(topic, {})[group] = new
            self._note_change()

    def _is_expression(self, text: str, group: str, topic: str) -> bool:
        try:
            self._compile(text)
        except Refused as error:
            _log.warning("group %s cannot have %s filtered: %s", group, topic, error.remark)
            return False
        return True

    def _end(self, group: str, is_over: Callable[[str], bool]) -> None:
        for topic, groups in self._topics.items():
            one = groups.get(group)
            if one is not None and not one.is_dead and is_over(topic):
                groups[group] = _with_death(one, self._clock.wall_ms())
                self._note_change()

    def _is_forgotten(self, one: GroupFilter) -> bool:
        return one.is_dead and self._clock.wall_ms() - one.dead_ms >= DEAD_KEPT_MS


def _with_death(one: GroupFilter, dead_ms: int) -> GroupFilter:
    return replace(one, dead_ms=dead_ms, is_dead=dead_ms >= one.born_ms)
