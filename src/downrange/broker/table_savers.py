"""The savers of a broker's tables together."""

from collections.abc import Iterator
from dataclasses import dataclass

from downrange.broker.table_saver import TableSaver
from downrange.runtime.blocking import BlockingRunner


@dataclass(frozen=True, slots=True)
class TableSavers:
    """One saver per table that has a file; all of them share a runner, which they own."""

    runner: BlockingRunner
    topics: TableSaver
    groups: TableSaver
    offsets: TableSaver
    modes: TableSaver
    filters: TableSaver
    delays: TableSaver

    def __iter__(self) -> Iterator[TableSaver]:
        return iter((self.topics, self.groups, self.offsets, self.modes, self.filters, self.delays))

    @property
    def failure(self) -> str | None:
        """Which tables cannot be saved, and why; None if all can."""
        return "; ".join(saver.failure for saver in self if saver.failure is not None) or None

    def request_changed(self) -> None:
        """Save soon what has changed; also the retry after a failed save."""
        for saver in self:
            saver.request_if_dirty()

    async def creations_durable(self) -> None:
        """Return when all topics and groups are on disk; `Refused` as by `TableSaver.durable`."""
        self.groups.request_if_dirty()  # in flight right after the topics
        await self.topics.durable()
        await self.groups.durable()

    async def settle(self) -> None:
        """Return when no save is in flight or wanted."""
        for saver in self:
            await saver.settle()

    async def stop(self) -> None:
        """Let saves in flight end and begin no more."""
        for saver in self:
            await saver.stop()
        self.runner.close()

    async def close(self) -> None:
        """Stop, and make durable what is not."""
        for saver in self:
            await saver.close()
        self.runner.close()
