"""Long work on an event loop, in slices between which everybody else is served.

The work is a generator that yields after each small step and returns its result. Steps are counted,
not timed, so a test sees the same slices every time.
"""

from collections.abc import Generator
from typing import Final, TypeVar

T = TypeVar("T")

STEPS_PER_SLICE: Final = 100  # a step is about 10 us, so a slice is about 1 ms

Steps = Generator[None, None, T]


class NextTurn:
    """Awaited: lets the event loop do everything else that is ready, once."""

    def __await__(self) -> Generator[None, None, None]:
        yield


async def in_slices(steps: Steps[T], steps_per_slice: int = STEPS_PER_SLICE) -> T:
    """Take all steps; between two slices the loop takes a turn."""
    try:
        while True:
            for _ in range(steps_per_slice):
                next(steps)
            await NextTurn()
    except StopIteration as end:
        result: T = end.value
        return result


def at_once(steps: Steps[T]) -> T:
    """Take all steps without a pause: for callers that have nobody else to serve."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
