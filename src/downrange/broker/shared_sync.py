"""When senders that wait for the disk have gathered for one sync.

A sync costs as much as a dozen sends, whoever takes part in it, so those who come right after its
begin would better have been waited for. But a broker that waits while nobody comes wastes the time
of those who are there. Hence: as long as every turn of the event loop brings more, wait for as many
as lately waited; with the first turn that brings nobody, sync.
"""

TURNS_MAX = 16  # some who come do not wait, so their number alone is no bound


class SharedSync:
    """Decides; the owner syncs. Asked once in a turn, while no sync runs."""

    def __init__(self) -> None:
        self._crowd = 0  # how many waited when the last sync ended, those it freed among them
        self._end_offset = -1
        self._turns = 0

    def is_time(self, waiting: int, end_offset: int) -> bool:
        """Whether to sync now, with so many who wait and the log that long."""
        is_quiet = end_offset == self._end_offset
        self._end_offset = end_offset
        self._turns += 1
        return is_quiet or waiting >= self._crowd or self._turns >= TURNS_MAX

    def begun(self) -> None:
        """A sync begins, asked for here or elsewhere."""
        self._turns = 0

    def ended(self, waiting: int) -> None:
        """It ended, and so many wait, whom it frees or who came meanwhile."""
        self._crowd = waiting
