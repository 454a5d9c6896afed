"""Delay levels: the numbered waiting times of DELAY messages, from a text like "1s 10s 5m 2h 1d".

Level 1 is the first entry. Level n waits in queue n - 1 of SCHEDULE_TOPIC_XXXX.
"""

from dataclasses import dataclass
from typing import Self

DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
# What RocketMQ waits for a level that its table does not have.
UNKNOWN_LEVEL_MS = 1_000
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """The table of levels; `delays_ms[0]` belongs to level 1."""

    delays_ms: tuple[int, ...]

    @classmethod
    def parse(cls, text: str = DEFAULT_LEVELS) -> Self:
        """The table that a setting describes; `ValueError` says which entry is wrong."""
        delays: list[int] = []
        for entry in text.split():
            number, unit = entry[:-1], entry[-1:]
            if unit not in _UNIT_MS or not (number.isascii() and number.isdecimal()):
                raise ValueError(
                    f"delay level {len(delays) + 1}, {entry!r}, is not a number with s, m, h or d"
                )
            delays.append(int(number) * _UNIT_MS[unit])
        if not delays:
            raise ValueError("the table of delay levels is empty")
        return cls(tuple(delays))

    @property
    def level_max(self) -> int:
        """The highest level."""
        return len(self.delays_ms)

    def clamp(self, level: int) -> int:
        """The level used when a producer asks for this one: 0 (no delay) to the highest."""
        return max(0, min(level, self.level_max))

    def delay_ms(self, level: int) -> int:
        """How long a message of this level waits."""
        if not 1 <= level <= self.level_max:
            return UNKNOWN_LEVEL_MS
        return self.delays_ms[level - 1]


def queue_of_level(level: int) -> int:
    """The queue of SCHEDULE_TOPIC_XXXX in which a level waits."""
    return level - 1


def level_of_queue(queue_id: int) -> int:
    """The level whose messages wait in a queue of SCHEDULE_TOPIC_XXXX."""
    return queue_id + 1
