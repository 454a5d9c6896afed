"""What happened in a run, as lines that a person can read and a digest that a machine compares."""

import hashlib
from collections.abc import Callable


class Trace:
    """Lines with the time at which they were said, in seconds since the start."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        """Add a line."""
        self.lines.append(f"{self._now_s():9.3f} s  {text}")

    @property
    def digest(self) -> str:
        """The same for two runs that went the same way."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()[:16]

    def story(self, count_max: int = 200) -> str:
        """The last lines, oldest first."""
        left_out = len(self.lines) - count_max
        head = [f"  ... {left_out} earlier lines ..."] if left_out > 0 else []
        return "\n".join(head + self.lines[-count_max:])
