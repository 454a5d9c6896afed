"""A table that lives in memory and in a file: counts its changes and knows which are on disk."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

from downrange.store.json_tables import Table, TableFile


@dataclass(frozen=True, slots=True)
class SaveJob:
    """A snapshot of a table on its way to its file.

    `run` encodes and writes it; it may block and may run in any thread, one job per table at a
    time. It raises `OSError` if the file cannot be replaced. `finish` tells the table that `run`
    has succeeded, in the thread that owns the table.
    """

    generation: int
    run: Callable[[], None]
    finish: Callable[[], None]


class SavedTable(ABC, Generic[Table]):
    """What all tables with a file share. Owned by the thread of the broker.

    `generation` counts the changes; everything up to `durable_generation` is on disk.
    """

    def __init__(self, file: TableFile[Table], *, is_new: bool) -> None:
        """`is_new`: there is something to save before anything was loaded or changed."""
        self._file = file
        self.generation = int(is_new)
        self.durable_generation = 0

    @property
    def is_dirty(self) -> bool:
        """Whether something has changed since the last successful save."""
        return self.generation > self.durable_generation

    @abstractmethod
    def to_file(self) -> Table:
        """The table as its file and its slaves see it; later changes do not reach it."""

    def begin_save(self) -> SaveJob:
        """The work that makes every change so far durable."""
        return self._job(self.to_file())

    def save(self) -> None:
        """Make the table durable here and now."""
        job = self.begin_save()
        job.run()
        job.finish()

    def _job(self, snapshot: Table, complete: Callable[[Table], Table] | None = None) -> SaveJob:
        """A job for this snapshot; `complete` adds, in the job's thread, what follows from it."""
        file, generation = self._file, self.generation

        def run() -> None:
            file.save(snapshot if complete is None else complete(snapshot))

        return SaveJob(generation, run, lambda: self._saved(generation, snapshot))

    def _saved(self, generation: int, snapshot: Table) -> None:  # noqa: ARG002 - for heirs
        """The snapshot of this generation is on disk."""
        self.durable_generation = max(self.durable_generation, generation)

    def _note_change(self) -> None:
        self.generation += 1

    def _note_loaded(self) -> None:
        """The file holds what is in memory."""
        self.durable_generation = self.generation
