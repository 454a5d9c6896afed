"""What a consumer holds of one queue: pulled and not yet consumed, in the order of offsets.

The lowest offset that is not consumed is what the group may commit: everything below it is done,
in whatever order it was done.
"""

from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from downrange.client.message import ReceivedMessage
from downrange.client.wakeup import Wakeup
from downrange.protocol.bodies.consumer import PulledQueue
from downrange.runtime.clock import Clock

LOCK_EXPIRY_S: Final = 30.0  # a broker keeps a lock for 60 s; we stop well before somebody takes it
PULL_EXPIRY_S: Final = 120.0
_MIB: Final = 1024 * 1024


class ProcessQueue:
    """One queue's messages in this client; lives from one assignment of the queue to its loss.

    Owned by the consumer's event loop. From a dropped queue nothing more is given to the listener;
    what the listener has already may still be committed until the queue is released, which is when
    somebody else may have it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._messages: dict[int, ReceivedMessage] = {}  # not yet taken, by offset
        self._order: deque[int] = deque()  # their offsets, ascending; may name some that are gone
        self._taken: dict[
            int, ReceivedMessage
        ] = {}  # in order: handed out and neither committed nor rolled back
        self._unsettled: dict[int, int] = {}  # body bytes of invalid messages, by offset
        self._bytes = 0
        self._offset_end = 0  # behind the highest offset ever put
        self.is_dropped = False
        self.is_released = False
        self._calls: dict[int, tuple[float, Sequence[ReceivedMessage]]] = {}  # of listeners, now
        self._batches = 0  # at a listener, or refused by it and on their way back to the broker
        self.call_ended = Wakeup()  # once it is dropped
        self.is_locked = False
        self.is_stopped = False  # in front of a message that cannot be decoded
        self.is_consuming = False  # in order: somebody takes messages, or will
        self.unlock_tries = 0
        self.accumulated = 0  # messages behind the last one that was pulled
        now_s = clock.monotonic_s()
        self.last_pull_s = now_s
        self.last_consume_s = now_s
        self.last_lock_s = now_s

    # --- how much there is -----------------------------------------------------------------

    @property
    def count(self) -> int:
        """Messages that are not consumed; includes those that were taken and invalid ones."""
        return len(self._messages) + len(self._taken) + len(self._unsettled)

    @property
    def bytes(self) -> int:
        """The size of their bodies."""
        return self._bytes

    @property
    def span(self) -> int:
        """From the lowest to the highest offset that waits; invalid messages count too."""
        first, last = self.first_offset, self._last_offset
        span = last - first if first is not None and last is not None else 0
        return max(span, self.unsettled_span)

    @property
    def unsettled_span(self) -> int:
        """From the lowest invalid message that is not settled to the end; 0 if there is none."""
        return self._offset_end - min(self._unsettled) if self._unsettled else 0

    @property
    def first_offset(self) -> int | None:
        """The lowest offset that waits; None if none does."""
        order, messages = self._order, self._messages
        while order and order[0] not in messages:
            order.popleft()
        return order[0] if order else None

    @property
    def _last_offset(self) -> int | None:
        order, messages = self._order, self._messages
        while order and order[-1] not in messages:
            order.pop()
        return order[-1] if order else None

    def __contains__(self, message: ReceivedMessage) -> bool:
        return message.queue_offset in self._messages

    # --- what was pulled, what is done -----------------------------------------------------

    def put(self, messages: Sequence[ReceivedMessage], *, queue_end: int | None = None) -> bool:
        """Take what was pulled; whether nobody takes messages yet, so that somebody has to."""
        held, order = self._messages, self._order
        offsets = [message.queue_offset for message in messages]
        count = len(offsets)
        if count and offsets[0] >= self._offset_end and offsets[-1] - offsets[0] == count - 1:
            # Nearly every pull: neighbours, behind all that came before.
            held.update(zip(offsets, messages, strict=True))
            order.extend(offsets)
            self._bytes += sum([len(message.body) for message in messages])
        else:
            self._put_slowly(messages)
        if messages:
            last = offsets[-1]
            self._offset_end = max(self._offset_end, last + 1)
            if queue_end is not None and queue_end > last:
                self.accumulated = queue_end - last
        is_first = bool(held) and not self.is_consuming
        self.is_consuming = self.is_consuming or is_first
        return is_first

    def _put_slowly(self, messages: Sequence[ReceivedMessage]) -> None:
        held, order = self._messages, self._order
        for message in messages:
            offset = message.queue_offset
            old = held.get(offset)
            held[offset] = message
            self._bytes += len(message.body)
            if old is not None:
                self._bytes -= len(old.body)
            elif not order or offset > order[-1]:
                order.append(offset)
            elif offset not in order:
                insort(order, offset)

    def remove(self, messages: Iterable[ReceivedMessage]) -> int | None:
        """Forget what was consumed; returns what may be committed, None if nothing was there."""
        self.last_consume_s = self._clock.monotonic_s()
        held = self._messages
        if not held:
            return None
        pop, freed = held.pop, 0
        for message in messages:
            gone = pop(message.queue_offset, None)
            if gone is not None:
                freed += len(gone.body)
        self._bytes -= freed
        if self._unsettled:
            return self._lowest()
        first = self.first_offset
        return self._offset_end if first is None else first

    def hold_invalid(self, offset: int, body_bytes: int) -> None:
        """Commit nothing beyond a message that cannot be decoded until it is settled."""
        self._bytes += body_bytes - self._unsettled.get(offset, 0)
        self._unsettled[offset] = body_bytes
        self._offset_end = max(self._offset_end, offset + 1)

    def is_unsettled(self, offset: int) -> bool:
        """Whether an invalid message still waits for `settle`."""
        return offset in self._unsettled

    def settle(self, offset: int) -> int | None:
        """The invalid message is dealt with; returns what may be committed, None if not held."""
        body_bytes = self._unsettled.pop(offset, None)
        if body_bytes is None:
            return None
        self._bytes -= body_bytes
        return self._lowest()

    def _lowest(self) -> int:
        """The lowest offset that is not done with; the end if all are."""
        first = self.first_offset
        lowest = self._offset_end if first is None else first
        for table in (self._taken, self._unsettled):
            if table:
                lowest = min(lowest, *table)
        return lowest

    def overdue(self, timeout_s: float) -> ReceivedMessage | None:
        """The lowest message, if the listener has had it for longer than this."""
        first = self.first_offset
        message = self._messages[first] if first is not None else None
        if message is None:
            return None
        limit_s = self._clock.monotonic_s() - timeout_s
        late = any(message in batch for at_s, batch in self._calls.values() if at_s < limit_s)
        return message if late else None

    def begin_call(self, batch: Sequence[ReceivedMessage]) -> None:
        """A listener gets messages of this queue."""
        self._calls[id(batch)] = (self._clock.monotonic_s(), batch)

    def end_call(self, batch: Sequence[ReceivedMessage]) -> None:
        """It has returned."""
        self._calls.pop(id(batch), None)
        if self.is_dropped:
            self.call_ended.wake()

    def begin_batch(self) -> None:
        """A batch is about to be consumed."""
        self._batches += 1

    def end_batch(self) -> None:
        """It is consumed, or the broker has taken it back."""
        self._batches -= 1
        if self.is_dropped:
            self.call_ended.wake()

    async def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no message of this dropped queue is in flight; whether it is so.

        One that a listener has refused is in flight until a broker has taken it back.
        """
        deadline_s = self._clock.monotonic_s() + timeout_s
        while self._calls or self._batches:
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                return False
            await self.call_ended.wait(left_s)
        return True

    # --- in order --------------------------------------------------------------------------

    def take(self, count_max: int) -> list[ReceivedMessage]:
        """The next messages in order; they stay counted until `commit`."""
        self.last_consume_s = self._clock.monotonic_s()
        batch: list[ReceivedMessage] = []
        while len(batch) < count_max:
            offset = self.first_offset
            if offset is None:
                break
            message = self._messages.pop(offset)
            self._taken[offset] = message
            batch.append(message)
        if not batch:
            self.is_consuming = False
        return batch

    def commit(self) -> int | None:
        """Forget what was taken; returns what may be committed, None if nothing was taken."""
        if not self._taken:
            return None
        end = max(self._taken) + 1
        self._bytes -= sum(len(message.body) for message in self._taken.values())
        self._taken.clear()
        return min(end, *self._unsettled) if self._unsettled else end

    def rollback(self) -> None:
        """Put everything back that was taken since the last commit."""
        self._put_back(sorted(self._taken))

    def consume_again(self, messages: Iterable[ReceivedMessage]) -> None:
        """Put these back, which were taken last; they come again first."""
        self._put_back(sorted(message.queue_offset for message in messages))

    def _put_back(self, offsets: list[int]) -> None:
        for offset in reversed(offsets):
            message = self._taken.pop(offset, None)
            if message is not None:
                self._messages[offset] = message
                self._order.appendleft(offset)

    def clear(self) -> None:
        """Forget all messages, as when the group's offset is set anew."""
        self._messages.clear()
        self._order.clear()
        self._taken.clear()
        self._unsettled.clear()
        self.is_stopped = False
        self._bytes = 0
        self._offset_end = 0

    # --- time ------------------------------------------------------------------------------

    def lock(self) -> None:
        """The broker has given or renewed the lock."""
        self.is_locked = True
        self.last_lock_s = self._clock.monotonic_s()

    @property
    def is_lock_expired(self) -> bool:
        """Whether the lock was not renewed in time."""
        return self._clock.monotonic_s() - self.last_lock_s > LOCK_EXPIRY_S

    @property
    def may_consume_in_order(self) -> bool:
        """Whether the lock is ours for certain."""
        return self.is_locked and not self.is_lock_expired

    @property
    def is_pull_expired(self) -> bool:
        """Whether nobody has pulled for so long that the pull loop must be lost."""
        return self._clock.monotonic_s() - self.last_pull_s > PULL_EXPIRY_S

    def describe(self, commit_offset: int) -> PulledQueue:
        """What GET_CONSUMER_RUNNING_INFO says of this queue."""
        now_s, now_ms = self._clock.monotonic_s(), self._clock.wall_ms()

        def as_wall_ms(then_s: float) -> int:
            return now_ms - int((now_s - then_s) * 1000)

        return PulledQueue(
            commit_offset=commit_offset,
            cached_msg_min_offset=self.first_offset or 0,
            cached_msg_max_offset=self._last_offset or 0,
            cached_msg_count=len(self._messages),
            cached_msg_size_in_mib=self._bytes // _MIB,
            transaction_msg_min_offset=min(self._taken, default=0),
            transaction_msg_max_offset=max(self._taken, default=0),
            transaction_msg_count=len(self._taken),
            locked=self.is_locked,
            try_unlock_times=self.unlock_tries,
            last_lock_timestamp=as_wall_ms(self.last_lock_s),
            dropped=self.is_dropped,
            last_pull_timestamp=as_wall_ms(self.last_pull_s),
            last_consume_timestamp=as_wall_ms(self.last_consume_s),
        )
