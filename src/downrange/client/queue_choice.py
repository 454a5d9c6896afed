"""Which queue the next message goes to: one after the other, not the broker that has just failed.

With latency fault tolerance a broker that was slow or failed is left alone for a while.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from downrange.model.topics import MessageQueue

# As slow as this (ms) -> not used for so long (ms); Java's MQFaultStrategy.
_PENALTIES_MS: Final = (
    (15_000, 30_000),
    (5_000, 10_000),
    (3_000, 6_000),
    (1_800, 5_000),
    (550, 2_000),
)
_FAILED_AS_SLOW_AS_MS: Final = 10_000


@dataclass(slots=True)
class _Fault:
    latency_ms: float
    available_from_ms: float
    is_reachable: bool
    asked_next_ms: float = 0.0


class FaultTable:
    """What is remembered of brokers that were slow or failed."""

    def __init__(self) -> None:
        self._faults: dict[str, _Fault] = {}

    def update(
        self, broker: str, latency_ms: float, now_ms: float, *, failed: bool, reachable: bool
    ) -> None:
        """A call to a broker has ended."""
        pause_ms = penalty_ms(_FAILED_AS_SLOW_AS_MS if failed else latency_ms)
        fault = self._faults.setdefault(broker, _Fault(latency_ms, 0, reachable))
        fault.latency_ms = latency_ms
        fault.is_reachable = reachable
        if pause_ms:
            fault.available_from_ms = max(fault.available_from_ms, now_ms + pause_ms)

    def is_available(self, broker: str, now_ms: float) -> bool:
        """Whether its pause is over."""
        fault = self._faults.get(broker)
        return fault is None or now_ms >= fault.available_from_ms

    def is_reachable(self, broker: str) -> bool:
        """Whether it answered the last time."""
        fault = self._faults.get(broker)
        return fault is None or fault.is_reachable

    def due(self, now_ms: float, interval_ms: float) -> list[str]:
        """The brokers that may be asked whether they answer; not again before the interval."""
        due = [name for name, fault in self._faults.items() if now_ms >= fault.asked_next_ms]
        for name in due:
            self._faults[name].asked_next_ms = now_ms + interval_ms
        return due

    def reached(self, broker: str) -> bool:
        """It answers; whether that is news."""
        fault = self._faults.get(broker)
        if fault is None or fault.is_reachable:
            return False
        fault.is_reachable = True
        return True

    def forget(self, broker: str) -> None:
        """The broker is gone for good."""
        self._faults.pop(broker, None)


def penalty_ms(latency_ms: float) -> int:
    """For how long a broker is not used that took so long."""
    for slow_ms, pause_ms in _PENALTIES_MS:
        if latency_ms >= slow_ms:
            return pause_ms
    return 0


class QueueChoice:
    """The turn of each topic; `faults` only if the producer wants latency fault tolerance."""

    def __init__(self, chance: random.Random, faults: FaultTable | None = None) -> None:
        self._chance = chance
        self.faults = faults
        self._turns: dict[str, int] = {}

    def choose(
        self,
        topic: str,
        queues: Sequence[MessageQueue],
        last_broker: str | None = None,
        now_ms: float = 0,
    ) -> MessageQueue:
        """The next queue; `last_broker` is the one that has just failed, if any."""
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._chance.randrange(1 << 16)
        faults = self.faults
        if faults is None:
            if last_broker is None:
                self._turns[topic] = turn + 1
                return queues[turn % len(queues)]
            return self._first(
                topic, queues, turn, lambda queue: queue.broker_name != last_broker
            ) or self._next(topic, queues, turn)
        if last_broker is not None:
            turn = self._chance.randrange(1 << 16)
        found = self._first(
            topic,
            queues,
            turn,
            lambda queue: (
                queue.broker_name != last_broker and faults.is_available(queue.broker_name, now_ms)
            ),
        ) or self._first(
            topic,
            queues,
            turn,
            lambda queue: (
                queue.broker_name != last_broker and faults.is_reachable(queue.broker_name)
            ),
        )
        return found or self._next(topic, queues, turn)

    def take_back(self, topic: str) -> None:
        """The last choice was not used; the next one will be the same."""
        self._turns[topic] -= 1

    def _first(
        self,
        topic: str,
        queues: Sequence[MessageQueue],
        turn: int,
        is_wanted: Callable[[MessageQueue], bool],
    ) -> MessageQueue | None:
        for step in range(len(queues)):
            queue = queues[(turn + step) % len(queues)]
            if is_wanted(queue):
                self._turns[topic] = turn + step + 1
                return queue
        return None

    def _next(self, topic: str, queues: Sequence[MessageQueue], turn: int) -> MessageQueue:
        self._turns[topic] = turn + 1
        return queues[turn % len(queues)]
