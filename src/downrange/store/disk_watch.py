"""How full the disks of a store are: those of the log, of which each may be another, and the rest.

As in RocketMQ the emptiest path of the log counts, since new files go there, and beside it the disk
of the consume queues: a message that has no room there cannot be delivered.
"""

from dataclasses import dataclass
from pathlib import Path

from downrange.runtime.disk import Disk


@dataclass(frozen=True, slots=True)
class DiskState:
    """How full the disk that decides was at the last look, and what follows."""

    directory: Path
    used_ratio: float
    full_ratio: float

    @property
    def is_full(self) -> bool:
        """Whether no more messages are taken."""
        return self.used_ratio > self.full_ratio

    def __str__(self) -> str:
        return (
            f"{self.directory} is {self.used_ratio:.1%} full, over the limit of "
            f"{self.full_ratio:.0%}; free some space, writing resumes by itself"
        )


class DiskWatch:
    """Measures the directories of one store; owned by its retention."""

    def __init__(self, disk: Disk, log_paths: tuple[Path, ...], queue_path: Path) -> None:
        self._disk = disk
        self._log_paths = log_paths
        self._queue_path = queue_path

    def measure(self, force_ratio: float, full_ratio: float) -> tuple[DiskState, frozenset[Path]]:
        """The state of the disk that decides, and the paths of the log that are nearly full.

        The latter should get no more files while another path can. A path of several that cannot be
        measured, since its volume is gone, counts as full; `OSError` if it is the only one.
        """
        ratios = {path: self._log_ratio(path) for path in self._log_paths}
        roomiest = min(ratios, key=lambda path: ratios[path])
        of_log = DiskState(roomiest, ratios[roomiest], full_ratio)
        queue_ratio = self._disk.usage(self._queue_path).used_ratio
        of_queues = DiskState(self._queue_path, queue_ratio, full_ratio)
        decides = of_queues if queue_ratio > of_log.used_ratio else of_log
        return decides, frozenset(path for path, ratio in ratios.items() if ratio > force_ratio)

    def _log_ratio(self, path: Path) -> float:
        try:
            return self._disk.usage(path).used_ratio
        except OSError:
            if len(self._log_paths) == 1:
                raise
            return 1.0
