"""What our sink stamps on each message, so that a batch that was written twice can be recognised.

    queryId:batchId:partition:row

Spark may run a task or a batch again after a failure; the rows it writes then have the ids of the
first time.
"""

from collections.abc import Sequence
from typing import Final

_SEPARATOR: Final = ":"


class SeenSinkIds:
    """Which ids have been met; the rows of one task of the sink share one entry."""

    def __init__(self) -> None:
        self._rows: dict[str, set[int]] = {}
        self._others: set[str] = set()

    def is_first(self, ids: Sequence[str | None]) -> list[bool]:
        """Whether each message is met for the first time; one without an id always is."""
        return [one is None or self._note(one) for one in ids]

    def _note(self, one: str) -> bool:
        task, _, row = one.rpartition(_SEPARATOR)
        if not (row.isascii() and row.isdecimal()):
            is_new = one not in self._others
            self._others.add(one)
            return is_new
        rows = self._rows.setdefault(task, set())
        number = int(row)
        is_new = number not in rows
        rows.add(number)
        return is_new
