"""A clock that stands still until a test moves it."""


class ManualClock:
    """A `Clock` whose time moves only by `advance` or `jump_to`."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = 0

    def wall_ms(self) -> int:
        """The wall time a test has set."""
        return self._wall_ms

    def wall_ns(self) -> int:
        """The wall time a test has set, in nanoseconds."""
        return self._wall_ms * 1_000_000

    def monotonic_s(self) -> float:
        """The seconds a test has let pass."""
        return self._monotonic_ms / 1000

    def advance(self, milliseconds: int) -> None:
        """Let time pass on both clocks."""
        self._wall_ms += milliseconds
        self._monotonic_ms += milliseconds

    def jump_to(self, wall_ms: int) -> None:
        """Set the wall clock, as an administrator or NTP would; monotonic time stands still."""
        self._wall_ms = wall_ms
