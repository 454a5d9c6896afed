"""A loop with real sockets whose time a test stops and moves."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from downrange.runtime.clock import SystemClock
from downrange.testing.clock import ManualClock
from downrange.testing.driven_time import DrivenTime, TimeDriver

SECONDS_MAX = 60.0


@contextmanager
def driven_loop(driven: DrivenTime) -> Iterator[tuple[TimeDriver, asyncio.AbstractEventLoop]]:
    driver = TimeDriver(driven)
    loop = driver.new_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield driver, loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(SECONDS_MAX)
        loop.close()


def in_loop(loop: asyncio.AbstractEventLoop, *delays_s: float) -> list[float]:
    """Timers of these delays; the list gets the time at which each fires."""
    fired: list[float] = []
    is_set = threading.Event()

    def start() -> None:
        begin_s = loop.time()
        for delay_s in delays_s:
            loop.call_later(delay_s, lambda: fired.append(round(loop.time() - begin_s, 3)))
        is_set.set()

    loop.call_soon_threadsafe(start)
    assert is_set.wait(SECONDS_MAX)
    return fired


def test_frozen_time_stands_still_and_fires_nothing_until_it_is_moved() -> None:
    driven = DrivenTime()
    with driven_loop(driven) as (driver, loop):
        driver.freeze()
        fired = in_loop(loop, 10.0, 0.5, 86_400.0)
        before_ms = driven.wall_ms()
        driver.advance(0.4, SECONDS_MAX)
        assert fired == []
        driver.advance(9.6, SECONDS_MAX)
        assert fired == [0.5, 10.0]  # each at its own time
        assert driven.wall_ms() - before_ms in {9_999, 10_000, 10_001}
        driver.advance(86_400.0, SECONDS_MAX)
        assert len(fired) == 3
        assert driven.is_frozen


def test_what_a_timer_starts_ends_before_time_goes_on() -> None:
    driven = DrivenTime()
    seen: list[tuple[str, float]] = []
    with driven_loop(driven) as (driver, loop):
        driver.freeze()

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readline())
            writer.close()

        async def ask() -> None:
            server = await asyncio.start_server(echo, "127.0.0.1", 0)
            begin_s = loop.time()
            timer: asyncio.Future[None] = loop.create_future()
            loop.call_later(5.0, timer.set_result, None)
            await timer
            seen.append(("asks", round(loop.time() - begin_s, 3)))
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"x\n")
            assert await reader.readline() == b"x\n"
            seen.append(("knows", round(loop.time() - begin_s, 3)))
            writer.close()
            server.close()

        future = asyncio.run_coroutine_threadsafe(ask(), loop)
        loop.call_soon_threadsafe(lambda: None)
        while not asyncio.run_coroutine_threadsafe(_timers(loop), loop).result(SECONDS_MAX):
            pass
        driver.advance(100.0, SECONDS_MAX)
        future.result(SECONDS_MAX)
    # The answer came over a socket within the step in which it was asked for.
    assert seen[0] == ("asks", 5.0)
    assert seen[1][1] < 10.0


async def _timers(loop: asyncio.AbstractEventLoop) -> int:
    return len(loop._scheduled)  # type: ignore[attr-defined]


def test_a_running_clock_can_be_moved_and_runs_on() -> None:
    system = ManualClock()
    driven = DrivenTime(system)
    assert driven.wall_ms() == system.wall_ms()
    driven.freeze()
    system.advance(5_000)
    assert driven.monotonic_s() == 0.0
    driven.jump_to(60.0)
    driven.thaw()
    assert driven.monotonic_s() == 60.0
    system.advance(1_000)
    assert driven.monotonic_s() == 61.0
    assert driven.wall_ms() - ManualClock().wall_ms() == 61_000
    with driven_loop(DrivenTime(SystemClock())) as (driver, loop):
        fired = in_loop(loop, 3_600.0)
        driver.advance(3_600.0, SECONDS_MAX)
        assert len(fired) == 1
        assert not driver._driven.is_frozen
