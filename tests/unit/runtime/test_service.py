"""Supervised tasks and periodic jobs, in virtual time."""

import asyncio

import pytest

from downrange.runtime.service import Supervisor
from downrange.testing.virtual_time import run

Failures = list[tuple[str, BaseException]]


def watched() -> tuple[Supervisor, Failures]:
    failures: Failures = []
    return Supervisor(lambda name, error: failures.append((name, error))), failures


async def wait(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_later(seconds, future.set_result, None)
    await future


def test_a_job_runs_after_each_interval_until_stop() -> None:
    async def main() -> None:
        supervisor, failures = watched()
        loop = asyncio.get_running_loop()
        times: list[float] = []
        supervisor.every("tick", 5.0, lambda: times.append(loop.time()))
        await wait(16)
        assert times == pytest.approx([5, 10, 15])
        assert supervisor.names == ["tick"]
        await supervisor.stop()
        await wait(60)
        assert len(times) == 3
        assert failures == []
        assert supervisor.names == []

    run(main())


def test_a_failed_job_is_reported_and_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        supervisor, failures = watched()

        def job() -> None:
            raise ValueError("a bug")

        supervisor.every("tick", 1.0, job)
        await wait(10)
        assert [(name, str(error)) for name, error in failures] == [("tick", "a bug")]

    run(main())
    assert "tick failed: a bug" in caplog.text


def test_a_failed_task_is_reported_and_a_finished_or_cancelled_one_is_not() -> None:
    async def main() -> None:
        supervisor, failures = watched()

        async def crash() -> None:
            await wait(1)
            raise ValueError("a bug")

        async def forever() -> None:
            await asyncio.get_running_loop().create_future()

        supervisor.spawn("short", wait(0.5))
        supervisor.spawn("crash", crash())
        supervisor.spawn("forever", forever())
        assert supervisor.names == ["crash", "forever", "short"]
        await wait(2)
        assert supervisor.names == ["forever"]
        await supervisor.stop()
        await wait(0)
        assert [name for name, _ in failures] == ["crash"]
        assert supervisor.names == []

    run(main())


def test_stop_does_not_wait_longer_than_it_may() -> None:
    async def main() -> None:
        supervisor, _ = watched()

        async def stubborn() -> None:
            try:
                await wait(100)
            except asyncio.CancelledError:
                await wait(100)

        supervisor.spawn("stubborn", stubborn())
        await wait(1)
        await supervisor.stop(timeout_s=5)
        assert asyncio.get_running_loop().time() == pytest.approx(6)
        await wait(200)

    run(main())
