"""All consume queues of a store, by topic and queue id."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

from downrange.store.consume_queue import ConsumeQueue, Positions
from downrange.store.errors import SegmentMissingError
from downrange.store.settings import StoreSettings
from downrange.store.store_files import StoreFiles

_log = logging.getLogger(__name__)
KnownPositions = Mapping[str, Mapping[int, Positions]]  # topic -> queue id -> positions


class QueueTable:
    """Finds, creates and deletes consume queues; their directories are TOPIC/QUEUE."""

    def __init__(self, files: StoreFiles, settings: StoreSettings) -> None:
        self._files = files
        self._disk = files.disk
        self.root = settings.consume_queue_path
        self._entries_per_file = settings.queue_entries
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._topics: dict[str, dict[int, ConsumeQueue]] = {}
        self.forgotten = False

    def load(self, known: KnownPositions | None = None) -> None:
        """Find the queues that are there; those that have lost a file are removed.

        `known` spares reading the files of queues that nobody has written since it was noted.
        """
        for topic_path in self._disk.list_directory(self.root):
            positions = (known or {}).get(topic_path.name, {})
            for name in self._disk.list_names(topic_path):
                if name.isascii() and name.isdigit():
                    self._load(self.ensure(topic_path.name, int(name)), positions.get(int(name)))

    def _load(self, queue: ConsumeQueue, known: Positions | None) -> None:
        try:
            queue.load(known)
        except SegmentMissingError as error:
            self.forget(queue, str(error))
        if queue.chain.has_short_file:
            self.forget(queue, f"a file in {queue.chain.directory} was cut off")

    def forget(self, queue: ConsumeQueue, reason: str) -> None:
        """Remove a queue that is not whole; it has to be built again from all of the log."""
        _log.error("the queue %s/%s is built again: %s", queue.topic, queue.queue_id, reason)
        self.forgotten = True
        self._remove(queue)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self._queues.values())

    def __len__(self) -> int:
        return len(self._queues)

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, if a message was ever put into it."""
        return self._queues.get((topic, queue_id))

    def ensure(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, new and empty if there was none; files come with its first entry."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = self._queues[topic, queue_id] = ConsumeQueue(
                self._files, self._path(topic, queue_id), topic, queue_id, self._entries_per_file
            )
            self._topics[topic][queue_id] = queue
        return queue

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        """The queues of a topic, by queue id."""
        queues = self._topics.get(topic, {})
        return [queues[queue_id] for queue_id in sorted(queues)]

    @property
    def topics(self) -> list[str]:
        """The topics that have queues."""
        return list(self._topics)

    def delete_topic(self, topic: str) -> int:
        """Remove the queues of a topic with their files; the log keeps its records."""
        queues = self.of_topic(topic)
        for queue in queues:
            self._remove(queue)
        if queues:
            self._files.dirty.forget_directory(self.root / topic)
            if self._disk.exists(self.root / topic):
                self._disk.remove_directory(self.root / topic)
        return len(queues)

    def _remove(self, queue: ConsumeQueue) -> None:
        del self._queues[queue.topic, queue.queue_id]
        of_topic = self._topics[queue.topic]
        del of_topic[queue.queue_id]
        if not of_topic:
            del self._topics[queue.topic]
        queue.chain.destroy()

    def close(self) -> None:
        """Close the files."""
        for queue in self:
            queue.chain.close()
        self._queues.clear()
        self._topics.clear()

    def _path(self, topic: str, queue_id: int) -> Path:
        """Its directory; the topic's, of which most have several queues, is made once."""
        queues = self._topics.setdefault(topic, {})
        for queue in queues.values():
            return queue.chain.directory.with_name(str(queue_id))
        return self.root / topic / str(queue_id)
