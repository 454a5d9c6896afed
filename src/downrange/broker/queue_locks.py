"""Which client of a group may consume a queue, where messages are consumed in order."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from downrange.model.topics import MessageQueue
from downrange.runtime.clock import Clock

_log = logging.getLogger(__name__)

LOCK_EXPIRY_MS = 60_000  # a client renews every 20 s


@dataclass(frozen=True, slots=True)
class _Lock:
    client_id: str
    renewed_s: float


class QueueLocks:
    """Locks by group and queue, each held by one client. Owned by the thread of the broker.

    A lock that is not renewed for a minute is free for the next who asks.
    """

    def __init__(self, clock: Clock, *, expiry_ms: int = LOCK_EXPIRY_MS) -> None:
        self._clock = clock
        self._expiry_s = expiry_ms / 1000
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Lock or renew what can be had; returns the queues that the client holds now."""
        now_s = self._clock.monotonic_s()
        locks = self._groups.setdefault(group, {})
        held = []
        for queue in queues:
            old = locks.get(queue)
            if old is not None and old.client_id != client_id:
                if self._is_alive(old, now_s):
                    continue
                _log.info(
                    "client %r takes the expired lock of %r on %s", client_id, old.client_id, queue
                )
            locks[queue] = _Lock(client_id, now_s)
            held.append(queue)
        if not locks:
            del self._groups[group]
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give up locks; those of others stay."""
        locks = self._groups.get(group)
        if locks is None:
            return
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
        if not locks:
            del self._groups[group]

    def holder(self, group: str, queue: MessageQueue) -> str | None:
        """The client that holds a queue; None if anybody may lock it."""
        lock = self._groups.get(group, {}).get(queue)
        if lock is None or not self._is_alive(lock, self._clock.monotonic_s()):
            return None
        return lock.client_id

    def is_orderly(self, group: str) -> bool:
        """Whether a client of the group holds a queue."""
        locks = self._groups.get(group)
        if locks is None:
            return False
        now_s = self._clock.monotonic_s()
        return any(self._is_alive(lock, now_s) for lock in locks.values())

    def expire(self) -> None:
        """Forget the locks that have expired; without this only memory would be lost."""
        now_s = self._clock.monotonic_s()
        for group, locks in list(self._groups.items()):
            for queue in [one for one, lock in locks.items() if not self._is_alive(lock, now_s)]:
                del locks[queue]
            if not locks:
                del self._groups[group]

    def _is_alive(self, lock: _Lock, now_s: float) -> bool:
        return now_s - lock.renewed_s <= self._expiry_s
