"""Messages by key and by unique id: the index files of a store, newest last.

A file is named by the local time of its creation. The hash that is stored is the absolute value of
Java's hash of "TOPIC#KEY", or "TOPIC#T#TAG" for the tag; different keys may share it, so who looks
up a key compares the record.
"""

import logging
import re
from datetime import datetime
from pathlib import Path

from downrange.protocol.java_hash import (
    BASE,
    ID_BYTES,
    ID_DIGITS,
    INT_MASK,
    INT_MAX,
    extend_hash,
    id_hash_base,
    index_key_hash,
    java_hash,
)
from downrange.runtime.clock import Clock
from downrange.store.dispatch_entry import TAG_KEY_PREFIX, DispatchEntry
from downrange.store.index_file import ITEMS_TOGETHER_MAX, IndexFile, IndexItem, index_file_bytes
from downrange.store.settings import StoreSettings
from downrange.store.store_files import StoreFiles

_log = logging.getLogger(__name__)
_NAME = re.compile(r"\d{17}")
TAG_HASHES_MAX = 1024  # of a topic


class _TopicHashes:
    """Hashes of the keys of one topic."""

    __slots__ = ("_prefix", "_tags", "id_base", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._prefix = java_hash(topic + "#") & INT_MASK
        self._tags: dict[bytes, int] = {}  # they come again and again
        self.id_base = id_hash_base(self._prefix)

    def of(self, key: bytes) -> int:
        key_hash = self._tags.get(key)
        if key_hash is None:
            key_hash = index_key_hash(extend_hash(self._prefix, key))
            if key.startswith(TAG_KEY_PREFIX) and len(self._tags) < TAG_HASHES_MAX:
                self._tags[key] = key_hash
        return key_hash


class KeyIndex:
    """Puts keys of dispatched messages and finds their physical offsets."""

    def __init__(self, files: StoreFiles, clock: Clock, settings: StoreSettings) -> None:
        self._files = files
        self._disk = files.disk
        self._clock = clock
        self._directory = settings.index_path
        self._slots = settings.index_slots
        self._items = settings.index_items
        self.files: list[IndexFile] = []
        self._topics: dict[str, _TopicHashes] = {}
        self._last: IndexFile | None = None

    def load(self) -> list[Path]:
        """Read the headers; removes files that cannot be index files and returns their names."""
        removed = []
        expected = index_file_bytes(self._slots, self._items)
        for path in self._disk.list_directory(self._directory):
            if not _NAME.fullmatch(path.name):
                continue
            if self._disk.size(path) == expected:
                file = IndexFile(self._files, path, self._slots, self._items, create=False)
                if file.is_sound:
                    self.files.append(file)
                    continue
                file.close()
            self._disk.unlink(path)
            removed.append(path)
        self._last = self.files[-1] if self.files else None
        return removed

    @property
    def end_offset(self) -> int:
        """Physical offset of the last message that has a key here; -1 for an empty index."""
        last = self._last
        return last.end_offset if last is not None and last.count > 1 else -1

    @property
    def end_timestamp(self) -> int:
        """Store time of the last message that has a key here."""
        return self._last.end_timestamp if self._last is not None else 0

    def put(
        self, topic: str, keys: list[bytes], physical_offset: int, store_timestamp: int
    ) -> None:
        """Add the keys of a message; `OSError` if the disk has no room, and then none is added."""
        hashes = self._hashes(topic)
        self._put_all([(hashes.of(key), physical_offset, store_timestamp) for key in keys])

    def put_batch(self, batch: list[DispatchEntry]) -> None:
        """Add the keys of messages that follow each other in the log, all of them or none."""
        items: list[IndexItem] = []
        hashes = self._hashes(batch[0][0].topic)
        id_base = hashes.id_base
        for queue, _, _, physical_offset, _, _, stored_ms, keys, _ in batch:
            if queue.topic != hashes.topic:
                hashes = self._hashes(queue.topic)
                id_base = hashes.id_base
            for key in keys:
                if len(key) == ID_BYTES and key.isupper():
                    try:
                        key_hash = (id_base + int(key.translate(ID_DIGITS), BASE)) & INT_MASK
                    except ValueError:  # upper-case text of an id's length
                        key_hash = hashes.of(key)
                    else:
                        if key_hash > INT_MAX:
                            key_hash = index_key_hash(key_hash)
                else:
                    key_hash = hashes.of(key)
                items.append((key_hash, physical_offset, stored_ms))
        self._put_all(items)

    def _hashes(self, topic: str) -> _TopicHashes:
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = _TopicHashes(topic)
        return found

    def _put_all(self, items: list[IndexItem]) -> None:
        done = 0
        try:
            while done < len(items):
                last = self._last
                if last is None or last.count >= last.count_max:
                    last = self._roll()
                if last.count == 1:  # the first one gives the file its begin
                    last.put(*items[done])
                    done += 1
                    continue
                count = min(len(items) - done, last.count_max - last.count, ITEMS_TOGETHER_MAX)
                last.put_all(items[done : done + count])
                done += count
        except OSError:
            self.cut(items[0][1])  # all or none, so that they can come again
            raise

    def find(self, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int) -> list[int]:
        """Physical offsets of messages that may have this key, newest first."""
        key_hash = index_key_hash(java_hash(f"{topic}#{key}") & INT_MASK)
        found: list[int] = []
        for file in reversed(self.files):
            if file.overlaps(begin_ms, end_ms):
                for physical_offset in file.find(key_hash, begin_ms, end_ms):
                    found.append(physical_offset)
                    if len(found) >= count_max:
                        return found
            if file.begin_timestamp < begin_ms:
                break
        return found

    def take_back_unsure(self) -> int:
        """Take back what a killed process may have put and not linked to its slots.

        Returns the physical offset from which the log must be indexed again.
        """
        last = self._last
        unsure_offset = last.unsure_offset() if last is not None else 0
        self.cut(unsure_offset)
        return unsure_offset

    def cut(self, physical_end: int) -> None:
        """Take back the keys of messages at or behind `physical_end`."""
        while self.files:
            self.files[-1].cut(physical_end)
            if self.files[-1].count > 1 or len(self.files) == 1:
                break
            self._remove(self.files.pop())
        self._last = self.files[-1] if self.files else None

    def drop_unsafe(self, safe_timestamp: int) -> int:
        """Remove the files that may not have reached the disk before a loss of power.

        Returns the physical offset from which the log must be indexed again.
        """
        while self.files and self.files[-1].end_timestamp > safe_timestamp:
            _log.warning("index file %s may be incomplete and is built again", self.files[-1].path)
            self._remove(self.files.pop())
        self._last = self.files[-1] if self.files else None
        return self.end_offset + 1

    def drop_all(self) -> None:
        """Remove every file, to build the index anew."""
        while self.files:
            self._remove(self.files.pop())
        self._last = None

    def drop_files_below(self, min_physical_offset: int) -> int:
        """Delete the files all of whose messages are gone; the newest stays. Returns how many."""
        dropped = 0
        while len(self.files) > 1 and self.files[0].end_offset < min_physical_offset:
            self._remove(self.files.pop(0))
            dropped += 1
        return dropped

    def close(self) -> None:
        """Close the files."""
        for file in self.files:
            file.close()
        self.files.clear()
        self._last = None

    def _roll(self) -> IndexFile:
        self._disk.make_directory(self._directory)
        # Files are read in the order of their names, which local time alone does not keep: it
        # goes back every autumn.
        name = index_file_name(self._clock.wall_ms())
        if self._last is not None and name <= self._last.path.name:
            name = str(int(self._last.path.name) + 1)
        path = self._directory / name
        try:
            file = IndexFile(self._files, path, self._slots, self._items, create=True)
        except OSError:
            self._disk.unlink(path)
            raise
        self._files.dirty.note(file)
        self._files.dirty.note_names(self._directory, self._directory.parent)
        if self._last is not None:
            file.begin_behind(self._last.end_offset, self._last.end_timestamp)
        self.files.append(file)
        self._last = file
        return file

    def _remove(self, file: IndexFile) -> None:
        file.close()  # if a sync needs it, the pool closes it later
        self._files.dirty.forget(file)
        self._disk.unlink(file.path)


def index_file_name(created_ms: int) -> str:
    """The name of an index file: local time down to the millisecond."""
    moment = datetime.fromtimestamp(created_ms / 1000).astimezone()
    return f"{moment:%Y%m%d%H%M%S}{created_ms % 1000:03d}"
