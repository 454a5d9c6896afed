"""Pulls that found nothing and wait for a message: parked, woken by arrival, or timed out."""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass

from downrange.broker.overload import overloaded
from downrange.filtering.subscription_filter import RetrySqlFilter, SqlFilter, TagFilter
from downrange.protocol.command import Command
from downrange.remoting.connection import Connection

PullFilter = TagFilter | SqlFilter | RetrySqlFilter | None
PARKED_MAX = 100_000
PARKED_PER_QUEUE_MAX = 10_000  # each is looked at for every message of its queue


@dataclass(slots=True, eq=False)
class ParkedPull:
    """A pull that waits for the message at `offset` of its queue."""

    request: Command
    connection: Connection
    offset: int
    deadline_s: float
    message_filter: PullFilter


class LongPolling:
    """The parked pulls by queue.

    `on_arrival` is a listener of the store's dispatch; it only notes which queues have news, and
    `resume` is called for their pulls when the batch of arrivals is through.
    """

    def __init__(
        self,
        resume: Callable[[ParkedPull], None],
        call_soon: Callable[[Callable[[], None]], object],
        count_max: int = PARKED_MAX,
    ) -> None:
        self._resume = resume
        self._call_soon = call_soon
        self._parked: dict[str, dict[int, list[ParkedPull]]] = {}  # by topic and queue
        self._woken: list[tuple[str, int, ParkedPull]] = []
        self.count_max = count_max
        self.count = 0

    def park(self, topic: str, queue_id: int, pull: ParkedPull) -> None:
        """Have the pull wait; `Refused` if too many wait already.

        An empty answer would be no relief: a consumer that gets one asks again at once.
        """
        if self.count >= self.count_max:
            raise overloaded(
                f"{self.count} pulls wait for messages, pullThreadPoolQueueCapacity is "
                f"{self.count_max}"
            )
        waiting = self._parked.setdefault(topic, {}).setdefault(queue_id, [])
        if len(waiting) >= PARKED_PER_QUEUE_MAX:
            raise overloaded(
                f"{len(waiting)} pulls wait for messages of queue {queue_id} of {topic}, "
                f"the limit is {PARKED_PER_QUEUE_MAX}"
            )
        waiting.append(pull)
        self.count += 1

    @property
    def topics(self) -> Container[str]:
        """Topics that somebody waits for, at any moment."""
        return self._parked

    def on_arrival(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        tag_code: int,
        _stored_ms: int,
        properties: bytes,
    ) -> None:
        """A message became visible: wake those who want it."""
        queues = self._parked.get(topic)
        waiting = queues.get(queue_id) if queues is not None else None
        if waiting is None:
            return
        staying: list[ParkedPull] = []
        woken: list[tuple[str, int, ParkedPull]] = []
        for pull in waiting:
            if self._wants(pull, queue_offset, tag_code, properties):
                woken.append((topic, queue_id, pull))
            else:
                staying.append(pull)
        if not woken:
            return
        if not self._woken:
            self._call_soon(self._resume_woken)
        self._woken += woken
        self._keep(topic, queue_id, staying)

    def sweep(self, now_s: float, max_offset: Callable[[str, int], int]) -> int:
        """Wake whose time is over, and whose message is there but was missed; returns how many."""
        due: list[tuple[str, int, ParkedPull]] = []
        for topic, queue_id, waiting in self._all():
            end = max_offset(topic, queue_id)
            staying = []
            for pull in waiting:
                if pull.connection.is_closed:
                    self.count -= 1
                elif pull.connection.is_writable and (
                    pull.deadline_s <= now_s or (pull.message_filter is None and end > pull.offset)
                ):
                    due.append((topic, queue_id, pull))
                else:
                    staying.append(pull)
            self._keep(topic, queue_id, staying)
        self._resume_all(due)
        return len(due)

    def drain(self) -> Iterator[ParkedPull]:
        """All that wait, taken out: the broker stops and answers them."""
        parked = self._all()
        self._parked.clear()
        self.count = 0
        for _, _, waiting in parked:
            yield from waiting

    def _all(self) -> list[tuple[str, int, list[ParkedPull]]]:
        return [
            (topic, queue_id, waiting)
            for topic, queues in self._parked.items()
            for queue_id, waiting in queues.items()
        ]

    @staticmethod
    def _wants(pull: ParkedPull, queue_offset: int, tag_code: int, properties: bytes) -> bool:
        if queue_offset < pull.offset or not pull.connection.is_writable:
            return False
        wanted = pull.message_filter
        if wanted is None:
            return True
        if not wanted.matches_entry(tag_code):
            return False
        return not isinstance(wanted, SqlFilter) or wanted.matches_properties(properties)

    def _keep(self, topic: str, queue_id: int, staying: list[ParkedPull]) -> None:
        queues = self._parked[topic]
        if staying:
            queues[queue_id] = staying
            return
        del queues[queue_id]
        if not queues:
            del self._parked[topic]

    def _resume_woken(self) -> None:
        woken, self._woken = self._woken, []
        self._resume_all(woken)

    def _resume_all(self, pulls: list[tuple[str, int, ParkedPull]]) -> None:
        self.count -= len(pulls)
        for topic, queue_id, pull in pulls:
            # The answers just before this one may have been all that the peer can take.
            if pull.connection.is_writable:
                self._resume(pull)
            else:
                self._parked.setdefault(topic, {}).setdefault(queue_id, []).append(pull)
                self.count += 1
