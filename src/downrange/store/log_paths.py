"""The directories that hold the commit log: which file goes where.

As in RocketMQ's storePathCommitLog with several paths, the files of one log are spread over all of
them in turn, so that neighbouring files lie on different disks.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SEPARATOR: Final = ","  # RocketMQ's, unless its -Drocketmq.broker.multiPathSplitter says otherwise


class LogPathsError(ValueError):
    """The paths cannot be those of a log; the text says why."""


@dataclass(frozen=True, slots=True)
class LogPaths:
    """Where the files of a log are, and where new ones go.

    `read_only` paths are read and cleaned by retention, but get no new files; a path may be named
    in both lists, as in RocketMQ.
    """

    paths: tuple[Path, ...]
    read_only: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if not self.writable:
            names = ", ".join(map(str, self.paths))
            raise LogPathsError(
                f"no path is left for new files of the commit log: storePathCommitLog has {names},"
                " and readOnlyCommitLogStorePaths names all of them; leave one out of the latter"
            )

    @classmethod
    def parse(cls, default: Path, paths: str, read_only: str = "") -> "LogPaths":
        """The paths as broker.conf has them; `default` if it names none."""
        return cls(tuple(_split(paths)) or (default,), tuple(_split(read_only)))

    @property
    def everywhere(self) -> tuple[Path, ...]:
        """All directories that may hold files, each once."""
        return tuple(dict.fromkeys(self.paths + self.read_only))

    @property
    def writable(self) -> tuple[Path, ...]:
        """The directories that get new files, in the order in which they take turns.

        The order is that of their names, whatever the settings say: RocketMQ sorts them as well.
        """
        return tuple(sorted({*self.paths} - {*self.read_only}, key=str))

    @property
    def first(self) -> Path:
        """The directory of the first file, which is the only one of most logs."""
        return self.writable[0]

    def candidates(self, file_number: int, full: Collection[Path] = ()) -> tuple[Path, ...]:
        """Where the file of this number goes: the best place first, others for when it fails.

        `full` directories come last: what is written nowhere is lost.
        """
        writable = self.writable
        roomy = [path for path in writable if path not in full] or list(writable)
        turn = file_number % len(roomy)
        preferred = roomy[turn:] + roomy[:turn]
        return (*preferred, *(path for path in writable if path not in preferred))


def _split(text: str) -> Iterator[Path]:
    """The paths of a list; `LogPathsError` if one comes twice."""
    seen: set[Path] = set()
    for part in text.split(SEPARATOR):
        if not part.strip():
            continue
        path = Path(part.strip())
        if path in seen:
            raise LogPathsError(f"{path} is listed twice among the paths of the commit log")
        seen.add(path)
        yield path
