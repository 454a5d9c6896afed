"""What the demonstration shows in the terminal."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.demo.results import Revenue

CENTS: Final = 100


class Screen:
    """Steps, bars and tables, for people; plain lines if it is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def step(self, text: str) -> None:
        """What comes now."""
        self._console.print(f"[bold]>[/] {text}", highlight=False)

    def done(self, text: str) -> None:
        """What came out of it."""
        self._console.print(f"  {text}", highlight=False)

    def fail(self, text: str) -> None:
        """Why it does not go on."""
        self._console.print(f"demo: {text}", highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def bar(self, text: str, total: int) -> Iterator[Callable[[int], None]]:
        """A progress bar; what it gives is called with how many are done."""
        columns = (
            TextColumn("  {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task(text, total=total)
            yield lambda completed: progress.update(task, completed=completed)

    def revenue(self, rows: Sequence[Revenue]) -> None:
        """The table of the pipeline: an hour a row, a region a column."""
        regions = sorted({row.region for row in rows})
        table = Table(title="revenue by hour (UTC)", title_justify="left")
        table.add_column("hour")
        table.add_column("orders", justify="right")
        for name in (*regions, "all"):
            table.add_column(name, justify="right")
        for hour in sorted({row.hour for row in rows}):
            cells = {row.region: row for row in rows if row.hour == hour}
            cents = [cells[region].cents if region in cells else 0 for region in regions]
            orders = sum(row.orders for row in cells.values())
            money = [f"{value / CENTS:,.0f}" for value in (*cents, sum(cents))]
            table.add_row(f"{hour:%a %H:%M}", f"{orders:,}", *money)
        self._console.print(table)

    def rates(self, lines: Sequence[tuple[str, int, float]]) -> None:
        """How fast each step was."""
        table = Table(title="rates", title_justify="left")
        table.add_column("step")
        for name in ("messages", "seconds", "a second"):
            table.add_column(name, justify="right")
        for name, count, seconds in lines:
            rate = count / seconds if seconds else 0.0
            table.add_row(name, f"{count:,}", f"{seconds:.1f}", f"{rate:,.0f}")
        self._console.print(table)
