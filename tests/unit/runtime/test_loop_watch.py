"""The watch of an event loop says which callback held it up, and nothing of the others."""

import asyncio
import logging

import pytest

from downrange.runtime.loop_watch import LOG_INTERVAL_S, TICK_S, WINDOW_S, LoopWatch
from downrange.runtime.processor_wait import processor_wait
from downrange.runtime.service import Supervisor
from downrange.testing.virtual_time import VirtualTimeLoop, run


async def pass_time(seconds: float) -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, event.set)
    await event.wait()


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def lap(watch: LoopWatch, hands: Hands, seconds: float, subject: str) -> None:
    watch.begin()
    hands.now_s += seconds
    if watch.lap():
        watch.note(subject)


def tick_for(watch: LoopWatch, hands: Hands, seconds: float) -> None:
    for _ in range(int(seconds / TICK_S) + 1):
        hands.now_s += TICK_S
        watch.tick()


def longest(watch: LoopWatch) -> tuple[int, str]:
    """In milliseconds."""
    return round(watch.longest.seconds * 1000), watch.longest.subject


def test_the_longest_callback_is_known_for_this_and_the_last_minute() -> None:
    hands = Hands()
    watch = LoopWatch(hands)
    watch.tick()
    lap(watch, hands, 0.030, "a heartbeat")
    lap(watch, hands, 0.020, "a pull")
    assert longest(watch) == (30, "a heartbeat")
    tick_for(watch, hands, WINDOW_S)
    lap(watch, hands, 0.010, "a pull")
    assert watch.longest.subject == "a heartbeat"
    tick_for(watch, hands, WINDOW_S)
    assert watch.longest.subject == "a pull"
    assert watch.beyond_count == 0


def test_callbacks_beyond_the_limit_are_counted_and_some_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hands = Hands()
    watch = LoopWatch(hands)
    for number in range(3):
        lap(watch, hands, 0.100 - number / 100, f"request {number}")
    hands.now_s += LOG_INTERVAL_S
    lap(watch, hands, 0.060, "request 3")
    assert watch.beyond_count == 4
    assert [record.message for record in caplog.records] == [
        "event loop: blocked for 100 ms by request 0; the limit is 50 ms",
        "event loop: blocked for 60 ms by request 3; the limit is 50 ms; "
        "2 more since the last report",
    ]


def test_a_processor_that_others_had_is_not_the_fault_of_a_callback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hands, waited = Hands(), Hands()
    watch = LoopWatch(hands, waited)
    watch.tick()
    waited.now_s += 0.080
    lap(watch, hands, 0.100, "a pull that was preempted")
    assert longest(watch) == (20, "a pull that was preempted")
    hands.now_s += TICK_S
    watch.tick()
    waited.now_s += 0.300
    hands.now_s += TICK_S + 0.340
    watch.tick()
    assert (watch.beyond_count, caplog.records) == (0, [])
    waited.now_s += 0.010
    lap(watch, hands, 0.100, "a request that is long itself")
    assert [record.message for record in caplog.records] == [
        "event loop: blocked for 90 ms by a request that is long itself; the limit is 50 ms"
    ]


def test_the_wait_for_a_processor_is_the_kernels_count() -> None:
    waited_s = processor_wait()
    first = waited_s()
    assert 0.0 <= first <= waited_s()


def test_many_short_laps_are_one_long_callback() -> None:
    hands = Hands()
    watch = LoopWatch(hands)
    watch.begin()
    for _ in range(100):
        hands.now_s += 0.001
        watch.lap()
    watch.note_total("one turn")
    assert longest(watch) == (100, "one turn")
    assert watch.beyond_count == 1


def test_a_late_tick_that_no_lap_explains_is_a_callback_that_is_not_watched() -> None:
    hands = Hands()
    watch = LoopWatch(hands)
    watch.tick()
    lap(watch, hands, 0.4, "a heartbeat")
    hands.now_s += TICK_S
    watch.tick()
    assert watch.beyond_count == 1, "the heartbeat explains it"
    hands.now_s += TICK_S + 0.2
    watch.tick()
    assert watch.beyond_count == 2
    assert watch.late_s == pytest.approx(0.2)


def test_jobs_timers_and_tasks_of_a_supervisor_are_measured(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)

        def fail(name: str, error: BaseException) -> None:
            raise AssertionError(name) from error

        watch = LoopWatch(loop.time)
        supervisor = Supervisor(fail, watch)

        def slow() -> None:
            loop.stall(0.2)

        async def slow_task() -> None:
            await pass_time(30)  # waiting is not work
            loop.stall(0.4)

        supervisor.every("expire files", 15, slow)
        await pass_time(16)
        assert longest(watch) == (200, "the job 'expire files'")
        supervisor.spawn("register", slow_task())
        await pass_time(31)
        assert longest(watch) == (400, "the task 'register'")
        assert watch.beyond_count == 4
        await supervisor.stop()

    run(main())


def test_one_long_lap_counts_no_more_than_the_owner_says() -> None:
    hands = Hands()
    watch = LoopWatch(hands)
    watch.lap_s_counted = 0.1
    watch.begin()
    hands.now_s += 5
    watch.lap()
    hands.now_s += 0.03
    watch.lap()
    assert watch.busy_s == pytest.approx(0.13)
    assert watch.total_s == pytest.approx(5.03)
    watch.begin()
    assert watch.busy_s == 0
