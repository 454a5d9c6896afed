"""A table is saved off the loop, one save at a time, and nobody is told so if it was not."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from downrange.broker.saved_table import SaveJob
from downrange.broker.table_saver import WAIT_S_MAX, WAITING_MAX, TableSaver
from downrange.remoting.errors import Refused
from downrange.runtime.blocking import InLine
from downrange.runtime.service import Supervisor
from downrange.testing.virtual_time import run


class CountedTable:
    """A table that knows what of it was saved, and fails on demand."""

    def __init__(self) -> None:
        self.generation = 0
        self.durable = 0
        self.saves: list[int] = []
        self.error: OSError | None = None

    @property
    def is_dirty(self) -> bool:
        return self.generation > self.durable

    def begin_save(self) -> SaveJob:
        generation = self.generation

        def write() -> None:
            self.saves.append(generation)
            if self.error is not None:
                raise self.error

        def finish() -> None:
            self.durable = generation

        return SaveJob(generation, write, finish)


class HeldRunner:
    """A disk that finishes its work when the test says so."""

    def __init__(self) -> None:
        self._held: list[asyncio.Future[None]] = []
        self.count_max = 0

    async def run(self, work: Callable[[], None]) -> None:
        held = asyncio.get_running_loop().create_future()
        self._held.append(held)
        self.count_max = max(self.count_max, len(self._held))
        await held
        work()

    async def finish(self) -> None:
        """Let the work that waits be done, and what follows from it happen."""
        self._held.pop(0).set_result(None)
        await turns()

    @property
    def count(self) -> int:
        return len(self._held)

    def close(self) -> None:
        pass


async def turns(count: int = 5) -> None:
    for _ in range(count):
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, None)
        await future


def fail(name: str, error: BaseException) -> None:
    raise AssertionError(name) from error


def saver_of(table: CountedTable, runner: HeldRunner | InLine) -> TableSaver:
    return TableSaver("topics", table, runner, Supervisor(fail).spawn)


def saver_failure(saver: TableSaver) -> str | None:
    return saver.failure


def test_changes_during_a_save_share_the_next_one_and_each_waits_for_its_own() -> None:
    async def main() -> None:
        table, runner = CountedTable(), HeldRunner()
        saver = saver_of(table, runner)
        order: list[int] = []

        async def change(number: int) -> None:
            table.generation += 1
            await saver.durable()
            order.append(number)

        tasks = [asyncio.ensure_future(change(number)) for number in range(3)]
        await turns()
        assert table.saves == [], "the first save is in flight"
        tasks += [asyncio.ensure_future(change(number)) for number in range(3, 1003)]
        await turns()
        assert order == []
        await runner.finish()
        assert (order, table.saves, runner.count) == ([0, 1, 2], [3], 1)
        await runner.finish()
        await asyncio.gather(*tasks)
        assert order == list(range(1003)), "in the order of the changes"
        assert (table.saves, runner.count_max) == ([3, 1003], 1)

    run(main())


def test_who_waits_is_told_why_the_table_was_not_saved_and_it_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        table = CountedTable()
        saver = saver_of(table, InLine())
        table.error = OSError(28, "No space left on device")
        for _ in range(3):
            table.generation += 1
            with pytest.raises(Refused, match=r"table of topics cannot be saved.*No space left"):
                await saver.durable()
        assert saver.failure is not None
        assert "No space left" in saver.failure
        table.error = None
        saver.request_if_dirty()
        await saver.settle()
        assert table.durable == 3
        assert saver_failure(saver) is None
        await saver.durable()

    with caplog.at_level(logging.INFO, "downrange.broker.table_saver"):
        run(main())
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_a_change_behind_a_failed_save_gets_an_attempt_of_its_own() -> None:
    async def main() -> None:
        table, runner = CountedTable(), HeldRunner()
        saver = saver_of(table, runner)
        table.generation = 1
        first = asyncio.ensure_future(saver.durable())
        await turns()
        table.generation = 2
        second = asyncio.ensure_future(saver.durable())
        await turns()
        table.error = OSError(5, "Input/output error")
        await runner.finish()
        table.error = None
        await runner.finish()
        with pytest.raises(Refused):
            await first
        await second

    run(main())


def test_a_wait_ends_when_the_disk_does_not_answer() -> None:
    async def main() -> None:
        table, runner = CountedTable(), HeldRunner()
        saver = saver_of(table, runner)
        table.generation = 1
        began = asyncio.get_running_loop().time()
        with pytest.raises(Refused, match="not saved within 5 s"):
            await saver.durable()
        assert asyncio.get_running_loop().time() - began == WAIT_S_MAX
        await runner.finish()
        assert not table.is_dirty, "what nobody waits for is saved all the same"

    run(main())


def test_a_bounded_number_of_requests_waits() -> None:
    async def main() -> None:
        table, runner = CountedTable(), HeldRunner()
        saver = saver_of(table, runner)
        table.generation = 1
        tasks = [asyncio.ensure_future(saver.durable()) for _ in range(WAITING_MAX)]
        await turns()
        with pytest.raises(Refused, match="OVERLOAD"):
            await saver.durable()
        await runner.finish()
        await asyncio.gather(*tasks)

    run(main())


def test_listeners_hear_of_a_save_before_those_who_wait_go_on() -> None:
    async def main() -> None:
        table = CountedTable()
        saver = saver_of(table, InLine())
        heard: list[int] = []
        saver.on_saved.append(lambda: heard.append(table.durable))
        table.generation = 1
        await saver.durable()
        assert heard == [1]

    run(main())


def test_a_closed_saver_has_saved_everything_and_a_stopped_one_only_what_was_in_flight() -> None:
    async def main() -> None:
        for is_closed, saves in ((True, [1, 2]), (False, [1])):
            table, runner = CountedTable(), HeldRunner()
            saver = saver_of(table, runner)
            table.generation = 1
            saver.request()
            await turns()
            table.generation = 2
            ending = asyncio.ensure_future(saver.close() if is_closed else saver.stop())
            await turns()
            await runner.finish()
            if is_closed:
                await runner.finish()
            await ending
            saver.request()
            await turns()
            assert (table.saves, runner.count) == (saves, 0)

    run(main())
