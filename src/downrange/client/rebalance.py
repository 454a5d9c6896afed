"""Shares the queues of the subscribed topics with the other members of a group.

Every 20 s, every second while something is missing, and at once when brokers say that the group has
changed. A queue that is lost is handed over: the listener may end what it has, the offset is kept,
the lock is given back; a queue that is won is begun where the one before has left it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from downrange.client.allocation import AllocationStrategy, share_out
from downrange.client.errors import RocketMQError
from downrange.client.offset_store import OffsetStore
from downrange.client.process_queue import ProcessQueue
from downrange.client.start_offset import StartOffset
from downrange.client.wakeup import Wakeup, pause
from downrange.model.names import is_retry_topic
from downrange.model.topics import MessageQueue
from downrange.protocol.bodies.heartbeat import Subscription
from downrange.runtime.clock import Clock
from downrange.runtime.service import Supervisor

_log = logging.getLogger(__name__)

INTERVAL_S: Final = 20.0
UNBALANCED_INTERVAL_S: Final = 1.0
MIN_INTERVAL_S: Final = 0.1  # notices come in swarms; Java waits up to a second
LOCK_RETRY_S: Final = 0.5
LOCK_INTERVAL_S: Final = 20.0
FIRST_LOCK_S: Final = 1.0
# A queue that is lost ends what it has within the first time, who gets it waits for the second, so
# that members who come and go cause few messages to be consumed twice.
DRAIN_S: Final = 0.15
HANDOVER_S: Final = 0.3
UNLOCK_WAIT_S: Final = 60.0  # as long as a broker keeps a lock that nobody renews

BeginPulling = Callable[[MessageQueue, ProcessQueue, int], Callable[[], object]]
QueuesChanged = Callable[[str, Collection[MessageQueue], Collection[MessageQueue]], None]


class GroupCalls(Protocol):
    """What rebalancing asks of brokers."""

    async def consumer_ids(self, topic: str) -> tuple[list[str], str]:
        """The members of the group, and which broker says so."""
        ...

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, bool]:
        """Which of the queues are locked for us now; who does not answer is missing."""
        ...

    async def unlock(self, queues: Iterable[MessageQueue], *, wait: bool) -> None:
        """Let go of queues."""
        ...


@dataclass(slots=True)
class Assigned:
    """A queue that is ours, or on its way to somebody else."""

    queue: MessageQueue
    held: ProcessQueue
    start: StartOffset
    stop_pulling: Callable[[], object]


class Rebalance:
    """The queues of one consumer. Owned by its event loop; `run` is its one task.

    `begin_pulling` starts the pull loop of a queue and returns what ends it.
    """

    def __init__(
        self,
        *,
        group: str,
        client_id: str,
        strategy: AllocationStrategy,
        is_broadcasting: bool,
        is_in_order: bool,
        subscriptions: Mapping[str, Subscription],
        readable_queues: Callable[[str], Collection[MessageQueue]],
        calls: GroupCalls,
        offsets: OffsetStore,
        find_start: Callable[[MessageQueue], Awaitable[StartOffset]],
        greet: Callable[[str], Awaitable[object]],
        clock: Clock,
        supervisor: Supervisor,
    ) -> None:
        self._group = group
        self._client_id = client_id
        self._strategy = strategy
        self._is_broadcasting = is_broadcasting
        self._needs_locks = is_in_order and not is_broadcasting
        self._subscriptions = subscriptions
        self._readable_queues = readable_queues
        self._calls = calls
        self._offsets = offsets
        self._find_start = find_start
        self._greet = greet
        self._clock = clock
        self._supervisor = supervisor
        self._wakeup = Wakeup()
        self._last_s = clock.monotonic_s() - MIN_INTERVAL_S
        self._beginning: dict[MessageQueue, object] = {}  # queues that will be ours in a moment
        self._failing: set[MessageQueue] = set()  # queues that could not be begun the last time
        self.is_paused = False
        self.table: dict[MessageQueue, Assigned] = {}
        self.on_change: QueuesChanged | None = None
        self.begin_pulling: BeginPulling = _nobody_pulls

    # --- what is ours ----------------------------------------------------------------------

    @property
    def working(self) -> dict[MessageQueue, ProcessQueue]:
        """The queues that are ours and not on their way to somebody else."""
        return {queue: one.held for queue, one in self.table.items() if not one.held.is_dropped}

    def soon(self) -> None:
        """Share out anew as soon as possible."""
        self._wakeup.wake()

    async def run(self) -> None:
        """Share out again and again, the first time at once."""
        if self._needs_locks:
            self._supervisor.later(FIRST_LOCK_S, self._begin_renewing)
        is_balanced = False
        self.soon()
        while True:
            await self._wakeup.wait(INTERVAL_S if is_balanced else UNBALANCED_INTERVAL_S)
            since_s = self._clock.monotonic_s() - self._last_s
            if since_s < MIN_INTERVAL_S:
                await pause(MIN_INTERVAL_S - since_s)
            is_balanced = await self.share_out_all()
            self._last_s = self._clock.monotonic_s()

    async def share_out_all(self) -> bool:
        """Share out every topic; whether we have everything that is ours."""
        if self.is_paused:
            return False
        topics = list(self._subscriptions)
        balanced = await asyncio.gather(*(self._share_out(topic) for topic in topics))
        for queue, one in list(self.table.items()):
            if queue.topic not in self._subscriptions and not one.held.is_dropped:
                self.drop(one)
        return all(balanced)

    # --- one topic -------------------------------------------------------------------------

    async def _share_out(self, topic: str) -> bool:
        queues = self._readable_queues(topic)
        try:
            if self._is_broadcasting:
                return self._take(topic, queues, queues, alone=True)
            members, address = await self._calls.consumer_ids(topic)
            if self._client_id not in members:
                # The broker has just come back, or was just greeted for the first time. Java gives
                # up all its queues now; nobody would have them.
                await self._greet(address)
                return False
            mine = share_out(self._strategy, self._client_id, queues, members) if queues else []
            return self._take(topic, queues, mine, alone=len(members) == 1)
        except RocketMQError as error:
            if is_retry_topic(topic):  # which exists from the first message on that comes again
                _log.debug("queues of %s not shared out: %s", topic, error)
                return True
            _log.warning("queues of %s not shared out in %s: %s", topic, self._group, error)
            return False

    def _take(
        self,
        topic: str,
        queues: Collection[MessageQueue],
        mine: Collection[MessageQueue],
        *,
        alone: bool,
    ) -> bool:
        """Drop what is not ours, begin what is new; whether nothing is missing."""
        wanted = set(mine)
        changed = False
        for queue, one in list(self.table.items()):
            if queue.topic != topic or one.held.is_dropped:
                continue
            if queue not in wanted or one.held.is_pull_expired:
                if queue in wanted:
                    _log.error("%s was not pulled for two minutes; begins anew", queue)
                self.drop(one)
                changed = True
        for queue in [one for one in self._beginning if one.topic == topic and one not in wanted]:
            del self._beginning[queue]
        new = sorted(wanted - self.table.keys() - self._beginning.keys())
        if new:
            # Not here: who waits for others must still hear that the group has changed again.
            token = object()
            self._beginning.update(dict.fromkeys(new, token))
            work = self._begin(topic, new, token, alone=alone)
            self._supervisor.spawn(f"begin with {len(new)} queues of {topic}", work)
        if changed:
            self._tell(topic, queues)
        return wanted == {
            queue for queue in (*self.working, *self._beginning) if queue.topic == topic
        }

    def _tell(self, topic: str, queues: Collection[MessageQueue]) -> None:
        have = {queue for queue in self.working if queue.topic == topic}
        _log.info("group %s has %d of %d queues of %s", self._group, len(have), len(queues), topic)
        if self.on_change is not None:
            self.on_change(topic, queues, have)

    async def _begin(
        self, topic: str, new: list[MessageQueue], token: object, *, alone: bool
    ) -> None:
        """Begin with queues, those of them that are still ours when it comes to that."""
        missing_s = UNBALANCED_INTERVAL_S
        locked: list[MessageQueue] = []
        try:
            if self._needs_locks:
                answer = await self._calls.lock(new)
                locked = [queue for queue in new if answer.get(queue)]
                missing_s = LOCK_RETRY_S
            elif not alone:
                await pause(HANDOVER_S)
            ready = locked if self._needs_locks else new
            ready = [queue for queue in ready if self._beginning.get(queue) is token]
            begun = await asyncio.gather(*(self._begin_one(queue, token) for queue in ready))
        finally:
            for queue in new:
                if self._beginning.get(queue) is token:
                    del self._beginning[queue]
        lost = [queue for queue in locked if queue not in self.table | self._beginning]
        if lost:
            await self._calls.unlock(lost, wait=False)
        if sum(begun) < len(new):
            self._supervisor.later(missing_s, self.soon)
        if any(begun):
            self._tell(topic, self._readable_queues(topic))

    async def _begin_one(self, queue: MessageQueue, token: object) -> bool:
        self._offsets.remove(queue)  # what we knew of it in an earlier life
        try:
            start = await self._find_start(queue)
        except RocketMQError as error:
            if queue not in self._failing:
                self._failing.add(queue)
                _log.warning("group %s cannot begin with %s yet: %s", self._group, queue, error)
            return False
        self._failing.discard(queue)
        if self._beginning.get(queue) is not token:
            return False
        held = ProcessQueue(self._clock)
        if self._needs_locks:
            held.lock()
        self.table[queue] = Assigned(
            queue, held, start, self.begin_pulling(queue, held, start.offset)
        )
        return True

    # --- letting go ------------------------------------------------------------------------

    def drop(self, one: Assigned) -> None:
        """Hand a queue over; it stays in the table until that is done."""
        one.held.is_dropped = True
        one.stop_pulling()
        self._supervisor.spawn(f"hand over {one.queue}", self._hand_over(one))

    def repair(self, queue: MessageQueue, held: ProcessQueue, offset: int) -> None:
        """The broker has nothing at our offset: go on where it says, whatever was in flight."""
        one = self.table.get(queue)
        if one is None or one.held is not held or held.is_dropped:
            return
        _log.warning(
            "group %s goes on at offset %d of %s, by its broker", self._group, offset, queue
        )
        self._offsets.freeze(queue, offset)
        self.drop(one)

    async def reset(self, offsets: Mapping[MessageQueue, int], drain_s: float) -> None:
        """Set offsets anew: what is cached is forgotten, what the listener has may end."""
        queues = [queue for queue in offsets if queue in self.working]
        for queue in queues:
            held = self.table[queue].held
            held.is_dropped = True
            held.clear()
            self.table[queue].stop_pulling()
        for queue in queues:
            one = self.table[queue]
            await one.held.wait_idle(drain_s)
            self._offsets.freeze(queue, offsets[queue])
            await self._hand_over(one)

    async def release_all(self, timeout_s: float) -> None:
        """The end: stop, let listeners end within the time, keep all offsets, give up all locks."""
        begun = list(self._beginning)
        self._beginning.clear()
        for one in self.table.values():
            one.held.is_dropped = True
            one.stop_pulling()
        deadline_s = self._clock.monotonic_s() + timeout_s
        for one in self.table.values():
            if not await one.held.wait_idle(max(deadline_s - self._clock.monotonic_s(), 0)):
                _log.warning("the listener still has messages of %s; they come again", one.queue)
        queues = [queue for queue, one in self.table.items() if not one.held.is_released]
        await self._offsets.persist(queues, wait=True)
        for queue in queues:
            self.table[queue].held.is_released = True
        if self._needs_locks:
            await self._calls.unlock([*queues, *begun], wait=True)
        self.table.clear()

    async def _hand_over(self, one: Assigned) -> None:
        held, queue = one.held, one.queue
        if self._needs_locks:
            locked_s = self._clock.monotonic_s() - held.last_lock_s
            if not await held.wait_idle(DRAIN_S):
                held.unlock_tries += 1
                await held.wait_idle(max(UNLOCK_WAIT_S - locked_s, 0))
        else:
            await held.wait_idle(DRAIN_S)
        if held.is_released:
            return
        held.is_released = True
        await self._offsets.persist([queue])
        self._offsets.remove(queue)
        if self._needs_locks:
            held.is_locked = False
            await self._calls.unlock([queue], wait=False)  # after the offset, on one connection
        if self.table.get(queue) is one:
            del self.table[queue]
        self.soon()

    # --- locks -----------------------------------------------------------------------------

    async def lock(self, queue: MessageQueue) -> bool:
        """Ask for the lock of one of our queues; whether it is ours."""
        locked = (await self._calls.lock([queue])).get(queue, False)
        one = self.table.get(queue)
        if locked and one is not None and not one.held.is_dropped:
            one.held.lock()
        return locked

    async def renew_locks(self) -> None:
        """Ask for all our locks; a queue whose lock is refused rests until it is given.

        A broker that does not answer keeps them for a minute, and we trust them half as long.
        """
        locked = await self._calls.lock(list(self.working))
        for queue, held in self.working.items():
            if locked.get(queue):
                held.lock()
            elif queue in locked and held.is_locked:
                _log.warning("group %s has lost the lock of %s", self._group, queue)
                held.is_locked = False

    def _begin_renewing(self) -> None:
        def renew() -> None:
            self._supervisor.spawn("renew locks", self.renew_locks())

        renew()
        self._supervisor.every("renew the locks", LOCK_INTERVAL_S, renew)


def _nobody_pulls(_queue: MessageQueue, _held: ProcessQueue, _offset: int) -> Callable[[], object]:
    """What a consumer does that pulls on its own."""
    return lambda: None
