"""Which files make up an archive: a log of numbered entries beside the data.

    _manifest/0000000007.json    {"version": 7, "query": …, "batch": 3, "add": {path: bytes}, …}
    topic=T/date=D/batch-0000000003-00000.parquet
    _staging/…                   what is being written

A batch counts from the moment its entry is there. Files that no entry names were left by a run
that died, and are removed by the next; so a batch that runs again finds nothing of its first try.
An archive belongs to one checkpoint: batch numbers of another one mean other messages.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from downrange.spark.pipelines.archive_errors import ArchiveError, another_checkpoint

MANIFEST: Final = "_manifest"
STAGING: Final = "_staging"
SNAPSHOT_EVERY: Final = 50
_ENTRY: Final = re.compile(r"^(\d{10})\.json$")
_DATA: Final = re.compile(r"/(batch|compact)-\d{10}-\d{5}\.parquet$")
_PARTITION: Final = re.compile(r"^topic=[^/]+/date=[^/]+$")


class Files(Protocol):
    """The files below the folder of an archive; `HadoopFiles` in a run."""

    def names(self, folder: str) -> list[str]:
        """Files directly in a folder; none if it is not there."""
        ...

    def sizes_below(self, folder: str) -> dict[str, int]:
        """Every file below a folder, with its bytes."""
        ...

    def read_text(self, path: str) -> str:
        """The text of a file."""
        ...

    def create_text(self, path: str, text: str) -> None:
        """Make a whole file or none; `FileExistsError` if it is there."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Move a file; the folder is made."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file or a folder; nothing if it is not there."""
        ...


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """What all entries together say."""

    version: int = -1
    query: str = ""
    batch: int = -1
    files: Mapping[str, int] = field(default_factory=dict)

    def after(self, entry: Mapping[str, object]) -> "ArchiveState":
        """The state when an entry has been read too."""
        added, removed = entry.get("add"), entry.get("remove")
        assert isinstance(added, dict)
        assert isinstance(removed, list)
        files = {} if entry.get("snapshot") else dict(self.files)
        files |= added
        for path in removed:
            files.pop(path, None)
        return ArchiveState(
            int(str(entry["version"])), str(entry["query"]), int(str(entry["batch"])), files
        )


class ArchiveLog:
    """The log of one archive. One run at a time owns it; each call leaves it whole."""

    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self._root = root
        self.state = self._read()

    def open(self, query: str) -> None:
        """Begin or go on as the query with this id, and remove what a run that died has left."""
        if self.state.version < 0:
            if any(_DATA.search(path) for path in self._files.sizes_below("")):
                raise ArchiveError(
                    f"{self._root} has files of an archive, but no {MANIFEST}: name another path, "
                    f"or bring the {MANIFEST} folder back"
                )
            self._append(query, -1, {}, ())
        elif self.state.query != query:
            raise another_checkpoint(self._root)
        self._files.delete(STAGING)
        for path in self._files.sizes_below(""):
            if _DATA.search(path) and path not in self.state.files:
                self._files.delete(path)

    def has_batch(self, batch: int) -> bool:
        """Whether a batch is in the archive already."""
        return batch <= self.state.batch

    def add_batch(self, batch: int, staged: str) -> None:
        """Take over what was written below a staging folder as this batch."""
        added = self._take_over(staged, f"batch-{batch:010d}")
        self._append(self.state.query, batch, added, ())
        self._files.delete(staged)

    def replace(self, old: Sequence[str], staged: str, partition: str) -> None:
        """Put the files of a staging folder in the place of some that are in the archive."""
        assert _PARTITION.match(partition), partition
        prefix = f"compact-{self.state.version + 1:010d}"
        added = self._take_over(staged, prefix, partition)
        self._append(self.state.query, self.state.batch, added, old)
        for path in old:
            self._files.delete(path)
        self._files.delete(staged)

    def _take_over(self, staged: str, prefix: str, partition: str = "") -> dict[str, int]:
        added: dict[str, int] = {}
        sizes = self._files.sizes_below(staged)
        data = [path for path in sorted(sizes) if path.endswith(".parquet")]
        for number, path in enumerate(data):
            folder = partition or path.removeprefix(f"{staged}/").rpartition("/")[0]
            new = f"{folder}/{prefix}-{number:05d}.parquet"
            self._files.rename(path, new)
            added[new] = sizes[path]
        return added

    def _append(
        self, query: str, batch: int, added: Mapping[str, int], removed: Sequence[str]
    ) -> None:
        version = self.state.version + 1
        entry: dict[str, object] = {
            "version": version, "query": query, "batch": batch, "snapshot": False,
            "add": dict(added), "remove": list(removed),
        }  # fmt: skip
        after = self.state.after(entry)
        is_snapshot = version % SNAPSHOT_EVERY == 0
        if is_snapshot:
            entry |= {"snapshot": True, "add": dict(after.files), "remove": []}
        try:
            self._files.create_text(_entry_path(version), json.dumps(entry))
        except FileExistsError:
            raise ArchiveError(
                f"another run writes to {self._root}: an archive takes one at a time"
            ) from None
        self.state = after
        if is_snapshot:
            for name in self._files.names(MANIFEST):
                match = _ENTRY.match(name)
                if match and int(match.group(1)) < version:
                    self._files.delete(f"{MANIFEST}/{name}")

    def _read(self) -> ArchiveState:
        versions = sorted(
            int(match.group(1))
            for name in self._files.names(MANIFEST)
            if (match := _ENTRY.match(name))
        )
        state = ArchiveState()
        entries: list[dict[str, object]] = []
        for version in reversed(versions):
            entry: dict[str, object] = json.loads(self._files.read_text(_entry_path(version)))
            entries.append(entry)
            if entry["snapshot"]:
                break
        for entry in reversed(entries):
            if state.version >= 0 and int(str(entry["version"])) != state.version + 1:
                raise ArchiveError(
                    f"{self._root}/{MANIFEST} lacks the entry {state.version + 1}: bring it back"
                )
            state = state.after(entry)
        return state


def _entry_path(version: int) -> str:
    return f"{MANIFEST}/{version:010d}.json"
