"""Time as a part receives it, so that a test can hold the hands.

Wall time is for timestamps that are stored, sent, or compared with such; an administrator or NTP
may step it by hours. Every interval and every deadline is measured on the monotonic clock.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Reads the time; `wall_ms` may jump, `monotonic_s` never goes back."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, as RocketMQ stamps its records."""
        ...

    def wall_ns(self) -> int:
        """The same in nanoseconds: one call less where it is asked for every message."""
        ...

    def monotonic_s(self) -> float:
        """Seconds on a clock that only measures distances."""
        ...


def monotonic_ms(clock: Clock) -> int:
    """Milliseconds on the monotonic clock, for intervals and deadlines."""
    return round(clock.monotonic_s() * 1000)


class SystemClock:
    """The machine's own clock."""

    wall_ns = staticmethod(time.time_ns)
    monotonic_s = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000
