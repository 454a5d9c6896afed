"""Long work in slices."""

import asyncio

from downrange.runtime.slices import Steps, at_once, in_slices
from downrange.testing.virtual_time import run


def work(steps: int) -> Steps[str]:
    for _ in range(steps):
        yield
    return "done"


def test_the_loop_takes_a_turn_after_each_slice() -> None:
    async def turns_during(steps: int, steps_per_slice: int) -> int:
        loop, turns = asyncio.get_running_loop(), [0]

        def tick() -> None:
            turns[0] += 1
            handle[0] = loop.call_soon(tick)

        handle = [loop.call_soon(tick)]
        assert await in_slices(work(steps), steps_per_slice) == "done"
        handle[0].cancel()
        return turns[0]

    async def main() -> None:
        assert await turns_during(99, 100) == 0
        assert await turns_during(1000, 100) == 10
        assert await turns_during(1000, 10) == 100

    run(main())


def test_work_can_be_done_at_once() -> None:
    assert at_once(work(5)) == "done"
    assert at_once(work(0)) == "done"
