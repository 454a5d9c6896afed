"""Remembers which topics were deleted, and up to where in the log their records are.

The log keeps the records of a deleted topic until retention removes them, and recovery builds
queues from records. So a deletion is written to `deleted.json` before the queues go, and it stays
there while the log has records below the offset. The file stands beside RocketMQ's own files; an
Apache broker leaves it alone.

    {"deletedBelow":{"TopicTest":123456}}
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from downrange.runtime.disk import Disk
from downrange.runtime.durable_file import DurableFile
from downrange.store.manifest import Manifest
from downrange.store.queue_table import QueueTable

FILE_NAME = "deleted.json"


class Deletions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Topic -> physical offset: its records below are those of a topic that was deleted."""

    deleted_below: dict[str, int] = {}


class DeletedTopics:
    """The deletions, in memory and on disk. Owned by the store's thread."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._file = DurableFile(
            disk,
            root / FILE_NAME,
            lambda data: msgspec.json.decode(data, type=Deletions).deleted_below,
            (msgspec.MsgspecError, UnicodeDecodeError),
        )
        self._saved: dict[str, int] | None = None  # None: there is no file
        self.below: dict[str, int] = {}

    def load(self, manifest: Manifest | None) -> None:
        """Read the file, or the manifest, where deletions were kept before there was a file.

        `DurableFileError` if the file is damaged and so is its backup.
        """
        self._saved = self._file.load()
        if self._saved is not None:
            self.below = dict(self._saved)
        elif manifest is not None:
            self.below = dict(manifest.deleted_below)

    def record(self, topic: str, offset: int, log_start: int) -> None:
        """Note that all records of a topic below `offset` are gone; durable when this returns."""
        self._save({**self.below, topic: offset}, log_start)

    def settle(self, log_start: int, log_end: int) -> None:
        """Bring the deletions in line with the recovered log; durable when this returns.

        What is appended from here on belongs to topics that exist, also if the log has lost its
        end; what retention has removed need not be remembered.
        """
        self._save({topic: min(at, log_end) for topic, at in self.below.items()}, log_start)

    def finish(self, queues: QueueTable) -> None:
        """Remove queues that a crash has kept from being removed, hide what is left in others."""
        for topic, offset in self.below.items():
            for queue in queues.of_topic(topic):
                if queue.max_offset == queue.min_offset:
                    continue
                if queue.entry(queue.max_offset - 1)[0] < offset:
                    queues.forget(queue, "its topic was deleted")
                else:
                    queue.correct_min(offset)

    def current(self, manifest: Manifest | None) -> Manifest | None:
        """The manifest without what it says of topics that were deleted after it was written."""
        if manifest is None:
            return None
        known = manifest.deleted_below
        gone = {topic for topic, offset in self.below.items() if known.get(topic) != offset}
        if not gone:
            return manifest
        return replace(
            manifest,
            queues={
                topic: bounds for topic, bounds in manifest.queues.items() if topic not in gone
            },
            first_offsets={
                topic: first for topic, first in manifest.first_offsets.items() if topic not in gone
            },
            queue_files={
                topic: files for topic, files in manifest.queue_files.items() if topic not in gone
            },
        )

    def _save(self, below: Mapping[str, int], log_start: int) -> None:
        kept = {topic: offset for topic, offset in below.items() if offset > log_start}
        if kept != self._saved and (kept or self._saved or self.below):
            self._file.replace(msgspec.json.encode(Deletions(deleted_below=kept)))
            self._saved = kept
        # In place: the dispatcher holds it, too.
        self.below.clear()
        self.below.update(kept)
