"""What one broker has promised, by docs/durability.md, and whether it kept it.

A promise begins with the answer of the broker. Whatever was asked for and not answered may have
happened or not; nobody is wronged either way.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from simulation.wire import RefusedError, Wire

from downrange.model.names import RETRY_PREFIX
from downrange.protocol.record import Record

FOREVER = float("-inf")  # durable since before anything was measured
OFFSET_WINDOW_S = 5.5  # flushConsumerOffsetInterval, and the turn in which it is saved
ASYNC_WINDOW_S = 10.6  # flushCommitLogThoroughInterval, and flushIntervalCommitLog
END_WINDOW_S = 10.6  # ends of transactions are one-way, so nobody waits for the disk

KEYS_CHECKED_EVERY = 7  # a look-up costs as much as reading a queue

Queue = tuple[str, int]


class BrokenPromiseError(AssertionError):
    """A broker has lost, changed or invented something."""


@dataclass(slots=True)
class Offset:
    """A value that a group was moved to; a reset is durable when it is answered."""

    value: int | None  # None: the group has never been here
    at_s: float
    is_reset: bool = False
    is_certain: bool = True  # whether it was answered, and no earlier reset may have swallowed it

    def __str__(self) -> str:
        return f"{'reset' if self.is_reset else 'commit'} to {self.value} at {self.at_s:.3f} s"


@dataclass(slots=True)
class Transaction:
    """A half message and what became of it."""

    queue: Queue
    half_s: float
    verdict: str = ""  # "", "commit" or "rollback", as it was asked for
    ended_s: float | None = None  # when that was answered


@dataclass(slots=True)
class Copy:
    """A message that has to arrive in a queue of this topic at some time, once or more often."""

    topic: str
    due_ms: int
    at_s: float


@dataclass(slots=True)
class Ledger:
    """Belongs to one broker; `window_s` is how long the newest messages may be lost."""

    window_s: float
    messages: dict[tuple[str, int, int], tuple[bytes, float]] = field(default_factory=dict)
    keyed: dict[tuple[str, int, int], bytes] = field(default_factory=dict)  # answered, with key
    attempted: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    topics: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    deleted_topics: set[str] = field(default_factory=set)
    deleted_groups: set[str] = field(default_factory=set)
    offsets: dict[tuple[str, str, int], list[Offset]] = field(
        default_factory=lambda: defaultdict(lambda: [Offset(None, FOREVER)])
    )
    copies: dict[bytes, Copy] = field(default_factory=dict)
    transactions: dict[bytes, Transaction] = field(default_factory=dict)
    queues: set[Queue] = field(default_factory=set)

    def forget_topic(self, topic: str) -> None:
        """Its deletion was asked for: nothing is promised about it any more."""
        self.topics.discard(topic)
        self.messages = {place: one for place, one in self.messages.items() if place[0] != topic}
        self.queues = {queue for queue in self.queues if queue[0] != topic}
        self.copies = {body: copy for body, copy in self.copies.items() if copy.topic != topic}
        for key in [key for key in self.offsets if key[1] == topic]:
            del self.offsets[key]

    def forget_group(self, group: str) -> None:
        """Its deletion was asked for."""
        self.groups.discard(group)
        for key in [key for key in self.offsets if key[0] == group]:
            del self.offsets[key]

    def note_death(self, now_s: float, *, is_power_cut: bool) -> None:
        """Give up what may be lost when the broker dies now."""
        self._settle_offsets(now_s - OFFSET_WINDOW_S)
        if not is_power_cut:
            return
        newest_s = now_s - self.window_s
        self.messages = {p: one for p, one in self.messages.items() if one[1] <= newest_s}
        self.keyed = {place: body for place, body in self.keyed.items() if place in self.messages}
        self.copies = {body: copy for body, copy in self.copies.items() if copy.at_s <= newest_s}
        for one in self.transactions.values():
            if one.ended_s is not None and one.ended_s > now_s - END_WINDOW_S:
                one.ended_s = None

    def note_stop(self, now_s: float) -> None:
        """The broker was shut down gracefully: everything that was answered is kept."""
        self._settle_offsets(now_s)

    def _settle_offsets(self, saved_s: float) -> None:
        """Only the last value that is durable, or a later one, can be found again."""
        for events in self.offsets.values():
            durable = [
                index
                for index, event in enumerate(events)
                if event.is_certain and (event.is_reset or event.at_s <= saved_s)
            ]
            del events[: max(durable, default=0)]

    # --- checks ----------------------------------------------------------------------------

    async def check(self, wire: Wire, started_ms: int, now_s: float, *, is_settled: bool) -> None:
        """Ask the broker for everything; `is_settled` says that delays have had their time.

        What was stored before the broker started at `started_ms` is durable: it was synced then.
        """
        topics, groups = await wire.topics(), await wire.groups()
        _none("topics lost", self.topics - topics)
        _none("groups lost", self.groups - groups)
        _none("deleted topics came back", self.deleted_topics & topics)
        _none("deleted groups came back", self.deleted_groups & groups)
        found: dict[str, list[Record]] = defaultdict(list)
        for queue in sorted(self.queues):
            records = await self._read(wire, queue)
            self._check_queue(queue, records)
            found[queue[0]] += records
            for record in records:
                at_s = FOREVER if record.store_timestamp < started_ms else now_s
                self.messages.setdefault((*queue, record.queue_offset), (record.body, at_s))
        await self._check_keys(wire)
        await self._check_offsets(wire)
        self._check_transactions(found, is_settled=is_settled)
        self._check_copies(found, is_settled=is_settled)

    async def _read(self, wire: Wire, queue: Queue) -> list[Record]:
        try:
            return await wire.read(*queue)
        except RefusedError as error:
            if any(place[:2] == queue for place in self.messages):
                raise BrokenPromiseError(f"{queue} cannot be read: {error}") from error
            return []

    def _check_queue(self, queue: Queue, records: list[Record]) -> None:
        by_offset = {record.queue_offset: record.body for record in records}
        if [record.queue_offset for record in records] != sorted(by_offset):
            offsets = [record.queue_offset for record in records]
            raise BrokenPromiseError(f"{queue} is read out of order: {offsets}")
        for (topic, queue_id, offset), (body, _) in sorted(self.messages.items()):
            if (topic, queue_id) == queue and by_offset.get(offset) != body:
                raise BrokenPromiseError(
                    f"{queue} at {offset} has {by_offset.get(offset)!r} instead of {body!r}; "
                    f"it ends at {max(by_offset, default=-1) + 1}"
                )
        _none(
            f"{queue} has messages that nobody sent", set(by_offset.values()) - self._known(queue)
        )
        if queue[0].startswith(RETRY_PREFIX):
            return  # what a consumer gives back may come more than once
        plain = [body for body in by_offset.values() if body.startswith(b"plain")]
        _none(f"{queue} has messages twice", {body for body in plain if plain.count(body) > 1})

    def _known(self, queue: Queue) -> set[bytes]:
        return self.attempted[queue[0]]

    async def _check_keys(self, wire: Wire) -> None:
        # Not those that merely turned up: the checksum of a record does not cover its properties,
        # so a record that was never promised may have lost its keys to a torn page.
        promised = [place for place, body in sorted(self.keyed.items()) if place in self.messages]
        for topic, queue_id, offset in promised[::KEYS_CHECKED_EVERY]:
            body = self.keyed[topic, queue_id, offset]
            if self.messages[topic, queue_id, offset][0] != body:
                continue
            records = await wire.find(topic, body.decode())
            if body not in {record.body for record in records}:
                raise BrokenPromiseError(
                    f"{topic} {queue_id} at {offset}: not found by its key {body!r}"
                )

    async def _check_offsets(self, wire: Wire) -> None:
        for (group, topic, queue_id), events in sorted(self.offsets.items()):
            value = await wire.offset(group, topic, queue_id)
            if value not in {event.value for event in events}:
                raise BrokenPromiseError(
                    f"group {group} stands at {value} in {topic} {queue_id} "
                    f"after {', '.join(map(str, events))}"
                )
            # A reset waits for the next pull of the group, through any number of restarts.
            events[:] = [Offset(value, FOREVER, is_reset=any(one.is_reset for one in events))]

    def _check_transactions(self, found: dict[str, list[Record]], *, is_settled: bool) -> None:
        for body, one in self.transactions.items():
            count = sum(record.body == body for record in found[one.queue[0]])
            if one.verdict != "commit" and count:
                raise BrokenPromiseError(
                    f"{body!r} is visible and was {one.verdict or 'not ended'}"
                )
            if is_settled and one.verdict == "commit" and one.ended_s is not None and not count:
                raise BrokenPromiseError(f"{body!r} was committed and is not visible")
            if count > 1:
                raise BrokenPromiseError(f"{body!r} was committed {count} times")

    def _check_copies(self, found: dict[str, list[Record]], *, is_settled: bool) -> None:
        for body, copy in self.copies.items():
            records = [record for record in found[copy.topic] if record.body == body]
            early = [one.store_timestamp for one in records if one.store_timestamp < copy.due_ms]
            if early:
                raise BrokenPromiseError(f"{body!r} came {copy.due_ms - early[0]} ms too early")
            if is_settled and not records:
                raise BrokenPromiseError(f"{body!r} never came to {copy.topic}")


def _none(text: str, names: "set[str] | set[bytes]") -> None:
    if names:
        raise BrokenPromiseError(f"{text}: {sorted(names)}")
